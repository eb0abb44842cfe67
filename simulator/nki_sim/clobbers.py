"""Explicit placements that share bytes: which bytes of a tensor were last written under the name of another one."""

from __future__ import annotations

from itertools import count

from nki_sim.claims import Claim, Patch, Place, Write
from nki_sim.memory import Allocation
from nki_sim.tensor import NkiTensor

MOST = 16
"""Writes kept of one tensor; further ones make the last of them larger, and are not cut to what is left of them."""
_times = count(1)


def write(tile: NkiTensor, claim: Claim) -> None:
    """Note that a view is written; what it covers is known no more as others'."""
    patch, now = claim.patch, next(_times)
    mine = tile.storage.allocation
    claim.since = claim.since or now
    for near in patch.near:
        if near.by is not mine:
            near.by, near.since = mine, now
    if not patch.shared:
        return
    place = tile.place
    dense = tile.size * tile.info.itemsize == (place.partitions - place.partition) * (place.bytes - place.byte)
    for near in patch.near:
        if not dense:
            over = [w for w in near.writes if place.covers(w.place)]
            claim.under += [w for w in over if w.by is not mine and w.time > claim.since]
        near.writes = _over(near.writes, place, dense)
    if dense and claim.under:
        claim.under = _over(claim.under, place, dense)
    _note(patch, Write(mine, place, now))


def _over(writes: list[Write], place: Place, dense: bool) -> list[Write]:
    """What is left of writes when a place is written over, of all its bytes or of some."""
    if not any(place.meets(w.place) for w in writes):
        return writes
    cut, kept = dense and len(writes) < MOST, []
    for w in writes:
        if not place.meets(w.place):
            kept.append(w)
        elif not place.covers(w.place):
            kept += w.without(place) if cut else (w,)
    return kept


def _note(patch: Patch, write: Write) -> None:
    known = [w for w in patch.writes if w.by is write.by]
    if len(known) >= MOST:
        patch.writes.remove(known[-1])
        write = write._replace(place=write.place.around(known[-1].place))
    patch.writes.append(write)


def read(tile: NkiTensor, claim: Claim) -> list[Allocation]:
    """The tensors whose writes a read of a view finds instead of its own; each write is said once."""
    hit = [w for w in (*_others(tile, claim), *claim.under) if w.time > claim.since and w.time not in claim.told]
    place = tile.place
    hit = [w for w in hit if place.meets(w.place)]
    claim.told.update(w.time for w in hit)
    return list({id(w.by): w.by for w in hit}.values())


def writer(tile: NkiTensor, claim: Claim) -> Allocation | None:
    """Whose write a read of a view finds that was not itself written."""
    place = tile.place
    met = [w for w in _others(tile, claim) if place.meets(w.place)]
    return max(met, key=lambda w: w.time).by if met else None


def _others(tile: NkiTensor, claim: Claim) -> list[Write]:
    mine = tile.storage.allocation
    return [w for near in claim.patch.near for w in near.writes if w.by is not mine]

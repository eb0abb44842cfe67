"""``rank_id``, and the permutes: every rank gives to one other and gets from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nki_sim import context
from nki_sim.collectives.base import (
    RANKS,
    SHAPES,
    Collective,
    checked,
    op_rule,
    ranks_of,
    shaped,
    tensors,
    wrong,
)
from nki_sim.collectives.group import ReplicaGroup
from nki_sim.collectives.uniform import reducer
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, Rule, page
from nki_sim.hw import DOCS, NeuronCore
from nki_sim.isa.base import Body
from nki_sim.scalars import VirtualRegister

HBM_SINGLE = Rule(
    "coll.permute.hbm_single",
    "collective_permute takes one tensor in each list, in HBM",
    fix="call it once for each tensor; copy SBUF tiles to HBM first",
    page=page("api/generated/nki.collectives.collective_permute.html"),
)
RING = Rule(
    "coll.permute.ring",
    "source_target_pairs are (source, target) pairs of ranks in which each rank gives once and gets once",
    why="the runtime supports circular patterns",
    fix="[(0, 1), (1, 2), (2, 0)]",
    page=DOCS + "neuron-runtime/about/collectives.html",
)
CHANNELS = Rule(
    "coll.permute_implicit.channels",
    "each channel has one tensor; channel_ids are 0, 1, …, at most 4 for a list that holds all devices of a node, else 2",
    why="a channel is a ring of links of its own",
    fix="channel_ids=[0], or [0, 1] with two lists of one tensor each",
    page=page("api/generated/nki.collectives.collective_permute_implicit.html"),
)
REDUCE_OP = op_rule("collective_permute_implicit_reduce", "coll.permute_implicit_reduce.op")
CURRENT_CHANNEL = Rule(
    "coll.current_rank_channel",
    "channel_id is 0 to the number of channels - 1, and iteration_id a number that is not negative",
    page=page("api/generated/nki.collectives.collective_permute_implicit_current_processing_rank_id.html"),
)
MOST_CHANNELS, MOST_CHANNELS_WHOLE_NODE = 2, 4


class Permute(Collective):
    """Takes from one rank: the one before it."""

    instruction = "collective_permute"

    def take(self, mine: int, others: Mapping[int, Any]) -> tuple[Rule, Broken] | None:
        wrong = self.fits(others)
        if wrong is not None:
            return wrong
        for i, tile in enumerate(others[self.ranks[self.place - 1]].srcs):
            self.__dict__[f"peer{i}"] = tile
        return None

    def shapes(self, core: NeuronCore) -> Broken | None:
        for i, (src, dst) in enumerate(zip(self.srcs, self.dsts, strict=False)):
            if tuple(src.shape) != tuple(dst.shape):
                return Broken(f"src{i} has shape {tuple(src.shape)}, dst{i} {tuple(dst.shape)}", f"dst{i}")
            if src.dtype != dst.dtype:
                return Broken(f"src{i} is {src.dtype}, dst{i} is {dst.dtype}", f"dst{i}")
        return None

    def single_in_hbm(self, core: NeuronCore) -> Broken | None:
        if len(self.srcs) != 1:
            return Broken(f"{len(self.srcs)} tensors", "srcs")
        return self.in_hbm(core)

    checks = checked((HBM_SINGLE, single_in_hbm), (SHAPES, shapes))

    def moved(self) -> tuple[float, int]:
        return float(sum(tile.size * tile.info.itemsize for tile in self.dsts)), 1

    def body(self, core: NeuronCore) -> Body:
        n, m, _ = self.lists

        def receive(*arrays: Array) -> None:
            for dst, came in zip(arrays[n : n + m], arrays[n + m :], strict=True):
                np.copyto(dst, came)

        return receive


class PermuteImplicit(Permute):
    """Around the ring of a list."""

    instruction = "collective_permute_implicit"
    checks = checked((SHAPES, Permute.shapes))


class PermuteReduce(Permute):
    """Around the ring of a list, of what each rank makes of two tensors."""

    instruction = "collective_permute_implicit_reduce"
    declared = ("op",)
    checks = checked((REDUCE_OP, Collective.known_op), (SHAPES, Permute.shapes))

    def shapes_of_both(self, core: NeuronCore) -> Broken | None:
        n = len(self.dsts)
        for i in range(n):
            a, b = self.srcs[i], self.srcs[n + i]
            if (tuple(a.shape), a.dtype) != (tuple(b.shape), b.dtype):
                return Broken(f"srcs0 has {a.words()}, srcs1 {b.words()}", f"src{n + i}")
        return None

    checks = (*checks, *checked((SHAPES, shapes_of_both))[1:])

    def body(self, core: NeuronCore) -> Body:
        n = len(self.dsts)
        reducers = [reducer(self.op, src, dst) for src, dst in zip(self.srcs, self.dsts, strict=False)]

        def receive(*arrays: Array) -> None:
            dsts, came = arrays[2 * n : 3 * n], arrays[3 * n :]
            for i, reduce in enumerate(reducers):
                reduce(dsts[i], [came[i], came[n + i]])

        return receive


def collective_permute(srcs: Any, dsts: Any, source_target_pairs: Sequence[tuple[int, int]], priority: int | None = None,
                       name: str | None = None) -> Any:  # fmt: skip
    """Every rank that is a source gives its tensor to its target; the other ranks take no part.

    Args:
        srcs, dsts: one tensor each, in HBM, alike. source_target_pairs: who gives to whom; each rank once on either side.
        priority: 0 to 3, on trn3.

    Example:
        a, b = (nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2))
        nisa.dma_copy(dst=a, src=x[:, 0:64])
        pairs = [(0, 0)]  # of two ranks: [(0, 1), (1, 0)]
        ncc.collective_permute(srcs=[a], dsts=[b], source_target_pairs=pairs)
    """
    subject, machine = "ncc.collective_permute", context.machine()
    sources, targets = tensors(srcs, dsts, subject)
    pairs = _pairs(source_target_pairs, subject)
    if machine.rank not in pairs:
        return None
    ring, at = [machine.rank], pairs[machine.rank]
    while at != machine.rank:
        ring.append(at)
        at = pairs[at]
    if max(ring) >= machine.ranks:
        raise wrong(RANKS, f"rank {max(ring)} in a run of {machine.ranks}", subject, "source_target_pairs")
    first = ring.index(min(ring))
    ranks = (*ring[first:], *ring[:first])
    made = shaped(Permute, len(sources), len(targets), len(sources))
    return made(sources, targets, ranks, name, priority=priority)


def _pairs(given: Any, subject: str) -> dict[int, int]:
    good = isinstance(given, (list, tuple)) and given and all(isinstance(p, (list, tuple)) and len(p) == 2 for p in given)
    if not good or not all(isinstance(r, (int, np.integer)) and r >= 0 for p in given for r in p):
        raise wrong(RING, f"source_target_pairs is {given!r}", subject, "source_target_pairs", TypeError)
    pairs = {int(a): int(b) for a, b in given}
    if len(pairs) != len(given) or sorted(pairs) != sorted(pairs.values()):
        raise wrong(RING, f"source_target_pairs is {given!r}", subject, "source_target_pairs")
    return pairs


def collective_permute_implicit(srcs_by_channel: Any, dsts_by_channel: Any, replica_group: ReplicaGroup,
                                channel_ids: Sequence[int] = (0,), priority: int | None = None,
                                name: str | None = None) -> Any:  # fmt: skip
    """Every rank of a list gives to the next one and gets from the one before; the last gives to the first.

    Args:
        srcs_by_channel, dsts_by_channel: for each channel a list of one tensor. replica_group: the rings.
        channel_ids: 0, 1, …. priority: 0 to 3, on trn3.

    Example:
        alone = ncc.ReplicaGroup([[0]])  # of n ranks: [list(range(n))]
        mine, came = nl.load(x[:, 0:64]), nl.ndarray((128, 64), dtype=x.dtype)
        ncc.collective_permute_implicit([[mine]], [[came]], replica_group=alone)
    """
    subject = "ncc.collective_permute_implicit"
    ranks = ranks_of(replica_group, subject)
    sources = _by_channel(srcs_by_channel, channel_ids, ranks, "srcs_by_channel", subject)
    targets = _by_channel(dsts_by_channel, channel_ids, ranks, "dsts_by_channel", subject)
    tensors(sources, targets, subject)
    made = shaped(PermuteImplicit, len(sources), len(targets), len(sources))
    return made(sources, targets, ranks, name, priority=priority)


def collective_permute_implicit_reduce(srcs0_by_channel: Any, srcs1_by_channel: Any, dsts_by_channel: Any,
                                       replica_group: ReplicaGroup, op: Any, channel_ids: Sequence[int] = (0,),
                                       priority: int | None = None, name: str | None = None) -> Any:  # fmt: skip
    """Every rank of a list gives ``op`` of its two tensors to the next one, and gets that of the one before.

    Args:
        srcs0_by_channel, srcs1_by_channel, dsts_by_channel: for each channel a list of one tensor, all alike.
        replica_group: the rings. op: ``nl.add``, ``nl.minimum`` or ``nl.maximum``. channel_ids: 0, 1, ….
        priority: 0 to 3, on trn3.

    Example:
        alone = ncc.ReplicaGroup([[0]])  # of n ranks: [list(range(n))]
        a, b, c = nl.load(x[:, 0:64]), nl.load(x[:, 64:128]), nl.ndarray((128, 64), dtype=x.dtype)
        ncc.collective_permute_implicit_reduce([[a]], [[b]], [[c]], replica_group=alone, op=nl.add)
    """
    subject = "ncc.collective_permute_implicit_reduce"
    ranks = ranks_of(replica_group, subject)
    first = _by_channel(srcs0_by_channel, channel_ids, ranks, "srcs0_by_channel", subject)
    second = _by_channel(srcs1_by_channel, channel_ids, ranks, "srcs1_by_channel", subject)
    targets = _by_channel(dsts_by_channel, channel_ids, ranks, "dsts_by_channel", subject)
    tensors([*first, *second], targets, subject, alike=False)
    made = shaped(PermuteReduce, 2 * len(first), len(targets), 2 * len(first))
    return made([*first, *second], targets, ranks, name, op=op, priority=priority)


def _by_channel(given: Any, channel_ids: Any, ranks: Sequence[int], name: str, subject: str) -> list[Any]:
    """The tensor of each channel.

    Raises:
        NkiValidationError: channels other than 0, 1, …, or too many, or not one tensor for each.
    """
    ids = list(channel_ids) if isinstance(channel_ids, (list, tuple, range)) else [channel_ids]
    most = most_channels(ranks)
    if ids != list(range(len(ids))) or not ids or len(ids) > most:
        raise wrong(CHANNELS, f"channel_ids is {channel_ids!r}, with at most {most} channels", subject, "channel_ids")
    listed = isinstance(given, (list, tuple)) and len(given) == len(ids)
    if not listed or not all(isinstance(one, (list, tuple)) and len(one) == 1 for one in given):
        size = f"{len(given)} lists" if isinstance(given, (list, tuple)) else f"a {type(given).__name__}"
        raise wrong(CHANNELS, f"{name} is {size} for {len(ids)} channels", subject, name)
    return [one[0] for one in given]


def most_channels(ranks: Sequence[int]) -> int:
    """Channels of a ring: 4 where it holds every device of a node."""
    machine = context.machine()
    per_chip = machine.core.links.cores_per_chip // machine.programs
    chips = {rank // per_chip for rank in ranks}
    whole = len(chips) >= min(machine.core.links.chips_per_node, -(-machine.ranks // per_chip))
    return MOST_CHANNELS_WHOLE_NODE if whole else MOST_CHANNELS


def collective_permute_implicit_current_processing_rank_id(iteration_id: int, replica_group: ReplicaGroup,
                                                           channel_id: int = 0, name: str | None = None) -> Any:  # fmt: skip
    """Whose data a rank has in a round of :func:`collective_permute_implicit`: its own in round 0, then those before it.

    Args:
        iteration_id: the round. replica_group: the rings. channel_id: 0 to the number of channels - 1.

    Returns:
        a register with the rank's number.

    Example:
        alone = ncc.ReplicaGroup([[0]])  # of n ranks: [list(range(n))]
        whose = ncc.collective_permute_implicit_current_processing_rank_id(0, alone)
        tile = nl.load(x.ap(pattern=[[512, 1], [1, 512]], offset=0, scalar_offset=whose, indirect_dim=0))
    """
    subject = "ncc.collective_permute_implicit_current_processing_rank_id"
    ranks, machine = ranks_of(replica_group, subject), context.machine()
    for label, value, end in (("channel_id", channel_id, most_channels(ranks)), ("iteration_id", iteration_id, None)):
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if not whole or value < 0 or (end is not None and value >= end):
            raise wrong(CURRENT_CHANNEL, f"{label} is {value!r}", subject, label)
    return VirtualRegister(ranks[(ranks.index(machine.rank) - iteration_id) % len(ranks)])


def rank_id(name: str | None = None) -> Any:
    """The number of the rank that runs the kernel.

    Returns:
        a register.

    Example:
        mine = ncc.rank_id()
        tile = nl.load(x.ap(pattern=[[512, 1], [1, 512]], offset=0, scalar_offset=mine, indirect_dim=0))
    """
    return VirtualRegister(context.machine().rank)

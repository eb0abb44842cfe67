"""Capacity, liveness, placement, hand placement and what overlaps."""

import math
import sys
import warnings

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import TARGETS, ld, sb, st
from nki_sim import NkiValidationError, NkiWarning
from nki_sim.errors import NkiCapacityError
from nki_sim.memory import Allocation, MemoryRegion
from nki_sim.placement import place

USABLE = {"trn1": 180_216, "trn2": 212_984, "trn3": 245_752}
X = np.ones((128, 8), np.float32)


def filled(*shape, dt=nl.float32, value=1, **where):
    t = nl.ndarray(shape, dtype=dt, **where)
    nisa.memset(dst=t, value=value)
    return t


# --- capacity --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_sbuf_holds_what_fits_and_not_a_byte_more(target):
    def kernel(x, rest):
        a = filled(128, 25_000)
        b = nl.ndarray((128, rest), dtype=nl.int8)
        nisa.tensor_copy(dst=b[:, 0:8], src=a[:, 0:8])
        return st(b[:, 0:8])

    rest = USABLE[target] - 100_000
    run = nki_sim.run(kernel, X, rest - 8, target=target)  # st allocates nothing on chip
    assert run.memory.sbuf.peak == USABLE[target] - 8
    assert run.memory.sbuf.limit == USABLE[target]
    with pytest.raises(NkiCapacityError) as caught:
        nki_sim.run(kernel, X, rest + 4, target=target)
    assert f"> {USABLE[target]}" in str(caught.value)


def test_an_overflow_lists_what_is_alive_with_bytes_and_line():
    def kernel(x):
        first = filled(128, 30_000)
        second = nl.ndarray((128, 20_000), dtype=nl.float32, name="second")
        third = filled(128, 10_000)
        nisa.tensor_copy(dst=second[:, 0:10_000], src=third)
        nisa.tensor_copy(dst=third, src=first[:, 0:10_000])
        return st(third)

    with pytest.raises(NkiCapacityError) as caught:
        nki_sim.run(kernel, X)
    diagnosis = caught.value.diagnosis
    assert diagnosis.rule.id == "hw.sbuf.capacity_enforced"
    assert diagnosis.headline == "SBUF overflow: 3 tiles alive need 240000 bytes per partition > 212984"
    first = kernel.__code__.co_firstlineno + 1
    *held, order = diagnosis.notes
    assert [note.split()[0] for note in held] == ["120000", "80000", "40000"]
    assert order.startswith("they fit with memset")  # the first tile is filled when nobody needs the second one any more
    assert "second: sbuf float32 [128 × 20000]" in diagnosis.notes[1]
    assert diagnosis.notes[1].endswith(f"line {first + 1}")
    assert "smaller tiles" in str(caught.value)


def test_a_tile_allocated_in_a_loop_is_reused_by_the_next_round():
    def kernel(x, rounds):
        out = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        for _ in range(rounds):
            t = filled(128, 20_000)
            nisa.dma_copy(dst=out, src=t[:, 0:8])
        return out

    assert nki_sim.run(kernel, X, 20).memory.sbuf.peak == nki_sim.run(kernel, X, 1).memory.sbuf.peak == 80_000


def test_tiles_kept_alive_add_up():
    def kernel(x, rounds):
        tiles = [filled(128, 20_000) for _ in range(rounds)]
        for t in tiles:
            nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        return st(tiles[0][:, 0:8])

    assert nki_sim.run(kernel, X, 2).memory.sbuf.peak == 160_000
    with pytest.raises(NkiCapacityError, match="3 tiles alive need 240000"):
        nki_sim.run(kernel, X, 3)


def test_tiles_listed_ahead_of_their_first_use_take_no_room_until_then():
    def kernel(x, rounds, fills_first):
        tiles = [nl.ndarray((128, 20_000), dtype=nl.float32) for _ in range(rounds)]
        for t in tiles if fills_first else ():
            nisa.memset(dst=t, value=1.0)
        for t in tiles:
            nisa.memset(dst=t, value=2.0)
            nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        return st(tiles[-1][:, 0:8])

    run = nki_sim.run(kernel, X, 3, False)
    assert run.memory.sbuf.peak == 80_000
    assert run.findings == []
    assert nki_sim.run(kernel, X, 2, False).memory.sbuf.peak == 160_000  # they fit as they are
    with pytest.raises(NkiCapacityError, match="3 tiles alive need 240000"):
        nki_sim.run(kernel, X, 3, True)


def test_psum_has_eight_banks():
    def kernel(x, banks):
        tiles = [filled(128, 512, buffer=nl.psum) for _ in range(banks)]
        out = sb(128, 8)
        for t in tiles:
            nisa.tensor_copy(dst=out, src=t[:, 0:8])
        return st(out)

    run = nki_sim.run(kernel, X, 8)
    assert run.memory.peak_banks == 8
    assert sorted(t.placed for t in run.memory.psum.tiles) == [i * 2048 for i in range(8)]
    with pytest.raises(NkiCapacityError, match=r"PSUM overflow: 9 tiles alive need 18432 bytes per partition > 16384"):
        nki_sim.run(kernel, X, 9)


def test_small_psum_tiles_share_a_bank():
    def kernel(x):
        tiles = [filled(128, 200, buffer=nl.psum) for _ in range(4)]
        out = sb(128, 8)
        for t in tiles:
            nisa.tensor_copy(dst=out, src=t[:, 0:8])
        return st(out)

    places = [t.placed for t in nki_sim.run(kernel, X).memory.psum.tiles]
    assert places == [0, 800, 2048, 2848]


def test_what_is_never_used_takes_no_room():
    def kernel(x):
        for _ in range(9):
            nl.ndarray((128, 50_000), dtype=nl.float32)
        return st(ld(x))

    assert nki_sim.run(kernel, X).memory.sbuf.peak == 32


# --- hand placement --------------------------------------------------------------------------------------------------


def test_hbm_is_full_at_the_tensor_that_does_not_fit_whatever_was_allocated_before():
    def kernel(x, count):
        for i in range(count):
            nl.ndarray((2**20, 2560), dtype=nl.float32, buffer=nl.shared_hbm, name=f"t{i}")  # 10 GiB
        return st(ld(x))

    assert nki_sim.run(kernel, X, 9).result.shape == X.shape
    with pytest.raises(NkiValidationError, match=rf"{10 * 10 * 2**30 + X.nbytes} bytes of HBM > {96 * 2**30}"):
        nki_sim.run(kernel, X, 10)


def test_an_address_names_real_bytes():
    def kernel(x):
        a = nl.ndarray((128, 8), dtype=nl.float32, address=(0, 1024))
        b = nl.ndarray((128, 16), dtype=nl.uint16, address=(0, 1024))
        c = nl.ndarray((32, 4), dtype=nl.float32, address=(64, 1040))
        nisa.dma_copy(dst=a, src=x)
        out, part = nl.ndarray((128, 16), dtype=nl.uint16, buffer=nl.shared_hbm), nl.ndarray(
            (32, 4), dtype=nl.float32, buffer=nl.shared_hbm)  # fmt: skip
        nisa.dma_copy(dst=out, src=b)
        nisa.dma_copy(dst=part, src=c)
        return out, part

    x = np.random.default_rng(0).standard_normal((128, 8)).astype(np.float32)
    with pytest.warns(NkiWarning, match="whose bytes were last written as a") as caught:
        whole, part = nki_sim.run(kernel, x).result
    np.testing.assert_array_equal(whole, x.view(np.uint16))
    np.testing.assert_array_equal(part, x[64:96, 4:8])
    assert {w.message.diagnosis.rule.id for w in caught} == {"memory.overlap"}
    assert "src=b" in caught[0].message.diagnosis.site.text and "src=c" in caught[1].message.diagnosis.site.text


def test_bytes_are_seen_by_who_claims_them_after_the_tensor_that_wrote_them_is_gone():
    def kernel(x, rounds):
        for i in range(rounds):
            filled(128, 8, value=float(i), address=(0, 64))
        again = nl.ndarray((128, 8), dtype=nl.float32, address=(0, 64), name="again")
        return st(again)

    with pytest.warns(NkiWarning, match="src reads again at .*, whose bytes were last written as t") as caught:
        got = nki_sim.run(kernel, X, 3).result
    np.testing.assert_array_equal(got, np.full((128, 8), 2.0, np.float32))
    assert [w.message.diagnosis.rule.id for w in caught] == ["memory.overlap"]


def test_places_that_a_loop_claims_again_and_again_are_kept_once():
    def kernel(x, rounds):
        kept = filled(128, 8, address=(0, 64))
        near = filled(128, 8, address=(0, 80))
        for _ in range(rounds):
            filled(128, 8, address=(0, 64))
            filled(64, 8, address=(0, 72))
        for storage in (kept.storage, near.storage):
            assert len(storage.claim.patch.near) <= 4
            assert len(storage.claim.patch.writes) <= 4
        return st(filled(128, 8, address=(0, 4096)))

    nki_sim.run(kernel, X, 50)


def test_a_tile_overwritten_through_another_is_reported_where_it_is_read():
    def kernel(x):
        a = nl.ndarray((128, 8), dtype=nl.float32, address=(0, 0))
        b = nl.ndarray((128, 8), dtype=nl.float32, address=(0, 16))
        out = sb(128, 8)
        nisa.memset(dst=a, value=1.0)
        nisa.memset(dst=b, value=2.0)
        nisa.tensor_copy(dst=out, src=b)
        nisa.tensor_copy(dst=out, src=a)
        return st(out)

    with pytest.warns(NkiWarning, match="src reads a at .*, whose bytes were last written as b") as caught:
        got = nki_sim.run(kernel, X).result
    np.testing.assert_array_equal(got, np.tile(np.repeat(np.array([1, 2], np.float32), 4), (128, 1)))
    assert len(caught) == 1
    assert caught[0].message.line == kernel.__code__.co_firstlineno + 7
    with pytest.raises(NkiValidationError, match="last written as b"):
        nki_sim.run(kernel, X, strict=True)


def at(address, shape=(64, 8)):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf, address=address)


def reads_after(second, reads):
    """What is reported when a tile is filled, another one that shares its bytes in part, and the first one read."""

    def kernel(x):
        a = at((0, 0))
        nisa.memset(dst=a, value=1.0)
        for view in second:
            nisa.memset(dst=view(at), value=2.0)
        out = nl.ndarray((64, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=sb_filled(64, 8))
        view = reads(a)
        nisa.dma_copy(dst=out[0 : view.shape[0], 0 : view.shape[1]], src=view)
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [f.rule.id for f in nki_sim.run(kernel, X).findings]


def sb_filled(rows, columns):
    tile = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0.0)
    return tile


@pytest.mark.parametrize(("second", "reads", "found"), [
    ([lambda at: at((32, 16), (32, 8))], lambda a: a, True),
    ([lambda at: at((32, 16), (32, 8))], lambda a: a[0:32], False),
    ([lambda at: at((32, 16), (32, 8))], lambda a: a[:, 0:4], False),
    ([lambda at: at((0, 0), (64, 16))[:, 8:16]], lambda a: a, False),  # the bytes that both share were not written
    ([lambda at: at((0, 0), (64, 16))[:, 7:16]], lambda a: a, True),
    ([lambda at, i=i: at((0, 0), (64, 16))[:, i : i + 1] for i in range(16)], lambda a: a[:, 5:6], True),
])  # fmt: skip
def test_what_was_clobbered_is_exact(second, reads, found):
    assert reads_after(second, reads) == (["memory.overlap"] if found else [])


places = some.tuples(some.sampled_from([0, 32, 64]), some.integers(0, 6), some.sampled_from([16, 32, 64]), some.integers(1, 6))
"""First partition, first column, partitions and columns of a tile of float32."""
parts = some.tuples(*[some.tuples(some.floats(0, 0.99), some.floats(0, 1))] * 2)
"""Of a tile: where a part begins, and how much of the rest it takes, by partition and by column."""


def part_of(shape, part):
    """The slices that a part means in a tile."""
    starts = [int(n * begin) for n, (begin, _) in zip(shape, part, strict=True)]
    return tuple(slice(s, s + max(1, round((n - s) * much))) for s, n, (_, much) in zip(starts, shape, part, strict=True))


@given(some.lists(places, min_size=2, max_size=5), some.lists(some.tuples(some.integers(0, 4), parts), max_size=8),
       some.integers(0, 4), parts)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_whose_bytes_are_read_is_known_exactly(tiles, writes, reader, part):
    """Against an array with the last writer of every four bytes."""
    owner = np.full((128, 16), -1)
    reader %= len(tiles)

    def kernel(x):
        made = [at((p, 4 * c), (rows, columns)) for p, c, rows, columns in tiles]
        for number, some_part in writes:
            number %= len(tiles)
            (p, c, _, _), tile = tiles[number], made[number]
            where = part_of(tile.shape, some_part)
            nisa.dma_copy(dst=tile[where], src=x[where])
            owner[p:, c:][where] = number
        mine = made[reader][part_of(made[reader].shape, part)]
        out = nl.ndarray(mine.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=mine)
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = nki_sim.run(kernel, np.zeros((64, 8), np.float32)).findings
    p, c, rows, columns = tiles[reader]
    seen = owner[p:, c:][part_of((rows, columns), part)]
    foreign = set(np.unique(seen)) - {-1, reader}
    if foreign:
        assert {f.rule.id for f in found} == {"memory.overlap"}
    else:
        assert [f.rule.id for f in found] == ["ndarray.uninitialised"] * bool((seen == -1).any())


def test_writing_a_part_again_mends_that_part_only():
    def kernel(x, columns):
        a, b = at((0, 0)), at((0, 0))
        nisa.memset(dst=a, value=1.0)
        nisa.memset(dst=b, value=2.0)
        nisa.memset(dst=a[:, 0:columns], value=3.0)
        return st(a)

    for columns, found in ((8, 0), (4, 1)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert len(nki_sim.run(kernel, X, columns).findings) == found


def test_program_order_makes_turns_safe():
    def kernel(x):
        a, b, out = at((0, 0)), at((0, 0)), nl.ndarray((64, 16), dtype=nl.float32, buffer=nl.shared_hbm)
        for _ in range(2):
            nisa.memset(dst=a, value=1.0)
            nisa.dma_copy(dst=out[:, 0:8], src=a)
            nisa.memset(dst=b, value=2.0)
            nisa.dma_copy(dst=out[:, 8:16], src=b)
        return out

    run = nki_sim.run(kernel, X, strict=True)
    np.testing.assert_array_equal(run.result, np.repeat([[1.0, 2.0]], 64, axis=0).repeat(8, axis=1))
    waits = run.timeline().dependencies
    writes = [step.index for step in run.program if step.instruction == "memset"]
    assert all(step - 1 in waits.of(step) for step in writes[1:])  # after the transfer that still reads those bytes


def test_using_one_place_after_the_other_is_fine():
    def kernel(x):
        a = filled(128, 8, address=(0, 0))
        out = sb(128, 8)
        nisa.tensor_copy(dst=out, src=a)
        b = filled(128, 8, value=2, address=(0, 0))
        nisa.tensor_tensor(dst=out, data1=out, data2=b, op=nl.add)
        return st(out)

    assert (nki_sim.run(kernel, X, strict=True).result == 3).all()


def test_neighbours_in_partition_or_byte_do_not_overlap():
    def kernel(x):
        a = filled(64, 8, address=(0, 0))
        filled(64, 8, value=2, address=(64, 0))
        filled(64, 8, value=3, address=(0, 32))
        return st(a)

    assert (nki_sim.run(kernel, X, strict=True).result == 1).all()


def test_placed_tiles_leave_the_rest_to_the_others():
    def kernel(x):
        a = filled(128, 1000, address=(0, 4000))
        b = filled(128, 1000)
        c = filled(128, 1001)
        nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
        nisa.tensor_copy(dst=a[:, 0:8], src=c[:, 0:8])
        return st(a[:, 0:8])

    tiles = nki_sim.run(kernel, X, strict=True).memory.sbuf.tiles
    assert [t.placed for t in tiles[:3]] == [4000, 0, 8000]


def test_a_hand_placed_tile_counts_for_the_whole_kernel():
    def kernel(x, size):
        filled(128, size, address=(0, 0))
        t = filled(128, size)
        return st(t[:, 0:8])

    assert nki_sim.run(kernel, X, 20_000).memory.sbuf.peak == 160_000


@pytest.mark.parametrize("first", [0, 92_984])
def test_hand_placed_tiles_leave_room_to_others_before_and_after_where_it_is_scarce(first):
    def kernel(x, used_after):
        t = filled(128, 20_000)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        filled(128, 30_000, address=(0, first))
        overlapping = filled(128, 30_000, address=(0, first))
        nisa.tensor_copy(dst=overlapping[:, 0:8], src=overlapping[:, 8:16])
        again = filled(128, 25_000)
        return st((overlapping if used_after else again)[:, 0:8])

    run = nki_sim.run(kernel, X, False)
    assert run.memory.sbuf.peak == 120_000
    places = {(t.row_bytes, t.placed) for t in run.memory.sbuf.tiles}
    assert places == {(80_000, 0), (120_000, first), (100_000, 0)}
    assert [f.rule.id for f in run.findings] == []
    with pytest.raises(NkiCapacityError, match="220000 bytes"):
        nki_sim.run(kernel, X, True)


def test_memory_placed_by_hand_and_never_written_is_reported():
    def kernel(x):
        t = nl.ndarray((128, 8), dtype=nl.float32, address=(0, 64))
        return st(t)

    with pytest.warns(NkiWarning, match="never written"):
        assert np.isnan(nki_sim.run(kernel, X).result).all()


# --- placement -------------------------------------------------------------------------------------------------------

FLOAT32 = nki_sim.dtypes.TABLE["float32"]
BYTE = nki_sim.dtypes.TABLE["uint8"]


@some.composite
def allocations(draw):
    """Tiles of a run, in order of birth, some placed by hand."""
    made, step = [], 0
    for i in range(draw(some.integers(1, 40))):
        region = draw(some.sampled_from([MemoryRegion.sbuf, MemoryRegion.psum]))
        step += draw(some.integers(0, 3))
        size = draw(some.integers(1, 6000 if region is MemoryRegion.sbuf else 2100))
        dtype = draw(some.sampled_from([FLOAT32, BYTE]))
        size = max(1, size // dtype.itemsize)
        last = step + draw(some.integers(-1, 12))
        tile = Allocation.of(i, region, (draw(some.integers(1, 128)), size), dtype, "", None, "tile", None, step, last)
        made.append(tile)
    return made


@given(tiles=allocations())
@settings(max_examples=150, deadline=None)
def test_placement_keeps_its_promises(tiles):
    core = nki_sim.core("trn2")
    try:
        memory, findings = place(tiles, core)
    except NkiCapacityError as error:
        assert _peak(tiles, error) > (core.sbuf_usable_bytes if "SBUF" in str(error) else core.psum_partition_bytes)
        return
    for found in (memory.sbuf, memory.psum):
        assert found.peak == max((_alive_at(tiles, found.region, t.born) for t in tiles), default=0)
        assert found.peak <= found.limit
        used = [t for t in found.tiles if t.region is found.region]
        assert {t.id for t in used} == {t.id for t in tiles if t.region is found.region and t.last >= t.born}
        assert found.fragmented == any(d.rule.id == "memory.fragmented" for d in findings
                                       if found.region.value.upper() in d.headline)  # fmt: skip
        if found.fragmented:
            continue
        for i, a in enumerate(used):
            first, end = a.placed, a.placed + a.row_bytes
            assert first >= 0 and end <= found.limit and first % 4 == 0
            if found.region is MemoryRegion.psum:
                if a.row_bytes >= core.psum_bank_bytes:
                    assert first % core.psum_bank_bytes == 0
                else:
                    assert first // core.psum_bank_bytes == (end - 1) // core.psum_bank_bytes
            for b in used[:i]:
                together = a.born <= b.last and b.born <= a.last
                assert not together or end <= b.placed or b.placed + b.row_bytes <= first
    assert memory.sbuf.high_water <= memory.sbuf.limit


def _alive_at(tiles, region, step):
    """Bytes alive when the last tile born at ``step`` is."""
    return sum(t.row_bytes for t in tiles if t.region is region and t.born <= step <= t.last)


def _peak(tiles, error):
    region = MemoryRegion.sbuf if "SBUF" in str(error) else MemoryRegion.psum
    return max(_alive_at(tiles, region, t.born) for t in tiles)


def test_fragmented_memory_is_reported_and_no_error():
    """Three tiles of 60 % of a third each, the middle one dies, and one of half of all does not fit in a hole."""
    core = nki_sim.core("trn2")

    def tile(i, size, born, last):
        return Allocation.of(i, MemoryRegion.psum, (128, size // 4), FLOAT32, "", None, "tile", None, born, last)

    tiles = [tile(0, 1200, 0, 9), tile(1, 1200, 0, 9)]
    tiles += [tile(2 + i, 1200, 0, 9) for i in range(6)]
    tiles += [tile(8, 1200, 0, 9)]
    memory, findings = place(tiles, core)
    assert memory.psum.fragmented
    assert [d.rule.id for d in findings] == ["memory.fragmented"]
    assert sum(t.row_bytes for t in tiles) <= core.psum_partition_bytes


def test_a_run_of_a_thousand_tiles_is_placed():
    def kernel(x):
        t = ld(x)
        for _ in range(1000):
            u = sb(128, 8)
            nisa.tensor_scalar(dst=u, data=t, op0=nl.add, operand0=1.0)
            t = u
        return st(t)

    run = nki_sim.run(kernel, X, strict=True)
    assert (run.result == 1001).all()
    assert run.memory.sbuf.peak == 64 and run.memory.sbuf.high_water == 64


@pytest.mark.parametrize("target", TARGETS)
def test_tile_size_says_what_is_enforced(target):
    seen = {}

    def kernel(x):
        seen.update(
            fmax=nl.tile_size.sbuf_fmax_bytes, pmax=nl.tile_size.pmax, bank=nl.tile_size.psum_bank_fmax_bytes,
            banks=nl.tile_size.psum_num_banks, moving=nl.tile_size.gemm_moving_fmax,
            stationary=nl.tile_size.gemm_stationary_fmax, stats=nl.tile_size.bn_stats_fmax,
            raw=nl.tile_size.sbuf_size_bytes,
        )  # fmt: skip
        return st(ld(x))

    nki_sim.run(kernel, X, target=target)
    raw = {"trn1": 24, "trn2": 28, "trn3": 32}[target] * 2**20
    assert seen == {"fmax": USABLE[target], "pmax": 128, "bank": 2048, "banks": 8, "moving": 512, "stationary": 128,
                    "stats": 512, "raw": raw}  # fmt: skip
    assert math.isclose(raw / 128 / 1024, {"trn1": 192, "trn2": 224, "trn3": 256}[target])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 knows the line of a call, not its columns")
def test_tiles_of_one_line_are_named_apart():
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        left, right = nl.load(a), nl.load(a)
        nl.store(out, nl.add(left, right))
        return out

    run = nki_sim.run(kernel, np.ones((128, 8), np.float32))
    assert [a.label for a in run.program.allocations if a.region.on_chip][:2] == ["left", "right"]


def test_what_a_refused_instruction_would_use_is_alive_until_then():
    def kernel(a, b):
        w = nl.load(a)
        x = nl.load(b)
        p = nl.ndarray((64, 600), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=p, stationary=w, moving=x)

    with pytest.raises(NkiValidationError) as caught:
        nki_sim.run(kernel, np.ones((128, 64), np.float32), np.ones((128, 600), np.float32))
    w, x = (a for a in caught.value.run.program.allocations if a.region is MemoryRegion.sbuf)
    assert w.last == x.last == 1 and w.placed + w.row_bytes <= x.placed

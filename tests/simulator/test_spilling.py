"""Tiles that fit in no order: what is written to HBM meanwhile, and read again."""

import random
import warnings
from dataclasses import replace

import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import ld, ps, refused, sb, st
from nki_sim import NkiValidationError, NkiWarning
from nki_sim.errors import NkiCapacityError
from nki_sim.hw import core
from nki_sim.memory import MemoryRegion
from nki_sim.timing import advise

X = np.random.default_rng(0).standard_normal((128, 512), dtype=np.float32)
SIZE, TILES = 8192, 9
KIB = 128 * SIZE * 4 // 1024


def ring(x):
    """Goes round nine tiles twice, each the sum of itself and the next one; six fit in SBUF."""
    tiles = [nl.ndarray((128, SIZE), dtype=nl.float32, buffer=nl.sbuf, name=f"r{i}") for i in range(TILES)]
    for i, tile in enumerate(tiles):
        nisa.memset(dst=tile, value=float(i))
    for i in range(2 * TILES):
        one, other = tiles[i % TILES], tiles[(i + 1) % TILES]
        nisa.tensor_tensor(dst=one, data1=one, data2=other, op=nl.add)
    out = nl.ndarray((128, TILES), dtype=nl.float32, buffer=nl.shared_hbm)
    for i, tile in enumerate(tiles):
        nisa.dma_copy(dst=out[:, i : i + 1], src=tile[:, i : i + 1])
    return out


def sums():
    values = [float(i) for i in range(TILES)]
    for i in range(2 * TILES):
        values[i % TILES] += values[(i + 1) % TILES]
    return np.array([values] * 128, np.float32)


def spilled(kernel, *arguments, **options):
    """A run with spills, which are reported."""
    with pytest.warns(NkiWarning, match=r"memory\.spilled"):
        return nki_sim.run(kernel, *arguments, fit="compiler", **options)


def transfers(run, way):
    """The steps that a compiler adds, to HBM (``save``) or back (``reload``)."""
    return [step for step in run.program if step.plan.spill == way]


def moved(run, way):
    """Bytes of them."""
    return sum(step.operands[0].bytes for step in transfers(run, way))


# --- what is said ----------------------------------------------------------------------------------------------------


def test_an_overflow_says_how_much_would_be_spilled():
    run = spilled(ring, X)
    size = f"{moved(run, 'save') // 2**20} MiB spilled to HBM and {moved(run, 'reload') // 2**20} MiB read back"
    said = refused(ring, X)
    assert f"they fit with {size}, most of it r5 of line {ring.__code__.co_firstlineno + 2}" in said
    assert 'fit="compiler" (--fit compiler, or NKI_SIM_FIT=compiler) spills' in said
    (found,) = run.findings
    assert found.rule.id == "memory.spilled" and found.headline.startswith(
        f"SBUF overflow as written; the tiles fit with {size}"
    )


def test_a_profile_counts_what_was_spilled():
    run = spilled(ring, X)
    told = run.profile()
    assert told.spill_save_bytes == moved(run, "save") > 0 and told.spill_reload_bytes == moved(run, "reload") > 0
    assert told.hbm_read_bytes == told.spill_reload_bytes  # the kernel itself reads nothing
    assert "spilled" in str(told) and "no spills" not in str(told)
    (advice,) = [one for one in advise(told) if one.kind == "spills"]
    assert "100 % of what is read from HBM: more than 25 %" in advice.text and advice.lines


def test_an_estimate_has_the_same_spills():
    with pytest.warns(NkiWarning, match=r"memory\.spilled"):
        told = nki_sim.estimate(ring, ((128, 512), "float32"), fit="compiler")
    assert told.as_dict() == spilled(ring, X).profile().as_dict()


def test_strict_runs_refuse_spills():
    with pytest.raises(NkiValidationError, match=r"memory\.spilled"):
        nki_sim.run(ring, X, fit="compiler", strict=True)


# --- who asks --------------------------------------------------------------------------------------------------------


def test_a_kernel_that_is_called_by_itself_asks_the_environment(monkeypatch):
    kernel = nki.jit(ring)
    with pytest.raises(NkiCapacityError, match="NKI_SIM_FIT=compiler"):
        kernel(X)
    monkeypatch.setenv("NKI_SIM_FIT", "compiler")
    for _ in range(2):
        with pytest.warns(NkiWarning, match=r"memory\.spilled"):
            np.testing.assert_array_equal(kernel(X), sums())
    monkeypatch.setenv("NKI_SIM_FIT", "program")
    with pytest.raises(NkiCapacityError):
        kernel(X)


def test_what_a_run_asks_counts_more_than_the_environment(monkeypatch):
    monkeypatch.setenv("NKI_SIM_FIT", "compiler")
    with pytest.raises(NkiCapacityError):
        nki_sim.run(ring, X, fit="program")
    with pytest.warns(NkiWarning, match=r"memory\.spilled"):
        assert nki_sim.estimate(ring, ((128, 512), "float32")).spill_save_bytes


def test_another_word_in_the_environment_is_refused(monkeypatch):
    monkeypatch.setenv("NKI_SIM_FIT", "tight")
    with pytest.raises(ValueError, match=r"^NKI_SIM_FIT is 'tight': it is 'program' or 'compiler'$"):
        nki.jit(ring)(X)


# --- what is done ----------------------------------------------------------------------------------------------------


def test_what_a_spilling_run_computes_is_the_same():
    run = spilled(ring, X)
    np.testing.assert_array_equal(run.result, sums())
    out = next(a for a in run.program.allocations if a.role == "output")
    np.testing.assert_array_equal(run.replay().values(out, len(run.program)), sums())
    assert run.memory.sbuf.peak <= run.memory.sbuf.limit
    line = run.timeline("compiler")
    assert all(line.start[producer] <= line.start[consumer] for producer, consumer in line.edges)


def test_transfers_are_steps_of_the_line_that_needs_the_room():
    run = spilled(ring, X)
    first = transfers(run, "save")[0]
    assert first.text == "spill of r5 ← r5" and first.line == run.program[first.index + 1].line
    assert first.operands[0].allocation.region is MemoryRegion.private_hbm
    back = next(step for step in transfers(run, "reload") if step.text == "r5 ← spill of r5")
    held = back.operands[0].allocation
    assert (
        held is not first.operands[1].allocation and held.born == back.index > first.index == first.operands[1].allocation.last
    )


def test_a_tile_that_is_written_over_leaves_for_nothing():
    def kernel(x):
        tiles = [sb(128, 20_000) for _ in range(3)]
        with nl.no_reorder():
            for _ in range(2):
                for tile in tiles:  # filled and used up: nobody needs what is in the others
                    nisa.memset(dst=tile, value=1.0)
                    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
        return st(tiles[-1][:, 0:8])

    run = spilled(kernel, X)
    assert run.findings[0].headline.endswith("the tiles fit where a tile has no place while nobody needs what it holds")
    assert (run.result == 2).all()
    assert not transfers(run, "save") and not transfers(run, "reload")
    out = next(a for a in run.program.allocations if a.role == "output")
    assert (run.replay().values(out, len(run.program)) == 2).all()


def test_a_tile_of_which_some_is_kept_is_saved():
    def kernel(x):
        tiles = [sb(32, 20_000) for _ in range(3)]
        with nl.no_reorder():
            for i, tile in enumerate((*tiles, tiles[-1])):
                nisa.memset(dst=tile, value=float(i))
            for i in range(6):  # with 255 a row stays as it is: none is written
                nisa.nc_stream_shuffle(dst=tiles[i % 3], src=tiles[(i + 1) % 3], shuffle_mask=[255] * 32)
        out = nl.ndarray((3 * 32, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        for i, tile in enumerate(tiles):
            nisa.dma_copy(dst=out[i * 32 : (i + 1) * 32], src=tile[:, 0:8])
        return out

    run = spilled(kernel, X)
    assert run.result[::32, 0].tolist() == [0, 1, 3]
    out = next(a for a in run.program.allocations if a.role == "output")
    np.testing.assert_array_equal(run.replay().values(out, len(run.program)), run.result)


def test_what_was_saved_and_only_read_since_is_not_saved_again():
    def kernel(x):
        tiles = [sb(128, 20_000) for _ in range(3)]
        for tile in tiles:
            nisa.memset(dst=tile, value=1.0)
        total = sb(128, 8)
        nisa.memset(dst=total, value=0.0)
        with nl.no_reorder():
            for _ in range(3):
                for tile in tiles:
                    nisa.tensor_tensor(dst=total, data1=total, data2=tile[:, 0:8], op=nl.add)
        return st(total)

    run = spilled(kernel, X)
    assert (run.result == 9).all()
    saved = [step.operands[1].allocation.label for step in transfers(run, "save")]
    assert len(saved) <= 3 < len(transfers(run, "reload"))


@pytest.mark.parametrize("what", ["address", "one instruction", "loop", "psum", "later"])
def test_what_cannot_be_spilled_is_refused(what):
    def kernel(x):
        where = {"address": lambda i: (0, i * 80_000)}.get(what, lambda i: None)
        big = 36_000 if what == "one instruction" else 20_000
        tiles = [nl.ndarray((128, big), dtype=nl.float32, buffer=nl.sbuf, address=where(i)) for i in range(2)]
        more = sb(128, 20_000)
        banks = [ps(128, 512) for _ in range(TILES if what == "psum" else 1)]

        def body(_=None):
            made = [nisa.memset(dst=tile, value=1.0) for tile in (*tiles, more, *banks)]
            for _ in range(2):
                nisa.tensor_tensor(dst=tiles[0], data1=tiles[0], data2=tiles[1], op=nl.add)
                last = nisa.tensor_tensor(dst=more[:, 0:8], data1=more[:, 0:8], data2=more[:, 8:16], op=nl.add)
                for bank in banks:
                    nisa.tensor_tensor(dst=tiles[0][:, 0:512], data1=tiles[0][:, 0:512], data2=bank, op=nl.add)
            if what == "later":
                made[0].depends_on(last)

        if what == "loop":
            nl.fori_loop(0, 2, body)
        else:
            body()
        return st(tiles[0][:, 0:8])

    assert "they fit" not in refused(kernel, X, fit="compiler")


def test_numbers_of_steps_follow():
    def kernel(x):
        tiles = [sb(128, 20_000) for _ in range(3)]
        for tile in tiles:
            nisa.memset(dst=tile, value=1.0)
        first = nisa.tensor_tensor(dst=tiles[0], data1=tiles[0], data2=tiles[1], op=nl.add, name="first")
        with nl.no_reorder():
            second = nisa.tensor_tensor(dst=tiles[2], data1=tiles[2], data2=tiles[1], op=nl.add, name="second")
            nisa.tensor_tensor(dst=tiles[1], data1=tiles[1], data2=tiles[0], op=nl.add, name="third")
        second.depends_on(first)
        never = sb(128, 8)
        nisa.tensor_copy(dst=tiles[0][:, 0:8], src=never)  # a finding, whose step is told
        return st(tiles[1][:, 0:8])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NkiWarning)
        run = nki_sim.run(kernel, X, fit="compiler")
    assert transfers(run, "reload")
    named = {step.name: step for step in run.program if step.name}
    assert [named[name].instruction for name in ("first", "second", "third")] == ["tensor_tensor"] * 3
    assert (named["first"].index, named["second"].index) in run.timeline().edges
    assert [list(block) for block in run.machine.ordered] == [[named["second"].index, named["third"].index]]
    unwritten = next(f for f in run.findings if f.rule.id == "ndarray.uninitialised")
    assert run.program[unwritten.step].instruction == "tensor_copy"


def test_another_order_for_banks_and_spills_for_tiles():
    def kernel(x):
        sums = [ps(128, 512) for _ in range(9)]
        for i, held in enumerate(sums):
            nisa.memset(dst=held, value=float(i))
        tiles = [sb(128, 20_000) for _ in range(3)]
        with nl.no_reorder():
            for i, tile in enumerate(tiles):
                nisa.memset(dst=tile, value=float(i))
        for i, held in enumerate(sums):
            nisa.tensor_tensor(dst=tiles[i % 3][:, 0:512], data1=tiles[i % 3][:, 0:512], data2=held, op=nl.add)
        out = nl.ndarray((128, 3), dtype=x.dtype, buffer=nl.shared_hbm)
        with nl.no_reorder():
            for i in range(6):
                one, other = tiles[i % 3], tiles[(i + 1) % 3]
                nisa.tensor_tensor(dst=one, data1=one, data2=other, op=nl.add)
            for i, tile in enumerate(tiles):
                nisa.dma_copy(dst=out[:, i : i + 1], src=tile[:, 0:1])
        return out

    run = spilled(kernel, X)
    values = [float(i + i + (i + 3) + (i + 6)) for i in range(3)]
    for i in range(6):
        values[i % 3] += values[(i + 1) % 3]
    assert run.result[0].tolist() == values
    assert " before " in run.findings[0].headline and "spilled to HBM" in run.findings[0].headline
    assert run.memory.psum.peak <= run.memory.psum.limit and run.memory.sbuf.peak <= run.memory.sbuf.limit
    out = next(a for a in run.program.allocations if a.role == "output")
    np.testing.assert_array_equal(run.replay().values(out, len(run.program)), run.result)


def test_each_core_spills_its_own():
    def kernel(x):
        tiles = [sb(128, 20_000) for _ in range(3 - nl.program_id(0))]  # only core 0 has too many
        for i, tile in enumerate(tiles):
            nisa.memset(dst=tile, value=float(i + 1))
        for i in range(4):
            one, other = tiles[i % len(tiles)], tiles[(i + 1) % len(tiles)]
            nisa.tensor_tensor(dst=one, data1=one, data2=other, op=nl.add)
        out = nl.ndarray((256, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        first = nl.program_id(0) * 128
        nisa.dma_copy(dst=out[first : first + 128], src=tiles[0][:, 0:8])
        return out

    run = spilled(nki_sim.jit(kernel)[2], X)
    assert run.result[0, 0] == 3 + 5 and run.result[128, 0] == 3 + 5  # 1+2, 2+3, 3+3, 3+5; and 1+2, 2+3, 3+5
    assert {step.plan.core for step in transfers(run, "reload")} == {0}
    assert all(memory.sbuf.peak <= memory.sbuf.limit for memory in run.memories)


ROOMY = replace(core("trn2"), sbuf_usable_bytes=1 << 21)


@given(seed=some.integers(0, 10**6), tiles=some.integers(4, 16), steps=some.integers(8, 60))
@settings(max_examples=150, deadline=None)
def test_the_record_with_spills_computes_what_the_kernel_does(seed, tiles, steps):
    """Kernels that write all of a tile, or some, or add another one, in an order drawn by chance."""
    draw = random.Random(seed)
    sizes = [draw.choice([4_000, 12_000, 20_000]) for _ in range(tiles)]
    least = min(sizes)
    acts = [(draw.choice(["all", "some", "add", "copy"]), draw.randrange(tiles), draw.randrange(tiles)) for _ in range(steps)]

    def kernel(x):
        held = [sb(1, size) for size in sizes]
        for i, tile in enumerate(held):
            nisa.memset(dst=tile, value=float(i))
        for number, (act, i, j) in enumerate(acts):
            half = held[i][:, least // 2 : least]
            if act == "all":
                nisa.memset(dst=held[i], value=float(number))
            elif act == "some":
                nisa.memset(dst=half, value=float(-number))
            elif act == "add":
                nisa.tensor_tensor(dst=half, data1=half, data2=held[j][:, 0 : least - least // 2], op=nl.add)
            else:
                nisa.tensor_copy(dst=half, src=held[j][:, 0 : least - least // 2])
        out = nl.ndarray((tiles, least), dtype=x.dtype, buffer=nl.shared_hbm)
        for i, tile in enumerate(held):
            nisa.dma_copy(dst=out[i : i + 1], src=tile[:, 0:least])
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NkiWarning)
        run, again = (nki_sim.run(kernel, X[:1, :1], target="trn2", fit="compiler") for _ in range(2))
        wanted = nki_sim.run(kernel, X[:1, :1], target=ROOMY).result
    np.testing.assert_array_equal(run.result, wanted)
    assert run.memory.sbuf.peak <= run.memory.sbuf.limit
    assert run.program.listing() == again.program.listing()
    saved = set()
    for step in run.program:
        if step.plan.spill == "save":
            saved.add(step.operands[0].allocation.id)
        elif step.plan.spill == "reload":
            assert step.operands[1].allocation.id in saved
    out = next(a for a in run.program.allocations if a.role == "output")
    np.testing.assert_array_equal(run.replay().values(out, len(run.program)), wanted)
    for order in ("program", "compiler"):
        line = run.timeline(order)
        assert all(line.start[producer] <= line.start[consumer] for producer, consumer in line.edges)


def test_a_load_that_fits_is_left_alone():
    run = nki_sim.run(lambda x: st(ld(x)), X, fit="compiler")
    assert not transfers(run, "save") and not run.findings

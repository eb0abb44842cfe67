"""Tiles that do not fit as a kernel is written, and the order in which they do."""

import random
import warnings

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
from nki_sim.memory import MemoryRegion

X = np.random.default_rng(0).standard_normal((128, 512), dtype=np.float32)
BANKS = 9


def nine_banks(x):
    """Fills nine banks of PSUM, which has eight, and empties them afterwards."""
    out = nl.ndarray((BANKS * 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    sums, tile = [ps(128, 512) for _ in range(BANKS)], ld(x)
    for i, held in enumerate(sums):
        nisa.memset(dst=held, value=float(i))
    for i, held in enumerate(sums):
        evicted = sb(128, 512)
        nisa.tensor_tensor(dst=evicted, data1=held, data2=tile, op=nl.add)
        nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128], src=evicted)
    return out


WANTED = np.concatenate([X + i for i in range(BANKS)])


def fitted(kernel, *arguments, **options):
    """A run in an order that a compiler may take, which is reported."""
    with pytest.warns(NkiWarning, match=r"memory\.relisted"):
        return nki_sim.run(kernel, *arguments, fit="compiler", **options)


# --- what is said ----------------------------------------------------------------------------------------------------


def test_an_overflow_names_an_order_in_which_the_tiles_fit():
    said = refused(nine_banks, X)
    assert "PSUM overflow: 9 tiles alive need 18432 bytes per partition > 16384" in said
    assert "they fit with tensor_tensor (line 30) before memset (line 27)" in said
    assert 'fit="compiler"' in said


def test_an_overflow_says_nothing_of_an_order_where_there_is_none():
    def kernel(x):
        ring = [ps(128, 512) for _ in range(BANKS)]
        for held in ring:
            nisa.memset(dst=held, value=1.0)
        for i in range(2 * BANKS):  # around it twice: after the first time all of them are still needed
            nisa.tensor_scalar(dst=ring[i % BANKS], data=ring[(i + 1) % BANKS], op0=nl.add, operand0=1.0)
        evicted = sb(128, 512)
        nisa.tensor_copy(dst=evicted, src=ring[-1])
        return st(evicted)

    assert "they fit" not in refused(kernel, X)
    assert "they fit" not in refused(kernel, X, fit="compiler")


@pytest.mark.parametrize("what", ["no_reorder", "depends_on", "loop"])
def test_an_order_that_the_kernel_asks_for_is_kept(what):
    def kernel(x):
        sums, out = [ps(128, 512) for _ in range(BANKS)], nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)

        def fill(_=None):
            fills = [nisa.memset(dst=held, value=1.0, engine=nisa.engine.vector) for held in sums]
            for held in sums:
                evicted = sb(128, 512)
                copied = nisa.tensor_copy(dst=evicted, src=held, engine=nisa.engine.vector)
                if what == "depends_on":
                    copied.depends_on(*fills, kind=nisa.dependency.runtime)
                nisa.dma_copy(dst=out, src=evicted)

        if what == "no_reorder":
            with nl.no_reorder():
                fill()
        elif what == "loop":
            nl.fori_loop(0, 2, fill)
        else:
            fill()
        return out

    assert "they fit" not in refused(kernel, X, fit="compiler")


def test_strict_runs_refuse_another_order():
    with pytest.raises(NkiValidationError, match=r"memory\.relisted"):
        nki_sim.run(nine_banks, X, fit="compiler", strict=True)


@pytest.mark.parametrize("called", [nki_sim.run, nki_sim.estimate])
def test_there_are_two_ways_to_fit(called):
    with pytest.raises(ValueError, match="fit is 'spill': it is 'program' or 'compiler'"):
        called(nine_banks, X, fit="spill")


def test_what_fits_as_it_is_written_stays_as_it_is():
    def kernel(x):
        return st(ld(x))

    assert nki_sim.run(kernel, X, fit="compiler").program.listing() == nki_sim.run(kernel, X).program.listing()


# --- what is done ----------------------------------------------------------------------------------------------------


def alive_in_time(run, order, region, core=0):
    """The most bytes of tiles that are in use at one time, from the first start to the last result of each."""
    line, program = run.timeline(order), run.program
    begin, end = {}, {}
    for step in range(len(program)):
        for number, _ in program.raw(step):
            if number >= 0 and program.allocations[number].region is region and program.allocations[number].core == core:
                begin[number] = min(begin.get(number, np.inf), line.start[step])
                end[number] = max(end.get(number, 0.0), line.end[step])
    size = {number: program.allocations[number].row_bytes for number in begin}
    return max(sum(size[b] for b in begin if begin[b] <= begin[a] < end[b]) for a in begin)


def test_what_another_order_does_is_the_same():
    run = fitted(nine_banks, X)
    np.testing.assert_array_equal(run.result, WANTED)
    assert run.memory.psum.peak == 8 * 2048
    assert run.memory.peak_banks == 8
    assert run.counts == {"dma_copy": BANKS + 1, "memset": BANKS, "tensor_tensor": BANKS}
    evicting = next(step.index for step in run.program if step.instruction == "tensor_tensor")
    assert [step.instruction for step in run.program].index("memset") < evicting < BANKS + 1
    (found,) = run.findings
    assert found.rule.id == "memory.relisted"
    assert found.headline == "PSUM overflow as written; the tiles fit with tensor_tensor (line 30) before memset (line 27)"
    out = next(a for a in run.program.allocations if a.role == "output")
    np.testing.assert_array_equal(run.replay().values(out, len(run.program)), WANTED)


@pytest.mark.parametrize("order", ["program", "compiler"])
def test_no_tile_comes_in_before_there_is_room(order):
    run = fitted(nine_banks, X)
    assert alive_in_time(run, order, MemoryRegion.psum) <= 8 * 2048
    line = run.timeline(order)
    for producer, consumer in line.edges:
        assert line.start[producer] <= line.start[consumer]


def test_a_kernel_called_by_itself_keeps_its_order():
    with pytest.raises(NkiCapacityError, match="PSUM overflow"):
        nki_sim.jit(nine_banks)(X)


def test_each_core_has_its_own_rooms():
    def kernel(x):
        out = nl.ndarray((2 * BANKS * 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
        first, sums = nl.program_id(0) * BANKS, [ps(128, 512) for _ in range(BANKS)]
        for i, held in enumerate(sums):
            nisa.memset(dst=held, value=float(i))
        for i, held in enumerate(sums):
            evicted = sb(128, 512)
            nisa.tensor_copy(dst=evicted, src=held)
            nisa.dma_copy(dst=out[(first + i) * 128 : (first + i + 1) * 128], src=evicted)
        return out

    run = fitted(nki_sim.jit(kernel)[2], X)
    np.testing.assert_array_equal(run.result[::128, 0], [*range(BANKS), *range(BANKS)])
    assert [memory.psum.peak for memory in run.memories] == [8 * 2048] * 2
    for core in (0, 1):
        assert alive_in_time(run, "compiler", MemoryRegion.psum, core) <= 8 * 2048


def test_a_load_waits_until_what_needs_less_is_done():
    """Three tiles of SBUF that do not fit together are loaded one after the other, then used."""

    def kernel(x):
        out = nl.ndarray((3 * 128, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        large = [sb(128, 20_000) for _ in range(3)]
        for tile in large:
            nisa.dma_copy(dst=tile[:, 0:512], src=x)
        for i, tile in enumerate(large):
            nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128], src=tile[:, 0:8])
        return out

    run = fitted(kernel, X)
    np.testing.assert_array_equal(run.result, np.concatenate([X[:, :8]] * 3))
    assert run.memory.sbuf.peak == 160_000


def test_tiles_are_filled_when_they_are_needed():
    """Both addends and the sum do not fit together, and the sum needs each: the second is loaded when the first is used up."""

    def kernel(x):
        first, second, total = sb(128, 20_000), sb(128, 20_000), sb(128, 15_000)
        for tile in (first, second):
            nisa.dma_copy(dst=tile[:, 0:512], src=x)
        nisa.memset(dst=total[:, 0:512], value=1.0)
        for tile in (first, second):
            nisa.tensor_tensor(dst=total[:, 0:512], data1=total[:, 0:512], data2=tile[:, 0:512], op=nl.add)
        return st(total[:, 0:512])

    run = fitted(kernel, X)
    np.testing.assert_array_equal(run.result, np.float32(1) + X + X)
    assert run.memory.sbuf.peak == 140_000
    first = kernel.__code__.co_firstlineno
    assert run.findings[0].headline.endswith(f"the tiles fit with memset (line {first + 4}) before dma_copy (line {first + 3})")


def test_a_sum_in_registers_is_not_broken_up():
    """What would make room for the second half of a sum begins another sum."""

    def kernel(x):
        first, second, out = sb(128, 1), sb(128, 1), nl.ndarray((128, 3), dtype=x.dtype, buffer=nl.shared_hbm)
        kept, other, half = [sb(128, 20_000) for _ in range(3)]

        def summed(tile, command, result):
            part = tile[:, 0:8]
            nisa.activation(dst=part, op=nl.copy, data=part, reduce_op=nl.add, reduce_cmd=command, reduce_res=result)

        nisa.memset(dst=kept, value=1.0)
        summed(kept, nisa.reduce_cmd.reset_reduce, first)
        nisa.memset(dst=other, value=2.0)
        nisa.memset(dst=half, value=3.0)
        summed(half, nisa.reduce_cmd.reduce, first)
        summed(other, nisa.reduce_cmd.reset_reduce, second)
        nisa.tensor_tensor(dst=first, data1=first, data2=kept[:, 0:1], op=nl.add)
        for i, result in enumerate((first, second, kept[:, 0:1])):
            nisa.dma_copy(dst=out[:, i : i + 1], src=result)
        return out

    with pytest.warns(NkiWarning, match=r"memory\.(relisted|spilled)"):
        run = nki_sim.run(kernel, X, fit="compiler")
    assert run.result[0].tolist() == [8 + 24 + 1, 16, 1]
    out = next(a for a in run.program.allocations if a.role == "output")
    np.testing.assert_array_equal(run.replay().values(out, len(run.program)), run.result)


@given(seed=some.integers(0, 10**6), tiles=some.integers(6, 24), size=some.sampled_from([20_000, 30_000, 45_000]))
@settings(max_examples=60, deadline=None)
def test_an_order_that_is_found_keeps_all_dependencies_and_the_capacity(seed, tiles, size):
    """Kernels that make tiles of tiles, in an order drawn by chance."""
    draw = random.Random(seed)
    made = [(sorted(draw.sample(range(i), min(i, draw.randint(0, 2)))), draw.random() < 0.5) for i in range(tiles)]

    def kernel(x):
        out, held = nl.zeros((tiles * 128, 4), dtype=x.dtype, buffer=nl.shared_hbm), []
        for i, (sources, _) in enumerate(made):
            held.append(sb(128, size // 4))
            nisa.memset(dst=held[i], value=float(i))
            for source in sources:
                nisa.tensor_tensor(dst=held[i], data1=held[i], data2=held[source], op=nl.add)
        for i, (_, stored) in enumerate(made):
            if stored:  # the others are never read again, or by other tiles only
                nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128], src=held[i][:, 0:4])
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NkiWarning)
        try:
            run, again = (nki_sim.run(kernel, X, fit="compiler") for _ in range(2))
        except NkiCapacityError as error:
            assert "they fit" not in str(error)
            return
    values = []
    for i, (sources, _) in enumerate(made):
        values.append(np.float32(i + sum(values[source] for source in sources)))
    for i, (_, stored) in enumerate(made):
        assert np.all(run.result[i * 128 : (i + 1) * 128] == (values[i] if stored else 0))
    assert run.memory.sbuf.peak <= run.memory.sbuf.limit
    for order in ("program", "compiler"):
        assert alive_in_time(run, order, MemoryRegion.sbuf) <= run.memory.sbuf.limit
    assert again.program.listing() == run.program.listing()
    out = next(a for a in run.program.allocations if a.role == "output")
    np.testing.assert_array_equal(run.replay().values(out, len(run.program)), run.result)

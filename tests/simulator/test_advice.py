"""What a profile says in words: the bound, whom engines wait for, what could be otherwise, each with its lines."""

from __future__ import annotations

import fidelity_kernels as kernels
import nki.isa as nisa
import nki.language as nl
import nki_sim
from nki_sim.timing import advise


def told(kernel, *args, **how):
    found = {}
    for advice in advise(nki_sim.estimate(kernel, *args, **how)):
        found.setdefault(advice.kind, []).append(advice)
    return found


def line_of(kernel, text):
    """The line of a kernel's source in which a text stands."""
    function = getattr(kernel, "function", kernel)
    import inspect

    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


LHS, RHS = ((2048, 512), "bfloat16"), ((2048, 1024), "bfloat16")


def test_issuing_transfers_bounds_what_loads_every_operand():
    found = told(kernels.tiled, LHS, RHS, target="trn2")
    (bound,) = found["bound"]
    assert "issuing DMA instructions bounds the kernel: 264 transfers" in bound.text
    assert bound.lines[0] == line_of(kernels._load, "nisa.dma_copy")
    (short,) = found["short rows"]
    assert short.text.startswith("264 of 264 transfers bring less than 2 KiB")


def test_the_tensor_engine_bounds_what_loads_once():
    found = told(kernels.blocked, ((4096, 2048), "bfloat16"), ((4096, 4096), "bfloat16"), target="trn2")
    (bound,) = found["bound"]
    assert bound.text.startswith("the tensor engine bounds the kernel: active 9")
    assert bound.lines == (line_of(kernels.blocked, "nisa.nc_matmul"),)
    assert "short rows" not in found and "transposes" not in found


def test_moving_data_bounds_what_only_copies():
    def copy(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in range(0, x.shape[0], 128):
            nl.store(out[i : i + 128], nl.load(x[i : i + 128]))
        return out

    (bound,) = told(copy, ((4096, 8192), "float32"))["bound"]
    assert bound.text.startswith("moving data bounds the kernel: DMA is active ") and bound.text.endswith("GB/s")


def waiting(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.activation(dst=tile, op=nl.exp, data=tile)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nl.store(out, tile)
    return out


def test_a_chain_is_bound_by_waiting_and_says_for_whom():
    found = told(waiting, ((128, 512), "float32"))
    (bound,) = found["bound"]
    assert "instructions wait for each other" in bound.text and "% dma" in bound.text
    gap = found["gap"][0]
    assert "before step 3 for step 2, activation" in gap.text
    assert gap.lines == (line_of(waiting, "nisa.activation"),)
    assert "idle, or nearly: tensor" in found["idle"][0].text


def test_many_transposes_are_named():
    def turned(x):
        out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
        tile, total = nl.load(x), nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        across = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_transpose(dst=across, data=tile)
        nisa.nc_matmul(dst=total, stationary=nl.copy(across), moving=tile)
        nl.store(out, nl.copy(total))
        return out

    (found,) = told(turned, ((128, 128), "float32"))["transposes"]
    assert found.text.startswith("transposes are 50 % of the tensor engine's operations")
    assert found.lines == (line_of(turned, "nc_transpose"),)


def test_work_of_a_busy_engine_could_move_to_an_idle_one():
    def copies(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        a, b = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        for _ in range(20):
            nisa.tensor_copy(dst=b, src=a)
            nisa.tensor_copy(dst=a, src=b)
        nl.store(out, b)
        return out

    found = told(copies, ((128, 2048), "float32"), target="trn1")
    (movable,) = found["movable"]
    assert movable.text.startswith("40 tensor_copy on the vector engine (active 9")
    assert "engine=nisa.engine.scalar (active 0 %)" in movable.text
    assert str(movable).endswith(f"(lines {line_of(copies, 'dst=b')}, {line_of(copies, 'dst=a')})")


def test_an_empty_program_says_nothing():
    def nothing(x):
        return x

    with_nothing = nki_sim.trace(nothing, ((4, 4), "float32"))
    assert advise(with_nothing.profile()) == []

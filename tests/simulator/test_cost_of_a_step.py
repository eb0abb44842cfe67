"""What a step costs, in figures that do not depend on the machine: Python calls, temporaries, bytes of the record.

A step here is the third of its kind, so its plan is known. The limits are what it takes today.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from array import array
from collections.abc import Callable
from typing import Any

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from nki_sim import context

Tiles = dict[str, Any]
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")
BF16 = ml_dtypes.bfloat16

INSTRUCTIONS: dict[str, Callable[[Tiles], Any]] = {
    "dma_copy": lambda t: nisa.dma_copy(dst=t["a"], src=t["x"]),
    "dma_copy to float32": lambda t: nisa.dma_copy(dst=t["c"], src=t["x"]),
    "nc_matmul": lambda t: nisa.nc_matmul(dst=t["sum"], stationary=t["stationary"], moving=t["b"], accumulate=False),
    "nc_matmul, adding": lambda t: nisa.nc_matmul(dst=t["sum"], stationary=t["stationary"], moving=t["b"], accumulate=True),
    "nc_matmul, evicted": lambda t: (
        nisa.nc_matmul(dst=t["sum"], stationary=t["stationary"], moving=t["b"], accumulate=False),
        nisa.tensor_copy(dst=t["c"], src=t["sum"]),
    ),
    "tensor_tensor": lambda t: nisa.tensor_tensor(dst=t["c"], data1=t["a"], data2=t["b"], op=nl.add),
    "tensor_scalar": lambda t: nisa.tensor_scalar(dst=t["c"], data=t["a"], op0=nl.multiply, operand0=0.5),
    "activation": lambda t: nisa.activation(dst=t["c"], op=nl.tanh, data=t["a"]),
    "activation, summing": lambda t: nisa.activation_reduce(
        dst=t["c"], op=nl.exp, data=t["a"], bias=t["column"], scale=0.5, reduce_op=nl.add, reduce_res=t["column"]
    ),
    "scalar_tensor_tensor": lambda t: nisa.scalar_tensor_tensor(
        dst=t["c"], data=t["a"], op0=nl.multiply, operand0=t["column"], op1=nl.add, operand1=t["b"]
    ),
}


class Fresh(dict[str, Any]):
    """Tiles that are sliced anew each time they are used."""

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name)[:, 0:32]


def run(name: str, shape: tuple[int, int], around: Callable[[Callable[[], Any]], None], made: type[Tiles] = dict,
        dtype: Any = np.float32, cores: int = 1) -> None:  # fmt: skip
    """A kernel that issues an instruction three times, the last time, on its last core, within ``around``."""
    issue = INSTRUCTIONS[name]

    @nki.jit
    def kernel(x: Any) -> Any:
        out = nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm)
        a, b, c = nl.load(x), nl.load(x), nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=c, value=0.0)
        total = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
        if name.startswith("nc_matmul"):
            nisa.nc_matmul(dst=total, stationary=a[:, 0 : shape[0]], moving=b, accumulate=False)
        column = nl.zeros((shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
        tiles = made(x=x, a=a, b=b, c=c, column=column, sum=total, stationary=a[:, 0 : shape[0]])
        for _ in range(2):
            issue(tiles)
        if nl.program_id(0) == cores - 1:
            around(lambda: issue(tiles))
            nl.store(out, c)
        return out

    nki_sim.run(kernel[cores], np.ones(shape, dtype))


def python_calls(name: str, shape: tuple[int, int], made: type[Tiles], cores: int = 1) -> list[str]:
    """The simulator's functions that one step enters."""
    seen: list[str] = []
    run(name, shape, lambda step: seen.extend(python_functions(step)), made, cores=cores)
    return seen


def python_functions(step: Callable[[], Any]) -> list[str]:
    """The simulator's functions that are entered; not comprehensions, which are calls on some versions of Python only."""
    seen: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        ours = frame.f_globals.get("__name__", "").startswith("nki_sim")
        if event == "call" and ours and frame.f_code.co_name not in COMPREHENSIONS:
            seen.append(frame.f_code.co_name)

    before = sys.getprofile()
    gc.disable()  # what it would end is not the step's
    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(before)
        gc.enable()
    return seen


@pytest.mark.parametrize(
    ("name", "whole", "sliced"),
    [
        ("dma_copy", 6, 10),
        ("nc_matmul", 8, 14),
        ("nc_matmul, adding", 11, 17),
        ("nc_matmul, evicted", 22, 33),
        ("tensor_tensor", 5, 11),
        ("tensor_scalar", 7, 11),
        ("activation", 8, 12),
    ],
)
def test_python_calls(name: str, whole: int, sliced: int) -> None:
    assert len(python_calls(name, (32, 32), dict)) <= whole
    assert len(python_calls(name, (32, 64), Fresh)) <= sliced


@pytest.mark.parametrize(("name", "limit"), [("dma_copy", 18), ("nc_matmul", 9), ("tensor_tensor", 6), ("activation", 9)])
def test_python_calls_on_one_of_two_cores(name: str, limit: int) -> None:
    """Of one that touches HBM races are looked for; others take one call more than on one core."""
    assert len(python_calls(name, (32, 32), dict, cores=2)) <= limit


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "limit"),
    [
        ("dma_copy", (128, 2048), np.float32, 0),
        ("dma_copy", (128, 2048), BF16, 0),
        ("dma_copy to float32", (128, 2048), BF16, 1),
        ("tensor_tensor", (128, 2048), np.float32, 0),
        ("tensor_tensor", (128, 2048), BF16, 3),
        ("tensor_scalar", (128, 2048), np.float32, 0),
        ("activation", (128, 2048), np.float32, 0),
        ("activation, summing", (128, 2048), np.float32, 0.25),
        ("scalar_tensor_tensor", (128, 2048), np.float32, 0),
        ("nc_matmul", (128, 512), np.float32, 0),
        ("nc_matmul, adding", (128, 512), np.float32, 0),
        ("nc_matmul, adding", (128, 512), BF16, 1.25),
    ],
)
def test_temporaries(name: str, shape: tuple[int, int], dtype: Any, limit: float) -> None:
    """In float32 tiles of the operands' shape, to a sixteenth."""
    peaks: list[int] = []

    def around(step: Callable[[], Any]) -> None:
        tracemalloc.start()
        try:
            step()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()

    run(name, shape, around, dtype=dtype)
    assert peaks[0] / (4 * shape[0] * shape[1]) < limit + 1 / 16


@pytest.mark.parametrize(
    ("name", "limit"),
    [("dma_copy", 80), ("nc_matmul", 80), ("tensor_tensor", 64), ("tensor_scalar", 88), ("activation", 104)],
)
def test_bytes_of_the_record(name: str, limit: int) -> None:
    """The arrays of the program, and a pointer for each of its constants."""
    sizes: list[int] = []

    def size() -> int:
        program = context.machine().program
        arrays = [value for value in vars(program).values() if isinstance(value, array)]
        return sum(len(a) * a.itemsize for a in arrays) + 8 * len(program.constants)

    def around(step: Callable[[], Any]) -> None:
        before = size()
        step()
        sizes.append(size() - before)

    run(name, (32, 32), around)
    assert sizes[0] <= limit


def test_a_part_that_is_written_is_not_asked_about_again() -> None:
    """Of a tile that is never whole, each part is looked at once: its elements stay written."""
    asked: list[int] = []

    @nki.jit
    def kernel(x: Any) -> Any:
        out = nl.ndarray((32, 32), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((32, 64), dtype=x.dtype, buffer=nl.sbuf)
        part, inner = tile[:, 0:32], tile[:, 8:16]
        nisa.dma_copy(dst=part, src=x)
        for _ in range(3):
            calls = python_functions(lambda: nisa.tensor_copy(dst=part[:, 0:8], src=inner))
            asked.append(sum(name in ("before_read", "before_write") for name in calls))
        nisa.dma_copy(dst=out, src=part)
        nisa.tensor_copy(dst=tile[:, 32:40], src=tile[:, 28:36])
        return out

    with pytest.warns(nki_sim.NkiWarning, match="of which 128 of 256 elements were never written"):
        nki_sim.run(kernel, np.ones((32, 32), np.float32))
    assert asked == [2, 0, 0]

"""A kernel with many settings: one profile for each, on as many processes as there are."""

from __future__ import annotations

import inspect
import itertools
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, TextIO

import cloudpickle
from nki_sim.errors import NkiError
from nki_sim.estimate import estimate
from nki_sim.hw import NeuronCore
from nki_sim.importer import install
from nki_sim.kernel import Kernel, as_kernel, run
from nki_sim.timing import Order, Profile

Row = dict[str, Any]
Measure = Literal["estimate", "run"]

COLUMNS = (
    "total_time", "steps", "mfu", "hfu", "mbu", "arithmetic_intensity", "hbm_read_bytes", "hbm_write_bytes",
    "dma_transfer_count", "dma_transfer_average_bytes", "model_flops",
)  # fmt: skip
"""What a row has of a profile, besides the active percent of each engine."""


@dataclass(frozen=True)
class _Job:
    """One setting, to be measured in whatever process."""

    kernel: Kernel | Callable[..., Any]
    args: tuple[Any, ...]
    setting: dict[str, Any]
    target: str | NeuronCore | None
    order: Order
    measure: Measure

    def __call__(self) -> Row:
        try:
            found = self._profile()
        except NkiError as error:  # a setting that does not fit is a result, not the end of the sweep
            return {**self.setting, "error": str(error).partition("\n")[0]}
        active = {f"{name}_active_percent": engine.active_percent for name, engine in found.engines.items()}
        return {**self.setting, **{name: getattr(found, name) for name in COLUMNS}, **active, "error": ""}

    def _profile(self) -> Profile:
        if self.measure == "estimate":
            return estimate(self.kernel, *self.args, target=self.target, order=self.order, **self.setting)
        finished = run(self.kernel, *self.args, target=self.target, keep_inputs=False, **self.setting)
        return finished.profile(self.order)


def sweep(
    kernel: Kernel | Callable[..., Any],
    grid: Mapping[str, Sequence[Any]],
    /,
    *args: Any,
    executor: Executor | None = None,
    target: str | NeuronCore | None = None,
    order: Order = "compiler",
    measure: Measure = "estimate",
    progress: bool | TextIO = True,
) -> list[Row]:
    """Profile a kernel for every combination of some of its parameters.

    >>> rows = sweep(matmul, {"tile_n": [128, 256, 512]}, ((4096, 8192), "bfloat16"), ((8192, 512), "bfloat16"))
    >>> pandas.DataFrame(rows).sort_values("total_time")

    Args:
        kernel: a kernel, from a module or from a notebook.
        grid: values by parameter name; the last name varies fastest.
        args: the kernel's other arguments, as for :func:`nki_sim.estimate`, or arrays for ``measure="run"``.
        executor: where to work, any ``concurrent.futures.Executor``; by default a process for each core of this machine.
        target, order: as for :func:`nki_sim.estimate`.
        measure: ``estimate`` traces shapes, ``run`` computes as well.
        progress: show a bar on standard error, or on the stream given.

    Returns:
        One dict for each combination, in the grid's order: the parameters, numbers of the profile, and ``error``, which is
        empty or the first line of what the setting broke.

    Raises:
        ValueError: an empty grid, a name that is no parameter of the kernel, or another ``measure``.
    """
    if measure not in ("estimate", "run"):
        raise ValueError(f"measure is {measure!r}: it is 'estimate' or 'run'")
    _check_names(kernel, grid)
    settings = list(_settings(grid))
    jobs = [_Job(kernel, args, setting, target, order, measure) for setting in settings]
    bar = _Bar(len(jobs), sys.stderr if progress is True else progress or None)
    with ExitStack() as stack:
        pool = executor or stack.enter_context(_processes(len(jobs)))
        futures: list[Future[Row]] = [pool.submit(_work, packed) for packed in _packed(jobs)]
        stack.callback(lambda: [future.cancel() for future in futures])
        for done, _ in enumerate(_finished(futures), 1):
            bar.show(done)
        return [future.result() for future in futures]


def _processes(jobs: int) -> Executor:
    """Fresh processes, not forks of this one: a notebook's has threads, which a fork would lose."""
    return ProcessPoolExecutor(min(jobs, os.cpu_count() or 1), multiprocessing.get_context("spawn"))


def _packed(jobs: list[_Job]) -> Iterator[bytes]:
    """Jobs as bytes, kernels of a notebook included, which no other process could import."""
    for job in jobs:
        yield cloudpickle.dumps(job)


def _work(packed: bytes) -> Row:
    """Do a job that this computer, or the user's cluster, was handed by :func:`sweep`."""
    install()
    job: _Job = cloudpickle.loads(packed)  # from the process that called sweep, never from a file
    return job()


def _check_names(kernel: Kernel | Callable[..., Any], grid: Mapping[str, Sequence[Any]]) -> None:
    parameters = inspect.signature(as_kernel(kernel).function).parameters
    wrong = [name for name in grid if name not in parameters]
    if wrong and not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        raise ValueError(f"the kernel has no parameter {', '.join(wrong)}; it has {', '.join(parameters)}")


def _settings(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    if not grid or not all(len(values) for values in grid.values()):
        raise ValueError(f"the grid {dict(grid)!r} is empty: give each parameter at least one value")
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _finished(futures: list[Future[Row]]) -> Iterator[Any]:
    """As they finish, where the executor's futures are those of the standard library; else in their order."""
    if all(isinstance(future, Future) for future in futures):
        yield from as_completed(futures)
        return
    for future in futures:
        yield future.result()


class _Bar:
    """``[####    ] 12 of 24`` on one line."""

    WIDTH = 32

    def __init__(self, total: int, stream: TextIO | None):
        self._total, self._stream = total, stream

    def show(self, done: int) -> None:
        if self._stream is None:
            return
        filled = self.WIDTH * done // self._total
        end = "\n" if done == self._total else ""
        self._stream.write(f"\r[{'#' * filled}{' ' * (self.WIDTH - filled)}] {done} of {self._total}{end}")
        self._stream.flush()

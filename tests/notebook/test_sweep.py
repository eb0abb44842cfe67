"""Sweeps: every combination, in order, on processes of this machine and on other executors."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import distributed
import ipyparallel
import numpy as np
import pandas
import pytest
from session import Notebook

from nki_nb import sweep

SOURCE = """%%nki
@nki.jit
def columns(x, tile_n=64, times=1):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for j in range(0, x.shape[1], tile_n):
        tile = nl.load(x[:, j:j + tile_n])
        for _ in range(times):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nl.store(out[:, j:j + tile_n], tile)
    return out
"""
SPEC = ((96, 1024), "float32")
GRID = {"tile_n": [64, 256, 1024], "times": [1, 3]}


@pytest.fixture
def kernel(notebook: Notebook) -> Any:
    """A kernel that no other process can import."""
    assert notebook.run(SOURCE).error is None
    return notebook.names["columns"]


def check(rows: list[dict[str, Any]]) -> None:
    assert [(row["tile_n"], row["times"]) for row in rows] == [(n, t) for n in GRID["tile_n"] for t in GRID["times"]]
    assert [row["dma_transfer_count"] for row in rows] == [32, 32, 8, 8, 2, 2]
    assert rows[0]["total_time"] > rows[2]["total_time"]
    assert {row["error"] for row in rows} == {""}


def test_a_kernel_of_a_notebook_on_processes_of_this_machine(kernel: Any) -> None:
    bar = io.StringIO()
    rows = sweep(kernel, GRID, SPEC, progress=bar)
    check(rows)
    assert bar.getvalue().endswith(f"[{'#' * 32}] 6 of 6\n")


def test_any_executor_will_do(kernel: Any) -> None:
    with ThreadPoolExecutor(2) as pool:
        check(sweep(kernel, GRID, SPEC, executor=pool, progress=False))
        ran = sweep(kernel, GRID, np.ones((96, 1024), np.float32), executor=pool, measure="run", progress=False)
    assert ran == sweep(kernel, GRID, SPEC, executor=Now(), progress=False)


class Now(Executor):
    """Does at once what it is given."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        from concurrent.futures import Future

        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def test_dask(kernel: Any) -> None:
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        check(sweep(kernel, GRID, SPEC, executor=client.get_executor(), progress=False))


@pytest.mark.filterwarnings("ignore")
def test_ipyparallel(kernel: Any) -> None:
    with ipyparallel.Cluster(n=1, log_level=40) as client:
        client.wait_for_engines(1, timeout=60)
        check(sweep(kernel, GRID, SPEC, executor=client.executor(), progress=False))


def test_a_setting_that_does_not_fit_is_a_row(kernel: Any) -> None:
    rows = sweep(kernel, {"tile_n": [512, 65536]}, ((96, 65536), "float32"), executor=Now(), progress=False)
    assert rows[0]["error"] == "" and "bytes per partition" in rows[1]["error"]


def test_rows_are_what_pandas_reads(kernel: Any) -> None:
    frame = pandas.DataFrame(sweep(kernel, GRID, SPEC, executor=Now(), progress=False))
    assert frame.sort_values("total_time").iloc[-1]["tile_n"] == 64
    assert frame["error"].eq("").all()


@pytest.mark.parametrize("grid", [{}, {"tile_n": []}])
def test_an_empty_grid_is_refused(kernel: Any, grid: dict[str, list[int]]) -> None:
    with pytest.raises(ValueError, match="at least one value"):
        sweep(kernel, grid, SPEC)


def test_another_measure_is_refused(kernel: Any) -> None:
    with pytest.raises(ValueError, match="'estimate' or 'run'"):
        sweep(kernel, GRID, SPEC, measure="guess")  # type: ignore[arg-type]


def test_a_name_that_is_no_parameter_is_refused(kernel: Any) -> None:
    with pytest.raises(ValueError, match="no parameter tile_m; it has x, tile_n, times"):
        sweep(kernel, {"tile_m": [1]}, SPEC)

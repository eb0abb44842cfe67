"""A quantised matmul step by step: packed elements are shown as the four they are, sums as those of any matmul."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import nki_sim
import numpy as np
import pytest
from nki_sim.api import nki
from nki_sim.api.nki import isa as nisa
from nki_sim.api.nki import language as nl
from nki_sim.run import Run
from samples import wave

import nki_nb
from nki_nb.report import Report
from nki_nb.stepper.feed import Feed, matrix
from nki_nb.stepper.packing import unpack
from nki_nb.stepper.still import still, still_text


@nki.jit
def quantised(a: Any, b: Any, weights: Any) -> Any:
    """Two matmuls into one sum, of operands quantised on the chip and of MXFP4 weights."""
    left, right = nl.load(a), nl.load(b)
    qa = nl.ndarray((64, 8), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
    qb = nl.ndarray((64, 20), dtype=nl.float8_e5m2_x4, buffer=nl.sbuf)
    scales = nl.zeros((64, 20), dtype=nl.uint8, buffer=nl.sbuf)
    nisa.quantize_mx(dst=qa, src=left, dst_scale=scales[:, 0:8])
    nisa.quantize_mx(dst=qb, src=right, dst_scale=scales[4:, :])
    four = nl.ndarray((64, 8), dtype=nl.float4_e2m1fn_x4, buffer=nl.sbuf)
    nisa.dma_copy(dst=four, src=weights.view(nl.float4_e2m1fn_x4))
    acc = nl.ndarray((8, 20), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul_mx(acc, qa, qb, scales[:, 0:8], scales[4:, :])
    nisa.nc_matmul_mx(acc, four, qb, scales[:, 0:8], scales[4:, :])
    out = nl.ndarray((8, 20), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(acc))
    return out


@pytest.fixture(scope="module")
def run() -> Run:
    a, b = (wave(64, n, 9).astype(ml_dtypes.bfloat16) for n in (32, 80))
    weights = (np.arange(64 * 8) * 7919 % 65536).astype(np.uint16).reshape(64, 8)
    return nki_sim.run(quantised, a, b, weights, target="trn3", strict=True)


def steps(run: Run, name: str) -> list[int]:
    return [s.index for s in run.program if s.instruction == name]


def test_a_matmul_of_packed_operands_is_a_matmul(run: Run) -> None:
    feed = Feed(run)
    first, second = steps(run, "nc_matmul_mx")
    look = feed.answer({"kind": "step", "step": second, "element": [3, 4]})
    assert look["matmul"] == {"mode": "add", "group": [first, second], "position": 1, "evicted": second + 1}
    answer = look["element"]["answer"]
    added, total = unpack(answer["added"]), unpack(answer["sum"])
    assert answer["overwrite"] == [True, False] and total[1] == np.asarray(run.result)[3, 4]
    np.testing.assert_allclose(np.cumsum(added), total, rtol=1e-5)


def test_packed_elements_are_shown_as_four(run: Run) -> None:
    feed, (_, second) = Feed(run), steps(run, "nc_matmul_mx")
    weights, moving = feed.operand(second, 1), feed.operand(second, 2)
    assert weights is not None and moving is not None
    assert (weights["dtype"], weights["shape"], weights["columns"]) == ("float4_e2m1fn_x4", [64, 8, 4], 32)
    assert (moving["dtype"], moving["shape"], moving["columns"]) == ("float8_e5m2_x4", [64, 20, 4], 80)
    assert set(np.abs(unpack(weights["values"])).flat) <= {0, 0.5, 1, 1.5, 2, 3, 4, 6}
    assert unpack(weights["bits"]).max() == 15 and weights["width"] == 1


def test_an_element_is_its_bits() -> None:
    sent = matrix(np.array([[0x7E38B801]], np.uint32), "float8_e4m3fn_x4")
    np.testing.assert_array_equal(unpack(sent["values"]), [[2.0**-9, -1, 1, 448]])
    np.testing.assert_array_equal(unpack(sent["bits"]), [[0x01, 0xB8, 0x38, 0x7E]])
    four = matrix(np.array([[0xF721]], np.uint16), "float4_e2m1fn_x4")
    np.testing.assert_array_equal(unpack(four["values"]), [[0.5, 1, 6, -6]])
    np.testing.assert_array_equal(unpack(four["bits"]), [[1, 2, 7, 15]])


def test_every_picture_of_it_can_be_drawn(run: Run, tmp_path: Path) -> None:
    feed = Feed(run)
    for step in range(len(run.program)):
        feed.answer({"kind": "step", "step": step})
        assert still(feed, step) and still_text(feed, step)
    for allocation in run.program.allocations:
        feed.tensor(allocation.id, len(run.program))
    assert "nc_matmul_mx" in nki_nb.save_html(run, tmp_path / "run.html").read_text(encoding="utf-8")
    assert "nc_matmul_mx" in still_text(nki_nb.view(run).feed, steps(run, "nc_matmul_mx")[0])
    assert "nc_matmul_mx" in Report.of(run)._repr_html_()

"""The data of a run, as a viewer asks for it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from samples import HOSTILE, failed, hostile_run, matmul_run, moves_run, reuse_run, softmax_run, unwritten

from nki_nb.stepper.feed import LARGEST_TILE, MOST_TEXTS, Feed, matrix
from nki_nb.stepper.packing import as_text, unpack


def matmuls(feed: Feed) -> list[int]:
    program = feed.run.program
    return [i for i in range(len(program)) if program.plan_at(i).instruction == "nc_matmul"]


def test_the_overview_is_json_and_has_one_number_per_step() -> None:
    feed = Feed(matmul_run())
    overview = feed.overview()
    json.dumps(as_text(overview), allow_nan=False)
    steps = overview["steps"]
    assert steps == len(feed.run.program) == 38
    assert [len(unpack(overview[name])) for name in ("plan", "site")] == [steps, steps]
    assert {len(unpack(v)) for v in overview["time"].values() if isinstance(v, dict)} == {steps}


def test_touches_are_the_operands() -> None:
    feed = Feed(softmax_run())
    overview, program = feed.overview(), feed.run.program
    flat, at = unpack(overview["touch"]), 0
    for i in range(len(program)):
        count = overview["plans"][program.plan_number(i)]["touches"]
        mine, at = flat[at : at + count], at + count
        assert {int(t) >> 1 for t in mine} == {a for a, _ in program.raw(i) if a >= 0}
        assert {int(t) >> 1 for t in mine if t & 1} == {program.raw(i)[k][0] for k in program.plan_at(i).writes}
    assert at == len(flat)


def test_places_name_lines_and_no_folders() -> None:
    feed = Feed(matmul_run())
    overview = feed.overview()
    assert [f["name"] for f in overview["files"]] == ["kernels.py"]
    sites = unpack(overview["site"])
    assert [overview["sites"][n - 1]["line"] for n in sites] == [s.line for s in feed.run.program]
    assert "nisa.nc_matmul" in overview["files"][0]["lines"][overview["sites"][sites[4] - 1]["line"] - 1]


def test_grids_are_the_tiles_of_the_tensors_in_hbm() -> None:
    feed = Feed(matmul_run())
    grids = feed.overview()["grids"]
    labels = {str(a.id): a.label for a in feed.run.program.allocations}
    assert {labels[number]: cuts for number, cuts in grids.items()} == {
        "lhs_t": [[128, 256], [128]],
        "rhs": [[128, 256], [512]],
        "out": [[128], [512]],
    }


def test_a_step_has_its_operands_and_their_boxes() -> None:
    detail = Feed(matmul_run()).step(10)
    assert (detail["instruction"], detail["engine"], detail["line"]) == ("dma_copy", "dma", 40)
    out, y = detail["operands"][:2]
    assert (out["label"], out["box"], out["writes"]) == ("out[0:128, 0:512]", [[0, 127], [0, 511]], True)
    assert (y["label"], y["pattern"], y["writes"]) == ("y", [[512, 128], [1, 512]], False)
    assert detail["dma"]["descriptors"] == 128 and detail["dma"]["efficiency"] == 1.0


@pytest.mark.parametrize(("step", "kinds"), [(0, ["copy"]), (1, ["gather"]), (2, ["broadcast"]), (3, ["transpose"])])
def test_transfers_are_told_apart(step: int, kinds: list[str]) -> None:
    detail = Feed(moves_run()).step(step)
    assert detail["dma"]["kinds"] == kinds


def test_a_look_holds_what_its_picture_needs() -> None:
    feed = Feed(matmul_run())
    look = feed.answer({"kind": "step", "step": 6, "element": [3, 4]})
    assert {(v["operand"], v["after"]) for v in look["values"]} == {(0, False), (0, True), (1, False), (2, False)}
    assert look["values"][0]["matrix"] == feed.operand(6, 0)
    assert look["element"] == {"row": 3, "column": 4, "answer": feed.contributions(6, 3, 4)}
    assert feed.look(6, [500, 0])["element"]["row"] == 64
    assert "element" not in feed.look(0)


def test_groups_of_matmuls() -> None:
    feed = Feed(matmul_run())
    groups = [feed.step(i)["matmul"] for i in matmuls(feed)]
    assert [g["position"] for g in groups] == [0, 1, 2] * 4
    assert groups[0]["group"] == groups[2]["group"] == [4, 6, 8]
    assert [g["mode"] for g in groups[:3]] == ["overwrite", "add", "add"]
    assert groups[0]["evicted"] == 9


def test_contributions_add_up_to_the_product() -> None:
    run = matmul_run()
    feed = Feed(run)
    answer = feed.contributions(8, 5, 7)
    lhs, rhs = (run.inputs[n].astype(np.float64) for n in sorted(run.inputs))
    parts = [lhs[k : k + 128, 5] @ rhs[k : k + 128, 7] for k in (0, 128, 256)]
    assert answer["steps"] == [4, 6, 8] and answer["overwrite"] == [True, False, False]
    np.testing.assert_allclose(unpack(answer["added"]), parts, atol=1e-3)
    np.testing.assert_allclose(unpack(answer["sum"]), np.cumsum(parts), atol=1e-3)
    np.testing.assert_allclose(unpack(answer["sum"])[-1], run.result[5, 7], rtol=1e-6)  # a fused group adds in another order


def test_the_first_nan() -> None:
    with pytest.warns(Warning, match="rsqrt"):
        feed = Feed(reuse_run())
    assert feed.run.program[feed.first_nan()].instruction == "activation"
    assert feed.opening == feed.run.findings[0].step
    assert Feed(matmul_run()).first_nan() is None


def test_a_failed_run_says_where_it_stopped() -> None:
    error = failed()
    overview = Feed(error.run, error.diagnosis).overview()
    assert overview["start"] == overview["steps"] - 1 == 1
    assert overview["failure"]["step"] == 2
    assert overview["allocations"][overview["failure"]["tile"]]["label"] == "acc"


def test_a_read_of_unwritten_memory_names_its_tile() -> None:
    error = unwritten()
    overview = Feed(error.run, error.diagnosis).overview()
    assert overview["allocations"][overview["failure"]["tile"]]["label"] == "empty"


def test_names_stay_as_they_are() -> None:
    overview = Feed(hostile_run()).overview()
    assert HOSTILE in {a["label"] for a in overview["allocations"]}


@pytest.mark.parametrize(
    "values", [np.array([[1.5, -0.0], [np.nan, np.inf]], np.float32), np.arange(6, dtype=np.int8).reshape(2, 3)]
)
def test_a_matrix_keeps_values_and_bits(values: Any) -> None:
    sent = matrix(values, values.dtype.name)
    np.testing.assert_array_equal(unpack(sent["values"]), values.astype(np.float32))
    if values.dtype == np.float32:
        assert sent["bits"] is None
    else:
        np.testing.assert_array_equal(unpack(sent["bits"]), values.view(np.uint8))


def test_of_a_large_tensor_a_window_is_sent() -> None:
    sent = matrix(np.zeros((4096, 1024), np.float32), "float32")
    assert sent["shown"] == [LARGEST_TILE // 1024, 1024] and (sent["rows"], sent["columns"]) == (4096, 1024)


REQUESTS: list[dict[str, Any]] = [
    {"kind": "overview"},
    {"kind": "step", "step": 4},
    {"kind": "texts", "start": 0, "stop": 10**9},
    {"kind": "operand", "step": 4, "operand": 0, "after": True},
    {"kind": "operand", "step": 4, "operand": 3},
    {"kind": "tensor", "allocation": 0, "step": 4},
    {"kind": "contributions", "step": 4, "row": 0, "column": 0},
    {"kind": "first_nan"},
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: r["kind"])
def test_every_answer_is_json(request_: dict[str, Any]) -> None:
    json.dumps(as_text(Feed(matmul_run()).answer(request_)), allow_nan=False)


@pytest.mark.parametrize("request_", [{"kind": "step", "step": 38}, {"kind": "step", "step": -1}, {"kind": "eval"}, {}])
def test_what_cannot_be_answered_is_refused(request_: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Feed(matmul_run()).answer(request_)


def test_texts_come_in_blocks() -> None:
    feed = Feed(matmul_run())
    assert len(feed.answer({"kind": "texts", "start": 30, "stop": 94})) == 8
    assert MOST_TEXTS >= 64

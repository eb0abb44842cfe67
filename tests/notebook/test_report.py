"""Reports, diagnoses and the page: stable, complete, escaped."""

from __future__ import annotations

import json

import nki_sim
import numpy as np
import pytest
from nki_sim.errors import Broken, NkiError, Rule, violation
from pages import read
from runs import HOSTILE, matmul_run, named, run

from nki_nb import tour
from nki_nb.check import Tolerance, compare_all
from nki_nb.diagnosis import DiagnosisView
from nki_nb.help import RuleHelp
from nki_nb.page import page
from nki_nb.report import Report, human_bytes, named_outputs

ROWS = np.ones((32, 40), np.float32)


def test_the_text_of_a_report() -> None:
    assert str(matmul_run()).splitlines() == [
        "matmul · trn2 (NeuronCore-v3) · lnc 1",
        "  out         float32 [150 × 600]",
        "  program     28 instructions: dma_copy 16 · nc_matmul 8 · tensor_copy 4",
        "  memory      SBUF 3.0 of 208.0 KiB per partition (peak, line 36; limit unverified) · PSUM 1 of 8 banks",
        "  dma         1.4 MiB written by 16 transfers",
        "  findings    none",
    ]


def test_same_run_same_bytes() -> None:
    one, two = matmul_run(), matmul_run()
    assert str(one) == str(two)
    assert one._repr_html_() == two._repr_html_()
    assert one.svg() == two.svg()
    assert json.dumps(one.as_dict()) == json.dumps(two.as_dict())


def test_a_report_is_a_run() -> None:
    report = matmul_run()
    assert isinstance(report, nki_sim.Run)
    assert report.counts["nc_matmul"] == 8 and report.outputs[0].shape == (150, 600)


def test_plain_data() -> None:
    out = np.zeros((150, 600))
    report = Report.of(matmul_run(), ("out",), compare_all(matmul_run().outputs, out, "zeros", ("out",), Tolerance()))
    data = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert data["outputs"][0]["check"]["ok"] is False
    assert data["memory"]["sbuf_limit_bytes"] == 212984
    assert "sbuf_usable_bytes" in data["memory"]["unverified"]


def test_names_of_outputs() -> None:
    class Returned:
        result = (np.zeros(1), {"a": np.zeros(2)})

    assert [n for n, _ in named_outputs(Returned())] == ["result[0]", "result[1]['a']"]  # type: ignore[arg-type]
    assert [n for n, _ in named_outputs(Returned(), ("x", "y"))] == ["x", "y"]  # type: ignore[arg-type]
    assert [n for n, _ in named_outputs(Returned(), ("x",))] == ["x[0]", "x[1]['a']"]  # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "words"), [(0, "0 bytes"), (1, "1 byte"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB")])
def test_bytes_in_words(size: int, words: str) -> None:
    assert human_bytes(size) == words


def test_users_text_is_escaped() -> None:
    report = Report.of(nki_sim.run(named, ROWS), (HOSTILE,))
    for html in (report._repr_html_(), page(HOSTILE, HOSTILE, [report])):
        assert "script" not in read(html).tags


def test_a_diagnosis_is_escaped() -> None:
    rule = Rule(HOSTILE, HOSTILE, why=HOSTILE, fix=HOSTILE, page=HOSTILE)
    found = violation(rule, Broken(HOSTILE, HOSTILE), target="trn2", instruction=HOSTILE, operand_words=HOSTILE, sites=())
    html = DiagnosisView.of(NkiError(found))._repr_html_()
    assert "script" not in read(html).tags
    assert "script" not in read(RuleHelp(HOSTILE, (rule,))._repr_html_()).tags


def test_the_page_loads_nothing() -> None:
    reports = tour.run()
    made = tour.page_of(reports)
    assert made == tour.page_of(tour.run())
    assert read(made).loads == []
    assert read(made).tags.isdisjoint({"script", "iframe", "img", "link"})
    assert all(report.ok for report in reports)


def test_a_hostile_tile_keeps_its_label_in_text() -> None:
    assert "script" in run(named, ROWS).program.listing()

"""What a saved page holds: everything for small runs, within its budget for large ones, and nothing as markup."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from samples import HOSTILE, hostile_run, many_run, matmul_run

import nki_nb
from nki_nb.stepper import saved
from nki_nb.stepper.feed import Feed


class Page(HTMLParser):
    """The elements of a page, and the text of each script."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script":
            self.scripts[-1] += data

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found


def test_a_small_run_is_complete() -> None:
    run = matmul_run()
    data = Page(saved.page(Feed(run))).data
    assert data["left_out"] == ""
    assert len(data["steps"]) == len(data["texts"]) == len(run.program)
    assert "6.0.after" in data["values"] and "6.1.before" in data["values"]
    assert "first_nan" in data


def test_equal_values_are_kept_once() -> None:
    data = saved.contents(Feed(matmul_run()), saved.BUDGET)
    assert data["values"]["4.0.after"] == data["values"]["6.0.before"]
    assert len(data["matrices"]) < len(data["values"]) / 2


@pytest.mark.parametrize("budget", [300_000, 2_000_000])
def test_the_budget_is_kept_and_said(budget: int) -> None:
    feed = Feed(matmul_run())
    text = saved.page(feed, budget)
    assert len(text.encode()) < budget * 1.05
    left_out = Page(text).data["left_out"]
    assert "without the values of" in left_out and "of 38 steps" in left_out


def test_the_step_it_opens_at_comes_first() -> None:
    feed = Feed(matmul_run())
    vars(feed)["opening"] = 0
    data = saved.contents(feed, 1_000_000)
    assert "0.0.after" in data["values"] and "37.0.after" not in data["values"]


def test_a_long_run_still_has_every_step_in_its_overview() -> None:
    run = many_run(3_000)
    text = saved.page(Feed(run), 700_000)
    assert len(text.encode()) < 700_000 * 1.05
    assert Page(text).data["overview"]["steps"] == len(run.program)


def test_text_cannot_become_markup() -> None:
    text = saved.page(Feed(hostile_run()))
    page = Page(text)
    assert page.tags.count("script") == 2 and "img" not in page.tags and "b" not in page.tags
    assert HOSTILE in {a["label"] for a in page.data["overview"]["allocations"]}


def test_the_page_may_load_nothing() -> None:
    text = saved.page(Feed(hostile_run()))
    assert "default-src 'none'" in text
    assert not {"link", "iframe", "object"} & set(Page(text).tags)


def test_writing(tmp_path: Path) -> None:
    path = matmul_run().save_html(tmp_path / "x.html", budget=1_000_000)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_same_run_saves_the_same_page() -> None:
    assert saved.page(Feed(matmul_run())) == saved.page(Feed(matmul_run()))


def test_view_is_public() -> None:
    assert "view" in nki_nb.__all__

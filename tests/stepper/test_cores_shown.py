"""Two cores in the pictures: whose step it is, both memories, a lane group each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from nki_sim.run import RunOptions
from viewing import step_of, title_of

import nki_nb
from nki_nb.memory_map import memory_map
from nki_nb.profile_view import ProfileView
from nki_nb.report import Report, as_report
from nki_nb.stepper.feed import Feed
from nki_nb.stepper.still import still
from nki_nb.timeline_view import timeline


def swap(x: Any) -> Any:
    me = nl.program_id(0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = slice(64 * me, 64 * me + 64)
    tile, got = nl.load(x[rows]), nl.ndarray((64, 32), dtype=x.dtype)
    nisa.sendrecv(src=tile, dst=got, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    nisa.dma_copy(dst=out[rows], src=got)
    nisa.core_barrier(data=out, cores=(0, 1))
    return out


def swapped() -> Report:
    x = np.arange(128 * 32, dtype=np.float32).reshape(128, 32)
    return as_report(nki.jit(swap)[2].run((x,), {}, RunOptions()))


def test_the_feed_says_whose_everything_is() -> None:
    overview = Feed(swapped()).overview()
    assert overview["cores"] == ["core 0", "core 1"]
    assert {plan["core"] for plan in overview["plans"]} == {0, 1}
    assert {a["core"] for a in overview["allocations"] if a["region"] == "sbuf"} == {0, 1}
    assert len(overview["memory"]["each"]) == 2
    assert sorted({lane.partition(":")[0] for lane in overview["time"]["lanes"]}) == ["0", "1"]


def test_an_exchange_shows_what_came() -> None:
    run = swapped()
    feed = Feed(run)
    step = next(s.index for s in run.program if s.instruction == "sendrecv")
    detail = feed.look(step)
    assert detail["dma"]["kinds"] == ["exchange"]
    names = [operand["name"] for operand in detail["operands"]]
    assert names == ["src", "dst", "received"]
    sent, came = (feed.replay.operand(step, names.index(n), after=True) for n in ("received", "dst"))
    assert sent is not None
    np.testing.assert_array_equal(came, sent)


def test_report_and_pictures() -> None:
    run = swapped()
    assert "core 1: SBUF" in str(run)
    assert "lnc 2" in str(run)
    assert {"0 DMA q0", "1 DMA q0"} <= {word for part in timeline(run).split("</text>") for word in (part.rpartition(">")[2],)}
    drawn = memory_map(run)
    assert "memory on trn2 (NeuronCore-v3), core 0" in drawn
    assert "memory on trn2 (NeuronCore-v3), core 1" in drawn
    assert "SBUF of core 1" in still(Feed(run), len(run.program) - 1)


def test_the_profile_has_each_cores_engines() -> None:
    shown = ProfileView(swapped().profile()).as_html()
    assert "core 0 dma" in shown
    assert "core 1 gpsimd" in shown


def test_walking_through_one_core(show: Callable[..., Any], tmp_path: Path) -> None:
    run = swapped()
    page = show(nki_nb.save_html(run, tmp_path / "two.html"))
    owner = [run.program.plan_at(i).core for i in range(len(run.program))]
    assert page.locator(".memory h4").all_inner_texts()[1].startswith("SBUF of core 0")
    page.select_option("select.cores", "1")
    seen = [step_of(page)]
    for _ in range(len(owner)):
        page.keyboard.press("ArrowRight")
        seen.append(step_of(page))
    mine = [i for i, core in enumerate(owner) if core == 1]
    assert list(dict.fromkeys(seen)) == mine
    assert page.locator(".row.other").count() == owner.count(0)
    assert "core 1" in page.inner_text(".where")
    assert page.locator(".memory h4").all_inner_texts()[1].startswith("SBUF of core 1")
    assert title_of(page) == "core_barrier"
    page.select_option("select.cores", "-1")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert step_of(page) == 1


@pytest.mark.parametrize("order", ["program", "compiler"])
def test_exports_name_the_lanes(order: Any, tmp_path: Path) -> None:
    profile = swapped().profile(order)
    nki_nb.save_instructions(profile, tmp_path / "two.csv")
    text = (tmp_path / "two.csv").read_text()
    assert "1: DMA q0" in text
    assert "0: gpsimd" in text

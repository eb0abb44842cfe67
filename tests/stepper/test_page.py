"""The saved page in a real browser."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import nki_sim
import numpy as np
import pytest
from nki_sim.api import nki
from nki_sim.api.nki import isa as nisa
from nki_sim.api.nki import language as nl
from samples import failed, hostile_run, many_run, matmul_run, moves_run, reuse_run, square_run
from viewing import colours_in, eventually, lines_of, row_of, step_of, title_of, written_tiles

from nki_nb import save_html
from nki_nb.report import Report
from nki_nb.stepper import saved
from nki_nb.stepper.feed import Feed

Show = Callable[..., Any]
LONG = 300_000


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[], Report]], Path]:
    """Saved pages, each made once."""
    folder, made = tmp_path_factory.mktemp("pages"), {}

    def page(run: Callable[[], Report]) -> Path:
        if run not in made:
            made[run] = run().save_html(folder / f"{run.__name__}.html")
        return made[run]

    return page


def test_stepping_forward_and_back_moves_every_pane(show: Show, pages: Any) -> None:
    run, page = matmul_run(), show(pages(matmul_run))
    program = run.program
    page.locator(".nki-stepper").focus()
    for key, step in [*(("ArrowRight", i) for i in (1, 2, 3, 4)), ("ArrowLeft", 3), ("End", 37)]:
        page.keyboard.press(key)
        assert step_of(page) == row_of(page) == step
        assert program[step].line in lines_of(page)
        assert eventually(lambda step=step: title_of(page) == program[step].instruction)
        on_chip = [o.allocation.label for o in program[step].writes() if o.allocation and o.allocation.region.on_chip]
        assert written_tiles(page) == on_chip
    page.click(".button.first")
    assert step_of(page) == 0


def test_jumps(show: Show, pages: Any) -> None:
    run, page = matmul_run(), show(pages(matmul_run), "#step=4")
    root = page.locator(".nki-stepper")
    root.press("e")
    assert step_of(page) == 6  # the next of the tensor engine
    root.press("Shift+E")
    assert step_of(page) == 4
    root.press("t")  # acc, which step 4 writes
    assert step_of(page) == 6
    assert page.locator(".tile.selected").count() == 1
    line = run.program[9].line
    page.click(f".line[data-line='{line}']")
    assert step_of(page) == 9
    root.press("n")
    assert eventually(lambda: page.inner_text(".message") == "no step makes a NaN")


def test_first_nan_and_findings(show: Show, tmp_path: Path) -> None:
    with pytest.warns(Warning, match="rsqrt"):
        run = reuse_run()
    wanted = Feed(run).first_nan()
    page = show(run.save_html(tmp_path / "reuse.html"), "#step=0")
    page.locator(".nki-stepper").press("n")
    assert eventually(lambda: step_of(page) == wanted)
    page.locator(".nki-stepper").press("Home")
    page.locator(".nki-stepper").press("f")
    assert step_of(page) == run.findings[0].step


def test_deep_links(show: Show, pages: Any) -> None:
    page = show(pages(matmul_run), "#step=17")
    assert step_of(page) == 17
    page.locator(".nki-stepper").press("ArrowRight")
    assert eventually(lambda: page.evaluate("location.hash") == "#step=18")
    page.evaluate("location.hash = '#step=5'")
    assert eventually(lambda: step_of(page) == 5)


def test_search(show: Show, pages: Any) -> None:
    page = show(pages(matmul_run))
    page.locator(".nki-stepper").press("/")
    page.keyboard.type("tensor_copy")
    page.keyboard.press("Enter")
    assert step_of(page) == 9
    page.keyboard.press("Enter")
    assert step_of(page) > 9
    page.keyboard.press("Escape")
    page.keyboard.press("Home")
    assert step_of(page) == 0


def test_play_and_pause(show: Show, pages: Any) -> None:
    page = show(pages(matmul_run))
    page.select_option(".speed", "20")
    page.locator(".nki-stepper").press(" ")
    assert eventually(lambda: step_of(page) >= 3)
    page.keyboard.press(" ")
    here = step_of(page)
    page.wait_for_timeout(150)
    assert step_of(page) == here


def test_loops_fold_and_unfold(show: Show, pages: Any) -> None:
    page = show(pages(square_run), "#step=0")
    steps = ".row:not(.fold)"
    assert page.inner_text(".row.fold .toggle").endswith("×4")
    page.evaluate("document.querySelector('.panes').style.gridTemplateRows = '300px 2000px auto'")
    assert eventually(lambda: page.locator(steps).count() == 14)
    page.click(".row.fold .toggle")
    assert eventually(lambda: page.locator(steps).count() == 56)
    page.click(".row.fold .toggle")
    page.locator(".nki-stepper").press("End")
    assert row_of(page) == 55


def test_a_matmul_shows_what_each_step_adds(show: Show, pages: Any) -> None:
    page = show(pages(matmul_run), "#step=6")
    page.wait_for_selector(".bar.now")
    assert page.locator(".bar").count() == 3
    assert page.inner_text(".bar.now .when") == "this step"
    run = matmul_run()
    values = run.replay().operand(6, 0, after=True)
    assert values is not None
    chosen = values[values.shape[0] // 2, values.shape[1] // 2]
    bits = f"0x{chosen.view(np.uint32):08X}"
    assert page.inner_text(".total code") == bits
    page.locator(".figures.pair canvas").last.press("ArrowRight")
    other = values[values.shape[0] // 2, values.shape[1] // 2 + 1]
    assert eventually(lambda: page.inner_text(".total code") == f"0x{other.view(np.uint32):08X}")


def test_hovering_shows_the_exact_value(show: Show, pages: Any) -> None:
    page = show(pages(matmul_run), "#step=0")
    canvas = page.locator(".heatmap canvas").first
    canvas.hover(position={"x": 0.4, "y": 0.4})
    expected = matmul_run().replay().operand(0, 1)
    assert expected is not None
    assert f"float32 0x{expected[0, 0].view(np.uint32):08X}" in page.locator(".heatmap figcaption").first.inner_text()


@pytest.mark.parametrize("step", range(4))
def test_transfers_are_drawn_as_what_they_are(show: Show, pages: Any, step: int) -> None:
    kind = ["copy", "gather", "broadcast", "transpose"][step]
    page = show(pages(moves_run), f"#step={step}")
    page.wait_for_selector(".kind")
    assert page.inner_text(".kind").startswith(kind)


@nki.jit
def sparse(table: Any, rows: Any, places: Any) -> Any:
    """A gather and a scatter by indices that are partly out of range."""
    index, place = nl.load(rows), nl.load(places)
    picked = nl.ndarray((8, 520), dtype=table.dtype, buffer=nl.sbuf)
    nisa.memset(picked, 0)
    nisa.dma_copy(dst=picked, src=table.vector_select(0, index), oob_mode=nisa.oob_mode.skip)
    out = nl.ndarray(table.shape, dtype=table.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out.vector_select(0, place), src=picked, oob_mode=nisa.oob_mode.skip)
    return out


@pytest.mark.parametrize(("step", "kind", "far"), [(3, "gather", "−2147483647"), (4, "scatter", "2147483647")])
def test_skipped_rows_are_said_and_labels_keep_apart(show: Show, tmp_path: Path, step: int, kind: str, far: str) -> None:
    rows, places = np.array([[7, 299, 3, 4000, 12, 12, -(2**31) + 1, 150], [7, 299, 3, 4000, 12, 13, 2**31 - 1, 150]], np.int32)
    run = nki_sim.run(sparse, np.zeros((300, 520), np.float16), rows[:, None], places[:, None], target="trn2")
    page = show(saved.write(Feed(run), tmp_path / "sparse.html"), f"#step={step}")
    page.wait_for_selector(".indices")
    assert page.inner_text(".kind").startswith(kind)
    assert "8 of 1040 bytes" in page.inner_text(".facts")
    words = page.locator(".indices text").all_text_contents()
    assert {"row 12", "row 4000: out of range", f"row {far}: out of range", "lane 3: skipped", "lane 4"} <= set(words)
    assert len(words) == len(set(words))
    assert page.locator(".indices line.wire:not(.outside)").count() == 6
    picture, *labels = page.evaluate(BOXES)
    assert all(picture[0] <= left and right <= picture[2] for left, _, right, _ in labels)
    assert not [(a, b) for a, b in combinations(labels, 2) if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_are_not_blank(show: Show, pages: Any, scheme: str) -> None:
    page = show(pages(matmul_run), "#step=6", color_scheme=scheme)
    page.wait_for_selector(".bar.now")
    page.wait_for_timeout(100)
    assert page.get_attribute(".nki-stepper", "data-theme") == scheme
    for selector in (".timeline", ".memory .sbuf", ".heatmap canvas", ".source"):
        assert colours_in(page, selector) > 8, selector


def test_a_failed_run_opens_at_the_failure(show: Show, tmp_path: Path) -> None:
    error = failed()
    page = show(saved.write(Feed(error.run, error.diagnosis), tmp_path / "failed.html"))
    assert step_of(page) == len(error.run.program) - 1
    assert error.diagnosis.headline in page.inner_text(".banner.fault")
    assert page.locator(f".line.fault[data-line='{error.diagnosis.line}']").count() == 1
    assert page.locator(".tile.refused").count() == 1


def test_what_was_written_last_and_then_refused_is_marked_as_refused(show: Show, tmp_path: Path) -> None:
    def too_wide(a: Any) -> None:
        x = nl.load(a)
        acc = nl.ndarray((64, 600), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=acc, stationary=x[:, 0:64], moving=x)

    with pytest.raises(nki_sim.NkiError) as caught:
        nki_sim.run(too_wide, np.ones((128, 600), np.float32))
    page = show(save_html(caught.value, tmp_path / "wide.html"))
    page.wait_for_selector(".tile.refused .touched")
    assert page.evaluate("getComputedStyle(document.querySelector('.tile.refused .touched')).fill") == "none"
    assert page.text_content(".tile.refused .label") == "x"


def test_names_are_text(show: Show, pages: Any) -> None:
    page = show(pages(hostile_run), "#step=0")
    page.wait_for_selector(".kind")
    assert page.evaluate("window.hacked") is None
    assert page.locator(".nki-stepper img, .nki-stepper script").count() == 0
    assert "<img src=x" in page.inner_text(".program")


def test_a_long_program(show: Show, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """300 000 instructions: what it takes to open, to draw a frame of the timeline, and to step; measured, not asserted."""
    path = saved.write(Feed(many_run(LONG)), tmp_path / "many.html")
    began = time.perf_counter()
    page = show(path, "#step=150000")
    opened = time.perf_counter() - began
    assert row_of(page) == 150_000
    page.click(".row.fold .toggle")
    assert row_of(page) == 150_000
    frames = page.evaluate(FRAMES)
    keys = page.evaluate(KEYS)
    with capsys.disabled():
        print(f"\n{LONG} instructions: page opens in {opened:.2f} s; {_measured('timeline frame', frames)}; ", end="")
        print(_measured("key to picture", keys))


def _measured(what: str, times: list[float]) -> str:
    return f"{what} median {np.median(times):.1f} ms, longest {max(times):.1f} ms"


BOXES = """() => [...document.querySelectorAll(".indices, .indices text")].map((shape) => {
    const { left, top, right, bottom } = shape.getBoundingClientRect();
    return [left, top, right, bottom];
})"""
FRAMES = """async () => {
    const canvas = document.querySelector(".timeline"), box = canvas.getBoundingClientRect(), frames = [];
    const frame = () => new Promise(requestAnimationFrame);
    for (let i = 0; i < 90; i++) {
        const deltaY = i % 60 < 30 ? -120 : 120;
        const at = {deltaY, clientX: box.left + 600, clientY: box.top + 30, cancelable: true};
        canvas.dispatchEvent(new WheelEvent("wheel", at));
        await frame(); await frame();
        frames.push(Number(canvas.dataset.frame));
    }
    return frames;
}"""
KEYS = """async () => {
    const root = document.querySelector(".nki-stepper"), times = [];
    for (let i = 0; i < 20; i++) {
        const began = performance.now();
        root.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true, cancelable: true}));
        root.offsetHeight;
        await new Promise(requestAnimationFrame);
        times.push(performance.now() - began);
    }
    return times;
}"""

"""The front end under anywidget's contract alone: no Jupyter, as in marimo, VS Code or Colab.

A plain page imports the module and calls ``render`` with no more of a model than the contract promises. Messages go to a
real widget in this process, and its answers to all views of the model, as from a kernel.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from samples import hostile_run, matmul_run
from viewing import eventually, row_of, step_of, title_of

from nki_nb.stepper.widget import StepperWidget

HARNESS = """async ({ code, css, state }) => {
    const style = document.createElement("style");
    style.textContent = css;
    document.head.append(style);
    const module = await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
    const widget = module.default;
    const hearers = new Map();
    const tell = (event, ...rest) => [...(hearers.get(event) ?? [])].forEach((hear) => hear(...rest));
    // Buffers come as parts of a bigger one, at any offset.
    const buffer = (text) => new DataView(Uint8Array.from("?" + atob(text), (c) => c.charCodeAt(0)).buffer, 1);
    const model = {
        get: (name) => state[name],
        set: (name, value) => { state[name] = value; tell(`change:${name}`); },
        save_changes: () => {},
        on: (event, hear) => { hearers.set(event, (hearers.get(event) ?? new Set()).add(hear)); },
        off: (event, hear) => { hearers.get(event)?.delete(hear); },
        send: async (content) => {
            for (const { answer, buffers } of await window.kernel(JSON.stringify(content)))
                tell("msg:custom", answer, buffers.map(buffer));
        },
    };
    await widget.initialize?.({ model });
    const ends = {};
    Object.assign(window, {
        model,
        heard: () => [...hearers.values()].reduce((all, some) => all + some.size, 0),
        show: async (name, shadow) => {
            const el = document.getElementById(name);
            const inside = shadow ? el.attachShadow({ mode: "open" }) : el;
            if (shadow) inside.append(style.cloneNode(true));
            const place = inside.appendChild(document.createElement("div"));
            ends[name] = await widget.render({ model: { ...model }, el: place }); // each view has a model object of its own
        },
        end: (name) => ends[name](),
    });
}"""


class Kernel(StepperWidget):
    """A widget whose answers stay here, and which notes what it was asked."""

    def __init__(self, *args: Any, **options: Any):
        self.asked: list[Any] = []
        self.answers: list[Any] = []
        self.broken: set[str] = set()
        super().__init__(*args, **options)

    def send(self, content: Any, buffers: Any = None) -> None:
        encoded = [base64.b64encode(data).decode("ascii") for data in buffers or []]
        self.answers.append({"answer": content, "buffers": encoded})

    def hear(self, text: str) -> list[Any]:
        """Take a message as a kernel does, and hand over what was answered."""
        content = json.loads(text)
        self.asked.append(content)
        if content["request"]["kind"] in self.broken:
            content = {"id": content["id"], "request": {"kind": "<b>broken</b>"}}
        self._handle_custom_msg(content, [])
        answers, self.answers = self.answers, []
        return answers


@pytest.fixture
def load(browser: Any, tmp_path: Path) -> Iterator[Callable[[Kernel], Any]]:
    """A page with the widget's module and places ``a`` and ``b``; an error on it, or a request to elsewhere, fails the test."""
    pages, troubles = [], []
    plain = tmp_path / "plain.html"
    plain.write_text('<!doctype html><meta charset="utf-8"><title>plain</title><div id="a"></div><div id="b"></div>')

    def loaded(kernel: Kernel) -> Any:
        page = browser.new_page(viewport={"width": 1280, "height": 820})
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda message: troubles.append(message.text) if message.type in ("error", "warning") else None)
        page.on("request", lambda request: None if request.url.startswith(("file:", "blob:")) else troubles.append(request.url))
        page.expose_function("kernel", kernel.hear)
        page.goto(plain.as_uri())
        page.evaluate(HARNESS, {"code": kernel._esm, "css": kernel._css, "state": {"step": kernel.step}})
        pages.append(page)
        return page

    yield loaded
    for page in pages:
        page.close()
    assert not troubles


def _show(page: Any, name: str = "a", *, shadow: bool = False) -> Any:
    page.evaluate("([name, shadow]) => show(name, shadow)", [name, shadow])
    return page.locator(f"#{name} .nki-stepper")


def _step(view: Any) -> int:
    return int(view.locator(".where").inner_text().split()[1])


@pytest.mark.parametrize("shadow", [False, True], ids=["in the page", "in a shadow root"])
def test_stepping_without_jupyter(load: Any, shadow: bool) -> None:
    run = matmul_run()
    page = load(Kernel(run, step=4))
    view = _show(page, shadow=shadow)
    view.focus()
    for key, step in [("ArrowRight", 5), ("ArrowRight", 6), ("ArrowLeft", 5), ("End", 37), ("Home", 0)]:
        page.keyboard.press(key)
        assert step_of(page) == row_of(page) == step
        assert eventually(lambda step=step: title_of(page) == run.program[step].instruction)


def test_a_matmul_is_shown_from_binary_answers(load: Any) -> None:
    run = matmul_run()
    view = _show(load(Kernel(run, step=6)))
    view.locator(".bar.now").wait_for()
    values = run.replay().operand(6, 0, after=True)
    assert values is not None
    chosen = values[values.shape[0] // 2, values.shape[1] // 2]
    assert view.locator(".total code").inner_text() == f"0x{chosen.view('u4'):08X}"


def test_two_views_of_a_model_do_not_mix_up_their_answers(load: Any) -> None:
    run, kernel = matmul_run(), Kernel(matmul_run(), step=0)
    page = load(kernel)
    page.evaluate("() => Promise.all([show('a'), show('b')])")
    one, other = page.locator("#a .nki-stepper"), page.locator("#b .nki-stepper")
    other.press("End")
    for step in range(1, 5):
        one.press("ArrowRight")
        other.press("ArrowLeft")
        assert (_step(one), _step(other)) == (step, 37 - step)
    for view, step in ((one, 4), (other, 33)):
        view.locator(".instruction .body:not(.stale)").wait_for()
        assert view.locator(".sentence").inner_text() == run.program[step].text
    numbers = [message["id"] for message in kernel.asked]
    assert len(set(numbers)) == len(numbers)


def test_a_view_that_is_gone_neither_asks_nor_listens(load: Any) -> None:
    kernel = Kernel(matmul_run(), step=0)
    page = load(kernel)
    gone, left = _show(page, "a"), _show(page, "b")
    gone.press(" ")  # playing
    page.evaluate("end('a')")
    assert gone.count() == 0 and page.evaluate("heard()") == 1
    left.locator(".instruction .body:not(.stale)").wait_for()
    page.wait_for_timeout(300)  # what comes next has been asked for
    before = len(kernel.asked)
    page.wait_for_timeout(1200)  # two steps of playing
    assert len(kernel.asked) == before
    left.press("End")
    assert eventually(lambda: left.locator(".instruction .body:not(.stale)").count() == 1) and len(kernel.asked) > before
    page.evaluate("end('b')")
    assert page.evaluate("heard()") == 0
    assert page.inner_html("#b") == "<div></div>"
    again = _show(page, "b")
    assert _step(again) == 0


def test_a_view_that_goes_while_it_waits(load: Any) -> None:
    page = load(Kernel(matmul_run(), step=0))
    _show(page)
    press = "key => document.querySelector('.nki-stepper').dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }))"
    page.evaluate(f"() => {{ const press = {press}; press('End'); press('n'); press('ArrowLeft'); end('a'); }}")
    page.wait_for_timeout(200)
    assert page.locator(".nki-stepper").count() == 0


def test_the_step_of_the_model_is_where_a_view_opens(load: Any) -> None:
    page = load(Kernel(matmul_run(), step=4))
    open_already = _show(page, "a")
    page.evaluate("model.set('step', 9)")
    assert _step(_show(page, "b")) == 9
    assert _step(open_already) == 4


def test_an_error_of_the_kernel_is_shown_as_text(load: Any) -> None:
    kernel = Kernel(matmul_run(), step=0)
    kernel.broken = {"step"}
    page = load(kernel)
    view = _show(page)
    wrong = "ValueError: unknown request '<b>broken</b>'"
    assert eventually(lambda: wrong in view.locator(".instruction").inner_text())
    view.press("ArrowRight")
    assert _step(view) == 1
    kernel.broken = set()
    view.press("ArrowRight")
    assert eventually(lambda: title_of(page) == matmul_run().program[2].instruction and wrong not in view.inner_text())


def test_a_run_that_cannot_be_had_is_said(load: Any) -> None:
    kernel = Kernel(matmul_run())
    kernel.broken = {"overview"}
    page = load(kernel)
    assert "cannot be shown: ValueError: unknown request '<b>broken</b>'" in _show(page).inner_text()
    page.evaluate("end('a')")
    assert page.evaluate("heard()") == 0


def test_names_are_text(load: Any) -> None:
    page = load(Kernel(hostile_run(), step=0))
    view = _show(page)
    view.locator(".kind").wait_for()
    assert page.evaluate("window.hacked") is None
    assert view.locator("img, script, b:has-text('hacked')").count() == 0
    assert "<img src=x" in view.locator(".program").inner_text()


def test_the_next_step_in_the_same_direction_is_asked_for_ahead(load: Any) -> None:
    kernel = Kernel(matmul_run(), step=4)
    page = load(kernel)
    view = _show(page, "a")

    def steps() -> list[int]:
        page.evaluate("0")  # what the page has asked meanwhile is heard now
        return [message["request"]["step"] for message in kernel.asked if message["request"]["kind"] == "step"]

    view.press("ArrowRight")
    assert eventually(lambda: steps()[-2:] == [5, 6])
    before = len(steps())
    view.press("ArrowRight")
    assert eventually(lambda: steps()[before:] == [7])
    view.press("ArrowLeft")
    view.press("ArrowLeft")
    assert eventually(lambda: steps()[-1] == 3)

"""The viewer in a notebook: an anywidget that answers what its front end asks, and nothing before."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets
from nki_sim.errors import Diagnosis
from nki_sim.run import Run

from nki_nb.stepper.bundle import script, style
from nki_nb.stepper.feed import Feed
from nki_nb.stepper.packing import apart
from nki_nb.stepper.still import still, still_text

_traits: Any = traitlets


class StepperWidget(anywidget.AnyWidget):
    """Step through a run: source, program, memory, instruction and time.

    The synchronised traits hold the viewer's code and a step number; data goes in custom messages when asked for.

    Args:
        run: a finished run, or the part of one before a failure.
        step: where to open; at what was found wrong, or the first step, when not given.
        failure: the diagnosis that ended the run, if one did.
    """

    _esm = script()
    _css = style()
    step = _traits.Int(None, allow_none=True).tag(sync=True)

    def __init__(self, run: Run, step: int | None = None, failure: Diagnosis | None = None):
        self.feed = Feed(run, failure)
        super().__init__(step=step)
        self.on_msg(self._asked)

    def _asked(self, _: Any, content: Any, buffers: Any) -> None:
        """Answer one message; whatever goes wrong with it is answered too."""
        held = content.get("held") if isinstance(content, dict) else None
        answer, arrays = apart(reply(self.feed, content), held if isinstance(held, list) else ())
        self.send(answer, arrays)

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The widget, and for readers without a kernel a still picture and a text, the same every time."""
        shown = super()._repr_mimebundle_(**options)
        data, metadata = shown if isinstance(shown, tuple) else (shown or {}, {})
        at = self.feed.opening if self.step is None else self.step
        still_views = {"image/svg+xml": still(self.feed, at), "text/plain": still_text(self.feed, at)}
        return {**data, **still_views}, metadata


def reply(feed: Feed, content: Any) -> dict[str, Any]:
    """The answer to one message of the viewer: ``{id, answer}``, or ``{id, error}`` with what went wrong in words."""
    number = content.get("id") if isinstance(content, dict) else None
    try:
        return {"id": number, "answer": feed.answer(content["request"])}
    except Exception as error:  # noqa: BLE001 - the viewer shows it; a notebook would show nothing
        return {"id": number, "error": f"{type(error).__name__}: {error}"}

"""A diagnosis as the notebook shows it: HTML with the text as fallback, and a traceback without anybody's insides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from nki_sim.errors import Diagnosis, NkiError, NkiWarning
from nki_sim.source import CELL_PREFIX, Site

from nki_nb.markup import escape

_BOX = "border-left:4px solid #d55e00;padding:4px 12px;margin:4px 0;font-size:13px;line-height:1.45"
_PRE = "background:none;color:inherit;margin:6px 0;padding:0;font-family:monospace;white-space:pre;overflow-x:auto"
_CELL = "text-align:left;vertical-align:top;padding:1px 12px 1px 0;border:none;background:none"


@dataclass(frozen=True)
class DiagnosisView:
    """One diagnosis under the name of its exception; displays as HTML or text."""

    error: str
    diagnosis: Diagnosis
    text: str

    @classmethod
    def of(cls, error: NkiError | NkiWarning) -> DiagnosisView:
        return cls(type(error).__name__, error.diagnosis, str(error))

    def __str__(self) -> str:
        return f"{self.error}: {self.text}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return as_html(self.error, self.diagnosis)

    @property
    def headline(self) -> str:
        """The first line: what is wrong, in a sentence."""
        return str(self).partition("\n")[0]


def as_html(error: str, diagnosis: Diagnosis) -> str:
    """The diagnosis as HTML that takes its text colour from the page around it."""
    subject = f"{diagnosis.instruction}: " if diagnosis.instruction else ""
    target = f" ({diagnosis.target})" if diagnosis.target else ""
    parts = [f"<div><b>{escape(error)}</b>: {escape(subject + diagnosis.headline + target)}</div>", *_source(diagnosis)]
    rows = "".join(_row(label, words) for label, words in diagnosis.fields())
    table = f'<table style="border-collapse:collapse"><tbody>{rows}</tbody></table>' if rows else ""
    return f'<div style="{_BOX}">{"".join(parts)}{table}</div>'


def _source(diagnosis: Diagnosis) -> Iterator[str]:
    site = diagnosis.site
    if site is None:
        return
    yield f'<div style="opacity:.7">{escape(site.place)}</div>'
    excerpt = site.excerpt(argument=diagnosis.operand or None)
    if excerpt:
        lines = (f"<b>{escape(line)}</b>" if line.startswith("  →") else escape(line) for line in excerpt)
        yield f'<pre style="{_PRE}">' + "\n".join(lines) + "</pre>"
    if diagnosis.operand_words:
        yield f"<div><code>{escape(diagnosis.operand)}</code>: {escape(diagnosis.operand_words)}</div>"
    for outer in diagnosis.sites[1:4]:
        yield f'<div style="opacity:.7">called from {escape(outer.place)}</div>'


def _row(label: str, words: str) -> str:
    shown = escape(words)
    if label == "page":
        shown = f'<a href="{shown}">{shown}</a>'
    elif label == "rule":
        shown = f"<code>{shown}</code> · <code>%nki help {shown}</code>"
    return f'<tr style="background:none"><td style="{_CELL};opacity:.65">{label}</td><td style="{_CELL}">{shown}</td></tr>'


def offer(error: BaseException) -> None:
    """Let the display of a diagnosis show the run up to it, step by step, where one was under way."""
    if isinstance(error, NkiError) and error.run is not None:
        from nki_nb import view

        error.stepper = view(error)  # type: ignore[attr-defined]


def offered(error: BaseException) -> Any:
    """What :func:`offer` offered, or ``None``."""
    return getattr(error, "stepper", None)


# -- other exceptions ------------------------------------------------------------------------------------------------

_INSIDES = ("nki_sim", "nki_nb")


def shorten(error: BaseException) -> None:
    """Let IPython show an exception of a cell's own code with the cell's lines only.

    ``_render_traceback_`` is IPython's protocol for that; the exception's real traceback stays for ``%debug``.
    """
    lines = list(cell_traceback(error, error.__traceback__))
    error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]


def cell_traceback(error: BaseException, traceback: TracebackType | None) -> Iterator[str]:
    """The exception in one line, then the user's frames, innermost first."""
    yield f"{type(error).__name__}: {error}"
    sites = list(_sites(traceback))
    if sites:
        yield ""
        yield f"  {sites[-1].place}"
        yield from sites[-1].excerpt()
        yield from (f"  called from {site.place}" for site in reversed(sites[:-1]))


def _sites(traceback: TracebackType | None) -> Iterator[Site]:
    """Frames from the first that is a cell's, without this project's own and without installed libraries."""
    inside = False
    while traceback is not None:
        code = traceback.tb_frame.f_code
        inside = inside or code.co_filename.startswith(CELL_PREFIX)
        ours = str(traceback.tb_frame.f_globals.get("__name__", "")).partition(".")[0] in _INSIDES
        if inside and not ours and "site-packages" not in code.co_filename:
            yield Site(code, traceback.tb_lasti)
        traceback = traceback.tb_next

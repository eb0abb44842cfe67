"""Into and out of a shell: the magics, completion of their options, and how diagnoses and runs display."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from nki_sim.errors import NkiError, NkiWarning

from nki_nb import completion
from nki_nb.check import CheckError
from nki_nb.diagnosis import DiagnosisView, offered
from nki_nb.magic import NkiMagics
from nki_nb.shell import display

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def register(shell: Any) -> None:
    """Give a shell the magics, completion of their options, and the display of diagnoses."""
    shell.register_magics(NkiMagics)
    shell.set_hook("complete_command", completion.complete, str_key="%%nki")
    shell.set_hook("complete_command", completion.complete, str_key="%nki")
    shell.set_custom_exc((NkiError, NkiWarning, CheckError), show_error)
    for kind, displays in DISPLAYS.items():
        for mime, show in displays.items():
            shell.display_formatter.formatters[mime].for_type(kind, show)


def unregister(shell: Any) -> None:
    """Take away what :func:`register` gave."""
    manager = shell.magics_manager
    magics = manager.registry.pop(NkiMagics.__name__, None)
    if isinstance(magics, NkiMagics):
        magics.forget_target()
    for where in ("line", "cell"):
        manager.magics[where].pop("nki", None)
    shell.set_custom_exc((), None)
    for kind, displays in DISPLAYS.items():
        for mime in displays:
            shell.display_formatter.formatters[mime].pop(kind, None)


def _report(run: Any) -> Any:
    from nki_nb.report import as_report

    return as_report(run)


def _profile(profile: Any) -> Any:
    from nki_nb.profile_view import ProfileView

    return ProfileView(profile)


DISPLAYS: dict[str, dict[str, Callable[..., Any]]] = {
    "nki_sim.run.Run": {
        "text/plain": lambda run, printer, cycle: printer.text(str(_report(run))),
        "text/html": lambda run: _report(run)._repr_html_(),
    },
    "nki_sim.timing.profile.Profile": {
        "text/plain": lambda profile, printer, cycle: printer.text(str(_profile(profile))),
        "text/html": lambda profile: _profile(profile).as_html(),
    },
}
"""How a run or a profile that a plain cell made with ``nki_sim`` displays, by the name of its class: it is loaded when there is
one, and so is what shows it."""


def show_error(
    shell: InteractiveShell,
    kind: type[BaseException],
    error: BaseException,
    traceback: TracebackType | None,
    tb_offset: int | None = None,
) -> None:
    """Show a diagnosis as HTML, and the exception itself in one line: its traceback leads only into the simulator."""
    headline = f"{kind.__name__}: {error}"
    if isinstance(error, (NkiError, NkiWarning)):
        view = DiagnosisView.of(error)
        headline = view.headline
        display(view)
        if offered(error) is not None:
            display(offered(error))
    error._render_traceback_ = lambda: [headline]  # type: ignore[attr-defined]
    shell.showtraceback((kind, error, traceback))

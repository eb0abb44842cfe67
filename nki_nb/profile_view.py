"""A profile as a table with its findings: text, HTML and plain data. Times are estimates, and it says so."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from nki_sim.timing import Advice, Order, Profile, advise
from nki_sim.timing.profile import format_time

from nki_nb.markup import escape
from nki_nb.report import CELL_STYLE, MONO_STYLE, TABLE_STYLE
from nki_nb.sizes import human_bytes

ORDERS = {
    "compiler": "compiler: of an engine's instructions that could start, the first one does, as a compiler may arrange them",
    "program": "program: every engine takes its instructions in the order of the program",
}
"""The orders that a profile may have, in words."""

ENGINE_TERMS = ("instruction_count", "instruction_time", "active_time", "active_percent")
SHARES = ("mfu", "hfu", "mfu_max", "mbu")


@dataclass(frozen=True)
class ProfileView:
    """A profile as it is shown."""

    profile: Profile

    @cached_property
    def findings(self) -> list[Advice]:
        """What the profile says in words, with the lines that cause it."""
        return advise(self.profile)

    def __str__(self) -> str:
        found = [f"- {advice}" for advice in self.findings] or ["- none"]
        return "\n".join([str(self.profile), f"order {ORDERS[self.profile.order]}", "findings", *found])

    def as_dict(self) -> dict[str, Any]:
        """Profile and findings, ready for JSON."""
        return {"profile": self.profile.as_dict(), "findings": [asdict(advice) for advice in self.findings]}

    def as_html(self) -> str:
        """Terms and values, engines, and findings; colours are those of the page around it."""
        profile = self.profile
        head = f"<b>{escape(profile.kernel)}</b> · {escape(profile.core)} · {escape(profile.order)} order · estimated"
        rows = "".join(_row([_term(term), escape(words)]) for term, words in self._terms())
        engines = "".join(_row(cells) for cells in self._engines())
        found = "".join(f"<li>{escape(advice)}</li>" for advice in self.findings) or "<li>none</li>"
        return (
            f'<div>{head}</div><table style="{TABLE_STYLE}"><tbody>{engines}</tbody></table>'
            f'<table style="{TABLE_STYLE}"><tbody>{rows}</tbody></table>'
            f'<div>findings<ul style="margin:2px 0">{found}</ul></div>'
            f'<div style="opacity:.65">order {escape(ORDERS[profile.order])}</div>'
        )

    def _terms(self) -> Iterator[tuple[str, str]]:
        """The profiler's terms and their values in words."""
        for term, value in self.profile.as_dict().items():
            if term not in ("kernel", "target", "order", "engines", "cores"):
                yield term, _words(term, value)

    def _engines(self) -> Iterator[list[str]]:
        yield [_term("engine"), *map(_term, ENGINE_TERMS)]
        names = self.profile.program.cores if self.profile.cores else ("",)
        for core, engines in zip(names, self.profile.cores or (self.profile.engines,), strict=True):
            for name, engine in engines.items():
                if engine.instruction_count:
                    yield [escape(f"{core} {name}".strip()), *(escape(_words(t, getattr(engine, t))) for t in ENGINE_TERMS)]


def _words(term: str, value: float) -> str:
    if term.endswith("_time"):
        return format_time(value)
    if term in SHARES:
        return f"{100 * value:.2f} %"
    if term.endswith("_percent"):
        return f"{value:.1f} %"
    if term.endswith("_bytes"):
        return human_bytes(round(value))
    return f"{value:.1f} flops per byte" if term == "arithmetic_intensity" else f"{value:,}".replace(",", " ")


def _term(term: str) -> str:
    return f'<span style="opacity:.65">{escape(term)}</span>'


def _row(cells: list[str]) -> str:
    return (
        '<tr style="background:none">'
        + "".join(f'<td style="{CELL_STYLE};{MONO_STYLE}">{cell}</td>' for cell in cells)
        + "</tr>"
    )


def export(profile: Profile, perfetto: Path | None, csv: Path | None, parquet: Path | None) -> None:
    """Write a profile's files, those that are named.

    Raises:
        MissingExtraError: a file needs a package that is not installed.
        OSError: a file cannot be written.
    """
    from nki_nb import instructions, pftrace

    if perfetto is not None:
        pftrace.save_perfetto(profile, perfetto)
    if csv is not None:
        instructions.write_csv(profile, csv)
    if parquet is not None:
        instructions.write_parquet(profile, parquet)


class OptionError(ValueError):
    """The options of ``%nki profile`` cannot be read; the message says why."""


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionError(message)


def read_options(words: list[str]) -> tuple[Order, bool, str]:
    """The order, whether JSON is wanted, and the call whose kernels are meant.

    Raises:
        OptionError: options besides ``--order`` and ``--json``, or both a call and ``--json``.
    """
    parser = _Parser(prog="%nki profile", add_help=False)
    add_order(parser)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("call", nargs="*")
    options = parser.parse_intermixed_args(words)
    if options.call and options.json:
        raise OptionError("--json is of the last run's profile")
    return options.order, options.json, " ".join(options.call)


def add_order(parser: ArgumentParser) -> None:
    """Give a parser ``--order``."""
    words = "in which instructions are taken: what a compiler may arrange (default), or as they stand"
    parser.add_argument("--order", choices=list(ORDERS), default="compiler", help=words)

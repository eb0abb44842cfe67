"""One self-contained HTML page of several runs: reports, memory maps and programs. Nothing is fetched from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from nki_nb.markup import escape
from nki_nb.memory_map import memory_map
from nki_nb.program_listing import program_listing
from nki_nb.report import Report

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 860px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.2em; margin-top: 2em; }
svg { max-width: 100%; height: auto; display: block; margin: 12px 0; }
pre { overflow-x: auto; }
""".strip()


def page(title: str, intro: str, reports: Sequence[Report]) -> str:
    """The page as one string."""
    sections = "\n".join(section(report) for report in reports)
    return (
        "<!DOCTYPE html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>\n'
        f"<h1>{escape(title)}</h1>\n<p>{escape(intro)}</p>\n{sections}\n</body></html>\n"
    )


def section(report: Report) -> str:
    """One run: its report and its pictures."""
    parts = [f"<h2>{escape(report.name)}</h2>", report._repr_html_(), memory_map(report), program_listing(report)]
    return "<section>\n" + "\n".join(parts) + "\n</section>"

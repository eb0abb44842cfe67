"""What is simulated, in numbers: the table behind ``%nki info`` and ``nki-nb info``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import nki_sim
from nki_sim.hw import CORES, NeuronCore

from nki_nb.markup import escape


@dataclass(frozen=True)
class Info:
    """The generations side by side; the current one is marked."""

    current: NeuronCore

    @property
    def table(self) -> list[list[str]]:
        """Header and rows; a star marks a number that the public documents do not state."""
        head = ["", *(f"{c.target}{' (current)' if c == self.current else ''}" for c in CORES)]
        return [head, *([label, *cells] for label, cells in _rows())]

    def __str__(self) -> str:
        table = self.table
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
        return "\n".join([_TITLE, *lines, _NOTE])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        head, *body = self.table
        cells = "".join(f'<th style="text-align:left">{escape(cell)}</th>' for cell in head)
        rows = "".join(
            "<tr>" + "".join(f'<td style="text-align:left">{escape(cell)}</td>' for cell in row) + "</tr>" for row in body
        )
        table = f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>"
        return f"<div>{escape(_TITLE)}</div>{table}<div>{escape(_NOTE)}</div>"


_TITLE = f"nki-nb {nki_sim.__version__}, NKI 0.7 on a simulated NeuronCore"
_NOTE = "* not in the public documents; a cautious default"


def _rows() -> Iterator[tuple[str, list[str]]]:
    yield "core", [c.name for c in CORES]
    yield "partitions", [str(c.partitions) for c in CORES]
    yield "SBUF, bytes per partition", [str(c.sbuf_partition_bytes) for c in CORES]
    yield "SBUF, usable by kernels", [f"{c.sbuf_usable_bytes}{_star(c, 'sbuf_usable_bytes')}" for c in CORES]
    yield "PSUM, bytes per partition", [str(c.psum_partition_bytes) for c in CORES]
    yield "PSUM, banks", [f"{c.psum_banks} of {c.psum_bank_bytes} bytes" for c in CORES]
    yield "logical cores", [" or ".join(map(str, c.lnc)) for c in CORES]
    yield "clock of tensor engine, GHz", [f"{c.clocks.tensor:g}" for c in CORES]
    yield "clock of vector engine, GHz", [f"{c.clocks.vector:g}" for c in CORES]
    yield "clock of scalar engine, GHz", [f"{c.clocks.scalar:g}" for c in CORES]


def _star(core: NeuronCore, field: str) -> str:
    return " *" if field in core.unverified else ""

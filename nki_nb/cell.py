"""One ``%%nki`` cell: its source, its names, and ``import nki`` that means the simulator.

The cell's code sees the notebook's variables as they are now, later changes included. Only ``nki``, ``nl``, ``nisa`` and
what the cell itself imports from ``nki`` are its own: the notebook may hold a really installed ``nki`` beside it.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import linecache
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from nki_sim.api import nki
from nki_sim.errors import Diagnosis, NkiError
from nki_sim.importer import ours
from nki_sim.source import CELL_PREFIX, StaticSite

GIVEN: dict[str, ModuleType] = {"nki": nki, "nl": nki.language, "nisa": nki.isa}
"""Names that are there without an import and always mean the simulator."""

FALLBACK: dict[str, ModuleType] = {"np": np}
"""Names that are there without an import unless the notebook has its own."""


class CellSyntaxError(NkiError):
    """The cell is not Python; carries the cell's own line and the place in it."""

    def __init__(self, error: SyntaxError, filename: str):
        line = error.lineno or 1
        site = StaticSite(filename, "<module>", (line, line, -1, -1))
        super().__init__(Diagnosis(f"{error.msg} (line {line}, column {error.offset or 1})", "", sites=(site,)))


class CellNamespace(dict[str, Any]):
    """Globals of one cell: a live view of the notebook's names under a few of the cell's own.

    Args:
        user: the notebook's names; what the cell assigns goes there.
        scoped: names that stay in the cell.
    """

    def __init__(self, user: dict[str, Any], scoped: frozenset[str] = frozenset()):
        scope = {**vars(builtins), "__import__": scoped_import}
        super().__init__(GIVEN, __name__="__main__", __builtins__=scope)
        self.user = user
        self.scoped = scoped | GIVEN.keys()

    def __missing__(self, name: str) -> Any:
        return self.user[name] if name in self.user else FALLBACK[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self.scoped:
            super().__setitem__(name, value)
        else:
            self.user[name] = value

    def __delitem__(self, name: str) -> None:
        if name in self.scoped:
            super().__delitem__(name)
        else:
            del self.user[name]


def scoped_import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: tuple[str, ...] | None = (),
    level: int = 0,
) -> ModuleType:
    """``__import__`` of a cell: ``nki`` and its submodules are the simulator's, all else is as usual."""
    if level or (name != "nki" and not name.startswith("nki.")):
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    try:
        module = importlib.import_module(ours(name))
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"nki has no module {name!r}", name=name) from None
    for item in fromlist or ():
        if item != "*":
            getattr(module, item)  # an unknown name explains itself; Python would turn that into a bare ImportError
    return module if fromlist else nki


def imported_from_nki(tree: ast.Module) -> Iterator[str]:
    """The names that a cell's imports of ``nki`` bind."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "nki":
                    yield alias.asname or "nki"
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] == "nki":
            for alias in node.names:
                yield from _all_of(node.module or "") if alias.name == "*" else (alias.asname or alias.name,)


def _all_of(module: str) -> list[str]:
    names: list[str] = importlib.import_module(ours(module)).__all__
    return names


@dataclass(frozen=True)
class Cell:
    """A ``%%nki`` cell: what stands on its first line, what follows, and its number in the session."""

    line: str
    body: str
    number: int

    @property
    def filename(self) -> str:
        return f"{CELL_PREFIX}{self.number}>"

    @property
    def source(self) -> str:
        """The cell as Python: its first line a comment, so that line numbers are those the notebook shows."""
        return f"{FIRST_LINE}{self.line}\n{self.body}"

    def execute(self, user: dict[str, Any]) -> CellNamespace:
        """Run the cell's body on the notebook's names; return the cell's own view of them.

        Raises:
            CellSyntaxError: the body is not Python.
        """
        lines = self.source.splitlines(keepends=True)
        linecache.cache[self.filename] = (len(self.source), None, lines, self.filename)  # no mtime: never evicted
        try:
            tree = ast.parse(self.source, self.filename)
            code = compile(tree, self.filename, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise CellSyntaxError(error, self.filename) from None
        namespace = CellNamespace(user, frozenset(imported_from_nki(tree)))
        exec(code, namespace)  # noqa: S102 - the notebook's own code
        return namespace


FIRST_LINE = "# %%nki "

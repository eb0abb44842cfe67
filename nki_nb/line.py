"""The ``%%nki`` line: an optional call with an optional name for the result, then options."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from nki_nb.cell import FIRST_LINE, Cell, CellNamespace

_OPEN, _CLOSE = "([{", ")]}"


class LineError(ValueError):
    """The line cannot be read; the message says what was expected."""


def split_words(line: str) -> list[str]:
    """Split at blanks outside brackets and quotes; a word that is one quoted text loses its quotes.

    >>> split_words('c = matmul(a, b) --check "a.T @ b"')
    ['c', '=', 'matmul(a, b)', '--check', 'a.T @ b']
    """
    words: list[str] = []
    current, quote, depth = "", "", 0
    for previous, char in zip(" " + line, line + " ", strict=True):
        if quote:
            quote = "" if char == quote and previous != "\\" else quote
        elif char in "\"'":
            quote = char
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth -= 1
        elif char.isspace() and depth <= 0:
            words += [current] if current else []
            current = ""
            continue
        current += char
    if quote or depth > 0:
        raise LineError(f"missing {quote or 'closing bracket'} in: {line.strip()}")
    return [_unquoted(word) for word in [*words, *([current.strip()] if current.strip() else [])]]


def _unquoted(word: str) -> str:
    whole = len(word) > 1 and word[0] in "\"'" and word[-1] == word[0] and word[0] not in word[1:-1]
    return word[1:-1] if whole else word


@dataclass(frozen=True)
class Call:
    """``names = function(arguments)``, read but not yet evaluated."""

    text: str
    names: tuple[str, ...]
    single: bool
    node: ast.Call = field(repr=False)

    @classmethod
    def read(cls, text: str) -> Call:
        """Read ``kernel(a, b)``, ``c = kernel(a, b)`` or ``c, d = kernel(a, b)``.

        Raises:
            LineError: the text is none of these.
        """
        expected = f"expected a call such as c = kernel(a, b), then options; got: {text}"
        try:
            body = ast.parse(text).body
        except SyntaxError:
            raise LineError(expected) from None
        statement = body[0] if len(body) == 1 else None
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            targets = list(target.elts) if isinstance(target, (ast.Tuple, ast.List)) else [target]
        elif not isinstance(statement, ast.Expr):
            raise LineError(expected)
        names = tuple(t.id for t in targets if isinstance(t, ast.Name))
        if not isinstance(statement.value, ast.Call) or len(names) != len(targets):
            raise LineError(expected)
        single = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
        return cls(text, names, single, statement.value)

    @property
    def function(self) -> str:
        """What is called, as the user wrote it."""
        return ast.unparse(self.node.func)

    def evaluate(self, cell: Cell, namespace: CellNamespace) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The function, its positional and its keyword arguments, evaluated as the cell's first line."""
        shift = len(FIRST_LINE) + max(cell.line.find(self.text), 0)
        keep = ast.parse("lambda *args, **kwargs: (args, kwargs)", mode="eval").body
        taken = ast.Call(func=keep, args=self.node.args, keywords=self.node.keywords)
        parts = ast.Tuple(elts=[self.node.func, taken], ctx=ast.Load())
        for node in _positioned(self.node):
            node.col_offset += shift
            node.end_col_offset = (node.end_col_offset or 0) + shift
        tree = ast.fix_missing_locations(ast.Expression(ast.copy_location(parts, self.node)))
        code = compile(tree, cell.filename, "eval", dont_inherit=True)
        function, (args, kwargs) = eval(code, namespace)  # noqa: S307 - the notebook's own code
        return function, args, kwargs

    def assign(self, result: Any, user: dict[str, Any]) -> None:
        """Give the result its names in the notebook.

        Raises:
            LineError: the kernel returned another number of outputs than there are names.
        """
        if self.single:
            user[self.names[0]] = result
            return
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        if self.names and len(outputs) != len(self.names):
            raise LineError(f"{len(self.names)} names for {len(outputs)} outputs in: {self.text}")
        user.update(zip(self.names, outputs, strict=False))


def _positioned(node: ast.Call) -> Iterator[ast.expr | ast.keyword]:
    return (n for n in ast.walk(node) if isinstance(n, (ast.expr, ast.keyword)))

"""Where in the user's code something happened: call sites, their text, and the words in it that matter.

A :class:`Site` is a code object and an offset in it: cheap to take while a kernel runs, decoded only when somebody
asks. Frames of this package and of ``dataclasses``-made constructors are passed over, so a site is always the user's
own line, be it in a notebook cell, a file or a helper.
"""

from __future__ import annotations

import ast
import linecache
import sys
import textwrap
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType

MOST_TEXTS = 64
CELL_PREFIX = "<nki cell "
"""File names of ``%%nki`` cells start with this; the notebook side registers them in ``linecache``."""


class Site:
    """One place in the user's code."""

    __slots__ = ("code", "lasti")

    def __init__(self, code: CodeType, lasti: int):
        self.code = code
        self.lasti = lasti

    def __repr__(self) -> str:
        return f"<{self.place}>"

    @property
    def filename(self) -> str:
        return self.code.co_filename

    @property
    def function(self) -> str:
        return self.code.co_name

    @property
    def span(self) -> tuple[int, int, int, int]:
        """First line, last line, first column, last column of the expression; columns are -1 where unknown."""
        return _span(self.code, self.lasti)

    @property
    def line(self) -> int:
        """Line number, from 1. The line a debugger shows: the one where the statement's call starts."""
        return self.span[0]

    @property
    def text(self) -> str:
        """The source line, or an empty string when the source is not to be had."""
        return linecache.getline(self.filename, self.line).rstrip("\n")

    @property
    def place(self) -> str:
        """Where it is, in words that are the same on every machine: cell or file name, line, function."""
        name = self.filename
        if name.startswith(CELL_PREFIX):
            where = "%%nki cell"
        else:
            where = Path(name).name if not name.startswith("<") else name
        inside = "" if self.function == "<module>" else f", in {self.function}"
        return f"{where}, line {self.line}{inside}"

    def excerpt(self, before: int = 2, argument: str | None = None) -> list[str]:
        """Numbered source lines up to this one, an arrow at it and carets under ``argument``; may be empty."""
        first, last, *_ = self.span
        lines = linecache.getlines(self.filename)
        if not 0 < first <= len(lines):
            return []
        last = min(max(first, last), len(lines), first + 5)
        shown = range(max(1, first - before), last + 1)
        body = textwrap.dedent("\n".join(lines[n - 1].rstrip("\n") or "" for n in shown)).split("\n")
        cut = len(lines[first - 1].rstrip("\n")) - len(body[first - shown.start])
        mark = self.argument_span(argument) if argument else None
        out = []
        for n, text in zip(shown, body, strict=True):
            out.append(f"  {'→' if n == first else ' '} {n:>4} | {text}".rstrip())
            if mark and mark[0] == n:
                out.append(" " * (11 + mark[1] - cut) + "^" * (mark[2] - mark[1]))
        return out

    def call(self) -> ast.Call | None:
        """The call expression at this place, when the source is known."""
        tree = _parsed(self.filename, _whole_text(self.filename))
        if tree is None:
            return None
        first, last, start, end = self.span
        best: ast.Call | None = None
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or node.end_lineno is None:
                continue
            if start >= 0 and (node.lineno, node.end_lineno, node.col_offset) == (first, last, start):
                if node.end_col_offset == end:
                    return node
            elif start < 0 and node.lineno <= first <= node.end_lineno:
                best = best or node
        return best

    def argument(self, name: str, position: int | None = None) -> ast.expr | None:
        """The expression passed as ``name`` (or at ``position``) in the call at this place."""
        call = self.call()
        if call is None:
            return None
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
        if position is not None and position < len(call.args):
            return call.args[position]
        return None

    def argument_span(self, name: str) -> tuple[int, int, int] | None:
        """Line, first and last column of the value passed as keyword ``name``, when it is on one line."""
        value = self.argument(name)
        if value is None or value.end_col_offset is None or value.lineno != value.end_lineno:
            return None
        line = linecache.getline(self.filename, value.lineno).encode()
        start = len(line[: value.col_offset].decode(errors="replace"))
        return value.lineno, start, start + value.end_col_offset - value.col_offset

    def argument_text(self, name: str) -> str:
        value = self.argument(name)
        return ast.unparse(value) if value is not None else ""

    def is_return(self) -> bool:
        """Whether the statement at this place gives the call's value to the caller."""
        return self.text.lstrip().startswith("return ")

    def is_while_condition(self) -> bool:
        """Whether what is looked at here is all of a ``while``'s condition, as far as the source tells."""
        return _is_while_condition(self.filename, _whole_text(self.filename), self.span)

    def may_repeat(self) -> bool:
        """Whether the line may run more than once in a kernel: it is in a loop or in a helper, as far as the source tells."""
        return _may_repeat(self.filename, _whole_text(self.filename), self.line)

    def assigned_name(self) -> str:
        """What the statement at this place assigns the call's value to, as written; an empty string when it does not."""
        return _assigned_name(self.filename, _whole_text(self.filename), self.span)


_texts: dict[str, tuple[list[str], str]] = {}
"""Files in one piece, by name, beside the lines that they are made of: those are others when the file was read again."""


def _whole_text(filename: str) -> str:
    lines = linecache.getlines(filename)
    known = _texts.get(filename)
    if known is None or known[0] is not lines:
        if len(_texts) >= MOST_TEXTS:
            _texts.clear()
        known = _texts[filename] = lines, "".join(lines)
    return known[1]


@lru_cache(maxsize=MOST_TEXTS)
def _parsed(filename: str, text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


@lru_cache(maxsize=4096)
def _span(code: CodeType, lasti: int) -> tuple[int, int, int, int]:
    if hasattr(code, "co_positions"):
        for offset, (first, last, start, end) in enumerate(code.co_positions()):
            if offset * 2 == lasti and first is not None:
                return first, last or first, -1 if start is None else start, -1 if end is None else end
    line = code.co_firstlineno
    for begin, _end, number in code.co_lines():
        if begin > lasti:
            break
        if number is not None:
            line = number
    return line, line, -1, -1


_FUNCTIONS = (ast.FunctionDef, ast.Lambda)
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@lru_cache(maxsize=4096)
def _is_while_condition(filename: str, text: str, span: tuple[int, int, int, int]) -> bool:
    tree = _parsed(filename, text)
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.While)] if tree else []
    bare = [loop for loop in loops if isinstance(loop.test, (ast.Name, ast.Attribute, ast.Subscript))]
    places: list[ast.stmt | ast.expr] = [*bare, *[loop.test for loop in bare]]  # which of the two depends on Python's version
    return any((n.lineno, n.end_lineno, n.col_offset, n.end_col_offset) == span for n in places)


@lru_cache(maxsize=4096)
def _may_repeat(filename: str, text: str, line: int) -> bool:
    tree = _parsed(filename, text)
    nodes = [n for n in ast.walk(tree) if isinstance(n, (*_FUNCTIONS, *_LOOPS))] if tree else []
    around = [n for n in nodes if n.lineno <= line <= (n.end_lineno or 0)]
    inner = max((n for n in around if isinstance(n, _FUNCTIONS)), key=lambda n: n.lineno, default=None)
    if not isinstance(inner, ast.FunctionDef) or not inner.decorator_list:
        return True
    return any(isinstance(n, _LOOPS) and n.lineno > inner.lineno for n in around)


@lru_cache(maxsize=4096)
def _assigned_name(filename: str, text: str, span: tuple[int, int, int, int]) -> str:
    tree = _parsed(filename, text)
    if tree is None:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and _covers(node, span):
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                pairs = zip(target.elts, value.elts, strict=True)
                found = [pair for pair in pairs if _covers(pair[1], span)]
                if len(found) == 1:  # more than one where Python 3.10 knows the line only
                    target, value = found[0]
            if not isinstance(target, ast.Tuple):
                return ast.unparse(target) if _is_value(value, span) else ""
        elif isinstance(node, ast.AnnAssign) and node.value is not None and _covers(node, span):
            return ast.unparse(node.target) if _is_value(node.value, span) else ""
    return ""


def _is_value(value: ast.expr, span: tuple[int, int, int, int]) -> bool:
    """Whether the call at a place is what is assigned, or makes the elements of the list that is; not a call inside it."""
    if not isinstance(value, ast.Call):
        return isinstance(value, (ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.IfExp))
    return span[2] < 0 or (value.lineno, value.col_offset) == (span[0], span[2])


def _covers(node: ast.stmt | ast.expr, span: tuple[int, int, int, int]) -> bool:
    """Whether a node contains a place; by lines where the columns are not known."""
    first, last, start, end = span
    if node.end_lineno is None or not node.lineno <= first <= last <= node.end_lineno:
        return False
    if start < 0 or node.end_col_offset is None:
        return True
    return (node.lineno, node.col_offset) <= (first, start) and (last, end) <= (node.end_lineno, node.end_col_offset)


class StaticSite(Site):
    """A place found by reading the source instead of running it."""

    __slots__ = ("_filename", "_function", "_span")

    def __init__(self, filename: str, function: str, span: tuple[int, int, int, int]):
        self._filename = filename
        self._function = function
        self._span = span

    @property
    def filename(self) -> str:
        return self._filename

    @property
    def function(self) -> str:
        return self._function

    @property
    def span(self) -> tuple[int, int, int, int]:
        return self._span


TRACE_ROOTS: set[CodeType] = set()
"""Code objects that run a kernel: what is above them on the stack is not the kernel's."""

_PACKAGE = __name__.partition(".")[0]


def is_ours(frame: FrameType) -> bool:
    """Whether a frame runs code of this package."""
    return _belongs(frame.f_globals.get("__name__"))


@lru_cache(maxsize=4096)
def _belongs(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] == _PACKAGE


def user_frame(depth: int = 1) -> FrameType | None:
    """The nearest frame above the caller that is not of this package."""
    return outside(sys._getframe(depth + 1))


def outside(frame: FrameType | None) -> FrameType | None:
    """The nearest frame from this one up that is not of this package."""
    while frame is not None and _belongs(frame.f_globals.get("__name__")):
        frame = frame.f_back
    return frame


def call_sites(depth: int = 1) -> tuple[Site | None, Site | None]:
    """The user's line that led here and the one that called its function; ``None`` where there is none."""
    frame = outside(sys._getframe(depth + 1))
    if frame is None:
        return None, None
    code, lasti, outer = frame.f_code, frame.f_lasti, frame.f_back
    site = _sites.get((id(code), lasti)) or _site(code, lasti)
    if outer is None:
        return site, None
    code, lasti = outer.f_code, outer.f_lasti
    return site, _sites.get((id(code), lasti)) or _site(code, lasti)


MOST_SITES = 4096
_sites: dict[tuple[int, int], Site] = {}
"""Sites by the identity of their code, which they keep alive: hashing it takes longer than all else here."""


def _site(code: CodeType, lasti: int) -> Site:
    """One object per place: a loop allocates at the same one again and again."""
    key = (id(code), lasti)
    found = _sites.get(key)
    if found is None:
        if len(_sites) >= MOST_SITES:
            _sites.clear()
        found = _sites[key] = Site(code, lasti)
    return found


def call_chain(depth: int = 1) -> list[Site]:
    """The user's frames, innermost first, up to and with the kernel's own."""
    frame = user_frame(depth + 1)
    chain: list[Site] = []
    while frame is not None and frame.f_code not in TRACE_ROOTS:
        if not is_ours(frame):
            chain.append(Site(frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return chain

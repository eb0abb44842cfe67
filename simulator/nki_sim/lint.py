"""What can be said of a kernel without running it: unknown, old and deprecated names, arguments, and constructs a frontend
refuses.

NKI 0.7 specialises by running Python, so most of Python is legal in a kernel. The frontend of 0.6 was a parser of a subset;
``frontend="0.6"`` reports what that refuses.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from nki_sim import context
from nki_sim.calls import KEYWORDS, REQUIRED, argument_hint
from nki_sim.deprecated import DEPRECATED, INSTEAD, headline
from nki_sim.errors import Diagnosis, Rule, page
from nki_sim.hints import NAMES, what_instead
from nki_sim.importer import ours
from nki_sim.machine import ENUM_MEMBERS, ENUM_NUMBERS
from nki_sim.migration import old_ways
from nki_sim.source import StaticSite

_MODULES = ("nki", "nki.isa", "nki.language", "nki.typing", "nki.compiler")
_OLD = "neuronxcc."
"""What the modules' names began with before: their names are looked up as those of today's."""
_DEFAULT_ALIASES = {"nki": "nki", "nl": "nki.language", "nisa": "nki.isa"}


def _frontend_rule(id: str, words: str) -> Rule:
    return Rule(id, words, why="the 0.6 frontend parses a subset of Python; NKI 0.7 runs the kernel and takes all of it",
                fix="compile with NKI 0.7, or rewrite", page=page("get-started/nki-language-guide.html"),
                enforce="warn")  # fmt: skip


UNSUPPORTED = _frontend_rule("lang.unsupported_python", "the construct is in the 0.6 frontend's subset of Python")
NO_STAR = _frontend_rule("kernel.no_kwonly_star", "kernel signatures have no keyword-only separator *")
NO_IS = _frontend_rule("kernel.no_is", "comparisons use == and !=, not is")
NO_LISTS = _frontend_rule("kernel.no_list_args", "kernel arguments and defaults are tuples, not lists")
STRING_KEYS = _frontend_rule("lang.dict_string_keys", "dictionary keys are strings")

SYNTAX = Rule(
    "kernel.python_syntax",
    "a kernel is Python",
    fix="mend the text; python -m py_compile FILE.py says no more",
    page=page("get-started/nki-language-guide.html"),
)

_REFUSED: dict[type[ast.AST], str] = {
    ast.Lambda: "lambda",
    ast.ListComp: "list comprehension",
    ast.SetComp: "set comprehension",
    ast.DictComp: "dict comprehension",
    ast.GeneratorExp: "generator expression",
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
    ast.Try: "try",
    ast.NamedExpr: "assignment expression",
    ast.Match: "match",
    ast.ClassDef: "class definition",
    ast.Global: "global",
    ast.Nonlocal: "nonlocal",
    ast.Raise: "raise",
}


def lint(source: str, filename: str, frontend: str = "0.7") -> list[Diagnosis]:
    """Read the kernels (functions with ``@nki.jit``) of a source text, and what the text imports and launches.

    Args:
        source: Python text.
        filename: under which ``linecache`` knows it, for excerpts.
        frontend: ``0.7`` (names and arguments) or ``0.6`` (also refused constructs).

    Raises:
        SyntaxError: the text is no Python.
        ValueError: an unknown frontend.
    """
    if frontend not in ("0.6", "0.7"):
        raise ValueError(f"frontend {frontend!r} is neither '0.6' nor '0.7'")
    tree = ast.parse(source, filename)
    aliases = dict(_aliases(tree))
    kernels = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _is_kernel(node, aliases)]
    found = list(old_ways(tree, filename, {node.name for node in kernels}))
    for node in kernels:
        reader = _Reader(filename, node, aliases)
        reader.names()
        if frontend == "0.6":
            reader.subset()
        found += reader.found
    return sorted(found, key=lambda d: d.line or 0)


def syntax_error(error: SyntaxError, filename: str) -> Diagnosis:
    """The finding about a text that is no Python."""
    line, column = error.lineno or 1, (error.offset or 0) - 1
    sites = (StaticSite(filename, "<module>", (line, line, column, -1)),)
    return Diagnosis(f"SyntaxError: {error.msg}", context.core().target, SYNTAX, sites=sites)


def kernel_names(source: str) -> list[str]:
    """Names of the kernels that a source text defines at its top level, in order."""
    tree = ast.parse(source)
    aliases = dict(_aliases(tree))
    return [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and _is_kernel(n, aliases)]


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    yield from _DEFAULT_ALIASES.items()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                module = name.name.removeprefix(_OLD)
                if module in _MODULES and (name.asname or module == name.name):
                    yield name.asname or name.name.partition(".")[0], module if name.asname else "nki"
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in ("nki", "neuronxcc"):
            for name in node.names:
                yield name.asname or name.name, f"{node.module}.{name.name}".removeprefix(_OLD)


def _is_kernel(node: ast.FunctionDef, aliases: dict[str, str]) -> bool:
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if _dotted(target, aliases) == "nki.jit":
            return True
    return False


def _dotted(node: ast.AST, aliases: dict[str, str]) -> str:
    """``nisa.x`` as ``nki.isa.x``; an empty string for anything that is not below ``nki``."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, aliases)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


@dataclass
class _Reader:
    """Reads one kernel."""

    filename: str
    kernel: ast.FunctionDef
    aliases: dict[str, str]
    found: list[Diagnosis] = field(default_factory=list)

    def _report(self, node: ast.AST, what: str, rule: Rule, fix: str = "", instruction: str = "") -> None:
        line = getattr(node, "lineno", self.kernel.lineno)
        end, last = getattr(node, "end_lineno", None) or line, getattr(node, "end_col_offset", None)
        columns = (getattr(node, "col_offset", -1), -1 if last is None else last)
        site = StaticSite(self.filename, self.kernel.name, (line, end, *columns))
        target = context.core().target
        self.found.append(Diagnosis(what, target, rule, instruction=instruction, fix=fix, sites=(site,)))

    # -- names and arguments -----------------------------------------------------------------------------------------

    def names(self) -> None:
        """Names and keyword arguments that the API does not have."""
        for node in ast.walk(self.kernel):
            if isinstance(node, ast.Attribute):
                self._attribute(node)
            elif isinstance(node, ast.Call):
                self._call(node)

    def _attribute(self, node: ast.Attribute) -> None:
        owner = _dotted(node.value, self.aliases)
        if node.attr in INSTEAD.get(owner, ()):
            self._report(node, headline(owner, node.attr), DEPRECATED, f"write {INSTEAD[owner][node.attr]}")
            return
        if owner in _MODULES and f"{owner}.{node.attr}" not in _MODULES:
            module = importlib.import_module(ours(owner))
            if node.attr not in module.__all__:
                what, fix = what_instead(owner, node.attr, module.__all__)
                self._report(node, what, NAMES, fix)

    def _call(self, node: ast.Call) -> None:
        path = _dotted(node.func, self.aliases)
        owner, _, name = path.rpartition(".")
        if owner not in ("nki.isa", "nki.language"):
            return
        function = vars(importlib.import_module(ours(owner))).get(name)
        if not callable(function) or any(k.arg is None for k in node.keywords):
            return
        parameters = inspect.signature(function).parameters
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg not in parameters:
                fix = argument_hint(keyword.arg or "", list(parameters))
                self._report(node, f"unexpected argument {keyword.arg}", KEYWORDS, fix, f"{owner}.{name}")
            else:
                self._number(node, keyword, parameters[keyword.arg].default, name)
        self._missing(node, f"{owner}.{name}", function, parameters)

    def _number(self, node: ast.Call, keyword: ast.keyword, default: Any, name: str) -> None:
        """A number where a member of an enumeration is meant."""
        value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
        if not isinstance(default, Enum) or not isinstance(value, int) or isinstance(value, bool):
            return
        kind = type(default)
        member = next((m for m in kind if m.value == value), None)
        what = f"{keyword.arg} is the number {value}"
        if member is None:
            what = f"{keyword.arg} is {value}, not a member of nisa.{kind.__name__}"
        fix = f"write nisa.{kind.__name__}.{(member or default).name}"
        self._report(node, what, ENUM_NUMBERS if member else ENUM_MEMBERS, fix, name)

    def _missing(self, node: ast.Call, name: str, function: Callable[..., Any], parameters: Any) -> None:
        if any(isinstance(a, ast.Starred) for a in node.args):
            return
        given = {k.arg for k in node.keywords} | set(list(parameters)[: len(node.args)])
        missing = [n for n, p in parameters.items() if p.default is p.empty and n not in given]
        if missing:
            fix = f"its arguments are {', '.join(parameters)}"
            self._report(node, f"missing {' and '.join(missing)}", REQUIRED, fix, name)

    # -- the 0.6 subset ----------------------------------------------------------------------------------------------

    def subset(self) -> None:
        """Constructs that the 0.6 frontend refuses."""
        arguments = self.kernel.args
        if arguments.kwonlyargs:
            self._report(self.kernel, "keyword-only arguments", NO_STAR, "pass them by position")
        for default in [*arguments.defaults, *arguments.kw_defaults]:
            if isinstance(default, ast.List):
                self._report(default, "a list as default", NO_LISTS, "write a tuple")
        for node in ast.walk(self.kernel):
            self._refused(node)

    def _refused(self, node: ast.AST) -> None:
        label = _REFUSED.get(type(node))
        if label:
            self._report(node, f"{label} in a kernel", UNSUPPORTED, "write a loop" if "comprehension" in label else "")
        elif isinstance(node, ast.FunctionDef) and node is not self.kernel:
            self._report(node, f"inner function {node.name}", UNSUPPORTED, "define it at the top level of the module")
        elif isinstance(node, ast.Compare) and any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            self._report(node, "is in a comparison", NO_IS)
        elif isinstance(node, ast.Assign) and any(isinstance(t, ast.Subscript) for t in node.targets):
            self._report(node, "assignment to an item", UNSUPPORTED, "append to a list, or build a tuple")
        elif isinstance(node, ast.Dict) and any(k is not None and not _is_string(k) for k in node.keys):
            self._report(node, "a dictionary key that is no string", STRING_KEYS)


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))

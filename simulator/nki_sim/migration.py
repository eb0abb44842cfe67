"""What a source text imports, makes kernels with and launches in ways that NKI has left behind."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from nki_sim import context
from nki_sim.deprecated import BRACKETS
from nki_sim.errors import Broken, Diagnosis, Rule, violation
from nki_sim.importer import LEGACY
from nki_sim.source import StaticSite


def old_ways(tree: ast.Module, filename: str, kernels: Collection[str]) -> Iterator[Diagnosis]:
    """Imports of ``neuronxcc.nki`` that nothing catches, and launches ``kernel[n](…)`` of the text's own kernels.

    Args:
        tree: the text, parsed.
        filename: under which ``linecache`` knows it.
        kernels: names of the functions with ``@nki.jit``.
    """
    caught = {id(node) for tried in ast.walk(tree) if isinstance(tried, ast.Try) and tried.handlers
              for statement in tried.body for node in ast.walk(statement)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)) and id(node) not in caught:
            for name in _imported(node):
                if name == "neuronxcc.nki" or name.startswith("neuronxcc.nki."):
                    yield _found(LEGACY, f"import of {name}", node, filename)
                    break
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            launched = node.func.value
            if isinstance(launched, ast.Name) and launched.id in kernels:
                grid = ast.unparse(node.func.slice)
                yield _found(BRACKETS, f"{launched.id}[{grid}](…)", node.func, filename, _way_out(node.func.slice))


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The modules and names that an import names in full."""
    for name in node.names:
        yield name.name if isinstance(node, ast.Import) else f"{node.module or ''}.{name.name}"


def _way_out(grid: ast.expr) -> str:
    if isinstance(grid, ast.Tuple) and len(grid.elts) > 1:
        return "write the grid as loops over tiles inside of the kernel"
    if isinstance(grid, ast.Constant) and grid.value == 1:
        return "call kernel(…)"
    return BRACKETS.fix


def _found(rule: Rule, what: str, node: ast.expr | ast.stmt, filename: str, fix: str = "") -> Diagnosis:
    span = (
        node.lineno,
        node.end_lineno or node.lineno,
        node.col_offset,
        -1 if node.end_col_offset is None else node.end_col_offset,
    )
    sites = (StaticSite(filename, "<module>", span),)
    return violation(rule, Broken(what, fix=fix), target=context.core().target, sites=sites)

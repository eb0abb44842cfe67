"""Every instruction has a property test: a test with ``@given`` that a module of this folder names for it in ``COVERS``."""

import ast
from pathlib import Path

import pytest
from nki_sim.isa import INSTRUCTIONS

HERE = Path(__file__).parent
REFUSED = ("core_barrier", "sendrecv")
"""Instructions that a run with one logical core refuses: they compute nothing."""


def properties(tree):
    """The functions of a module that Hypothesis calls, by name."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            calls = [d.func for d in node.decorator_list if isinstance(d, ast.Call)]
            if any(isinstance(f, ast.Name) and f.id == "given" for f in calls):
                found[node.name] = node
    return found


def covers(tree):
    """What a module's ``COVERS`` says: a property's name for each instruction."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and [getattr(t, "id", None) for t in node.targets] == ["COVERS"]:
            return ast.literal_eval(node.value)
    return {}


def issued(tree):
    """The instructions that a module calls as ``nisa.name(…)``."""
    calls = [n.func for n in ast.walk(tree) if isinstance(n, ast.Call)]
    return {f.attr for f in calls if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and f.value.id == "nisa"}


MODULES = {path.name: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(HERE.glob("test_*.py"))}
NAMED = [(module, name, test) for module, tree in MODULES.items() for name, test in covers(tree).items()]


@pytest.mark.parametrize("name", [name for name in INSTRUCTIONS if name not in REFUSED])
def test_an_instruction_has_a_property_test(name):
    assert [module for module, covered, _ in NAMED if covered == name], f"no COVERS names a property test of nisa.{name}"


@pytest.mark.parametrize(("module", "name", "test"), NAMED)
def test_what_is_named_is_a_property_test(module, name, test):
    assert name in INSTRUCTIONS
    assert test in properties(MODULES[module]), f"{module} has no {test} with @given"
    assert name in issued(MODULES[module]), f"{module} does not call nisa.{name}"

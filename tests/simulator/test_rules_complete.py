"""Every rule that the simulator declares has a test that breaks it."""

import importlib
from pathlib import Path

import nki_sim
import pytest
import rules
from documented import ELSEWHERE, UNCHECKED
from nki_sim import reference
from nki_sim.isa import INSTRUCTIONS
from rulebook import EVERY

HERE = Path(__file__).parent


def broken_by_cases():
    for path in HERE.glob("test_rules_*.py"):
        importlib.import_module(path.stem)
    return {case.rule for case in EVERY}


def broken_and_loaded():
    """All cases of all modules."""
    for path in HERE.glob("test_*.py"):
        if "book.breaks" in path.read_text(encoding="utf-8"):
            importlib.import_module(path.stem)
    return list(EVERY)


def test_every_rule_has_a_kernel_that_breaks_it():
    missing = set(reference.rules()) - broken_by_cases() - set(rules.tests()) - set(rules.OUT_OF_REACH)
    assert sorted(missing) == []


def test_every_rule_and_every_documented_limit_is_accounted_for():
    assert rules.faults() == []


def test_the_listing_has_a_line_for_each_and_the_count(capsys):
    lines = rules.listing()
    for name in (*reference.rules(), *ELSEWHERE, *UNCHECKED):
        assert sum(line.startswith(f"{name} ") for line in lines) == 1, name
    assert lines[-1] == rules.summary()
    assert all(UNCHECKED.values())


@pytest.mark.parametrize("rule", rules.OUT_OF_REACH)
def test_exempt_rules_exist_and_say_why(rule):
    assert rule in reference.rules()
    assert rules.OUT_OF_REACH[rule]


def test_every_case_is_about_a_rule_that_exists():
    assert broken_by_cases() <= set(reference.rules())


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_rules_are_told_completely(name):
    """Words, a page of the documentation, and generations that exist."""
    for rule in INSTRUCTIONS[name].rules():
        assert rule.words and rule.gens and set(rule.gens) <= {2, 3, 4}, rule
        assert rule.page.startswith("https://"), rule


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=f"{c.rule}:{c.body.__code__.co_firstlineno}") for c in broken_and_loaded()]
)
def test_a_rule_that_is_enforced_is_on_the_page_of_what_enforced_it(case):
    with pytest.raises(nki_sim.NkiValidationError) as caught:
        case.run(case.on[0], bad=True)
    diagnosis = caught.value.diagnosis
    page = reference.find(diagnosis.instruction) or reference.find("NkiTensor")  # a view names its tensor
    shown = {rule.id for rule in page.rules}
    assert diagnosis.rule.id in shown or diagnosis.rule.id in {r.id for e in reference.entries().values() for r in e.rules}
    if diagnosis.instruction in INSTRUCTIONS:
        assert diagnosis.rule.id in shown

"""Every rule that the simulator declares has a test that breaks it."""

import importlib
import pkgutil
import re
from pathlib import Path

import nki_sim
import pytest
from nki_sim.errors import Rule
from nki_sim.isa import INSTRUCTIONS
from rulebook import EVERY

HERE = Path(__file__).parent
OUT_OF_REACH = {
    "nc_matmul.dst_one_bank_per_instr": "what spans two banks straddles a boundary: nc_matmul.dst_fits_one_bank comes first",
    "nc_matmul.tile.fits": "K and M against tile_size are nc_matmul.k_le_128 and nc_matmul.stationary_free_le_128",
    "dma_copy.vector_offset_hbm": "no such view can be made: ap.vector_offset_dim0 and tensor.vector_select",
    "dma_transpose.indirect.src_hbm": "no such view can be made: ap.vector_offset_dim0 and tensor.vector_select",
    "tensor_reduce.indirect.operands": "its tiles are dst and data, which may be indirect, and it runs on one engine",
    "scalar_load.dst": "nisa.scalar_load makes its scalar itself",
}
"""Rules that a kernel cannot break, because another rule stands before them."""


def declared():
    """All rules of instructions, and all rules in the modules of the package."""
    found = {rule.id for cls in INSTRUCTIONS.values() for rule in cls.rules()}
    for module in pkgutil.walk_packages(nki_sim.__path__, "nki_sim."):
        members = vars(importlib.import_module(module.name)).values()
        found |= {member.id for member in members if isinstance(member, Rule)}
    return found


def broken_by_cases():
    for path in HERE.glob("test_rules_*.py"):
        importlib.import_module(path.stem)
    return {case.rule for case in EVERY}


def named_in_other_tests():
    """Rules that a test names as text: those about arguments, outputs, names and findings."""
    texts = [p.read_text(encoding="utf-8") for p in HERE.glob("test_*.py") if p.stem != Path(__file__).stem]
    return set(re.findall(r'"([a-z_0-9]+(?:\.[a-z_0-9]+)+)"', "\n".join(texts)))


def test_every_rule_has_a_kernel_that_breaks_it():
    missing = declared() - broken_by_cases() - named_in_other_tests() - set(OUT_OF_REACH)
    assert sorted(missing) == []


@pytest.mark.parametrize("rule", OUT_OF_REACH)
def test_exempt_rules_exist_and_say_why(rule):
    assert rule in declared()
    assert OUT_OF_REACH[rule]


def test_every_case_is_about_a_rule_that_exists():
    domains = {f"act.range_{name}" for name in ("log", "sin", "arctan", "sqrt", "rsqrt", "reciprocal")}
    assert broken_by_cases() <= declared() | domains


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_rules_are_told_completely(name):
    """Words, a page of the documentation, and generations that exist."""
    for rule in INSTRUCTIONS[name].rules():
        assert rule.words and rule.gens and set(rule.gens) <= {2, 3, 4}, rule
        assert rule.page.startswith("https://"), rule

"""Every rule with its check and its test: ``python tests/simulator/rules.py``. Fails when one has none.

A check is the line where the rule is declared, which is where it is enforced. A test is a line of this folder, or of
the PyTorch tests beside it, that names it.
"""

import importlib
import inspect
import re
import sys
from pathlib import Path

import nki_sim
from documented import DOCUMENTED, ELSEWHERE, UNCHECKED
from nki_sim.errors import GEN_TARGET, Rule
from nki_sim.isa import INSTRUCTIONS
from nki_sim.reference import modules, rules

HERE, SOURCE = Path(__file__).parent, Path(nki_sim.__file__).parent
TESTS = ("simulator", "pytorch")
NAME = re.compile(r'"([a-z0-9_]+(?:\.[A-Za-z0-9_]+)+)"')
OUT_OF_REACH = {
    "nc_matmul.dst_one_bank_per_instr": "what spans two banks straddles a boundary: nc_matmul.dst_fits_one_bank comes first",
    "nc_matmul.tile.fits": "K and M against tile_size are nc_matmul.k_le_128 and nc_matmul.stationary_free_le_128",
    "dma_copy.vector_offset_hbm": "no such view can be made: ap.vector_offset_dim0 and tensor.vector_select",
    "dma_transpose.indirect.src_hbm": "no such view can be made: ap.vector_offset_dim0 and tensor.vector_select",
    "tensor_reduce.indirect.operands": "its tiles are dst and data, which may be indirect, and it runs on one engine",
    "scalar_load.dst": "nisa.scalar_load makes its scalar itself",
}
"""Rules that a kernel cannot break, because another rule stands before them."""


def checks() -> dict[str, str]:
    """Where each rule is enforced: the method or module line that declares it."""
    found: dict[str, str] = {}
    for cls in INSTRUCTIONS.values():
        for checked in cls.checks:
            code = inspect.unwrap(checked.check).__code__
            found.setdefault(checked.rule.id, _place(code.co_filename, code.co_firstlineno))
        for rule in cls.rules():
            found.setdefault(rule.id, _place(inspect.getsourcefile(cls) or "", inspect.getsourcelines(cls)[1]))
    for module in map(importlib.import_module, modules()):
        for name, value in vars(module).items():
            for rule in value.values() if type(value) is dict else (value,):
                if isinstance(rule, Rule) and rule.id not in found:
                    lines = inspect.getsource(module).splitlines()
                    at = next((i for i, line in enumerate(lines, 1) if re.match(rf"{name}\b", line)), 1)
                    found[rule.id] = _place(module.__file__ or "", at)
    return found


def _place(filename: str, line: int) -> str:
    return f"{Path(filename).relative_to(SOURCE.parent)}:{line}"


def tests() -> dict[str, str]:
    """The first line of a test module that names each rule."""
    found: dict[str, str] = {}
    for path in (path for folder in TESTS for path in sorted((HERE.parent / folder).glob("test_*.py"))):
        if path.stem == "test_rules_complete":
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for name in NAME.findall(line):
                found.setdefault(name, f"{path.name}:{number}")
    return found


def faults() -> list[str]:
    """What is missing, a line each."""
    known, checked, tested = rules(), checks(), tests()
    found = [f"{name}: no check" for name in known if name not in checked]
    found += [f"{name}: no test" for name in known if name not in tested and name not in OUT_OF_REACH]
    found += [f"{name}: exempt, but tested or unknown" for name in OUT_OF_REACH if name not in known]
    for name in DOCUMENTED:
        places = [name in known, name in ELSEWHERE, name in UNCHECKED]
        if sum(places) != 1:
            found.append(f"{name}: documented, in {sum(places)} of the lists instead of one")
    for name, others in ELSEWHERE.items():
        found += [f"{name}: enforced by {other}, which does not exist" for other in others if other not in known]
    return found


def listing() -> list[str]:
    """The table and the count."""
    known, checked, tested = rules(), checks(), tests()
    lines = []
    for name, same in known.items():
        gens = ",".join(GEN_TARGET[g] for g in sorted({g for rule in same for g in rule.gens}))
        test = tested.get(name) or f"- ({OUT_OF_REACH.get(name, 'none')})"
        lines.append(f"{name:<48} {same[0].enforce:<7} {gens:<14} {checked.get(name, '-'):<44} {test}")
    lines += [f"{name:<48} {DOCUMENTED[name]:<7} as {', '.join(others)}" for name, others in sorted(ELSEWHERE.items())]
    lines += [f"{name:<48} {DOCUMENTED[name]:<7} not checked: {why}" for name, why in sorted(UNCHECKED.items())]
    return [*lines, "", summary()]


def summary() -> str:
    """The count, as the README has it."""
    known = rules()
    errors = [name for name, how in DOCUMENTED.items() if how == "error"]
    own = sum(name in known for name in errors)
    other, not_checked = sum(name in ELSEWHERE for name in errors), sum(name in UNCHECKED for name in errors)
    return (
        f"{len(known)} rules; of {len(errors)} documented limits that must raise {own} do under their own name, "
        f"{other} under another, {not_checked} cannot be broken or were lifted"
    )


if __name__ == "__main__":
    print("\n".join(listing()))
    missing = faults()
    print("\n".join(missing), file=sys.stderr)
    sys.exit(bool(missing))

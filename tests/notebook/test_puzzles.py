"""The puzzles: what the sheet leaves blank is what a solution has; solutions are right; wrong ones fail for their reason."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import puzzle_solutions
import pytest
from puzzle_solutions import BLANK, FIRST_WRONG, WRONG, kernel_of, sources

from nki_nb.exercise import Exercise, puzzles
from nki_nb.exercise.blanks import NAME

SHEET = Path(__file__).parents[2] / "tutorials" / "puzzles.ipynb"
SOLUTIONS = sources()
NAMES = [puzzle.name for puzzle in puzzles.PUZZLES]


def sheet() -> dict[str, str]:
    """The source of each puzzle on the sheet, by name: the kernel, without the line that checks it."""
    cells = [cell.source for cell in nbformat.read(SHEET, as_version=4).cells if cell.cell_type == "code"][1:]
    found = {}
    for source in cells:
        kernel, _, check = source.rpartition("\n\n\n")
        name = ast.parse(kernel).body[0].name
        assert check == f"puzzles.{name}.check({name})"
        found[name] = kernel
    return found


def is_blank(node: Any) -> bool:
    return isinstance(node, ast.Name) and node.id == NAME


def fits(puzzle: Any, solution: Any) -> bool:
    """Whether a solution is a puzzle with its blanks filled in: an expression for each, or lines for one alone on its line."""
    if is_blank(puzzle):
        return isinstance(solution, ast.expr) and not is_blank(solution)
    if isinstance(puzzle, list):
        return all_fit(puzzle, solution)
    if type(puzzle) is not type(solution):
        return False
    if not isinstance(puzzle, ast.AST):
        return bool(puzzle == solution)
    return all(fits(value, getattr(solution, field)) for field, value in ast.iter_fields(puzzle) if field != "ctx")


def all_fit(puzzle: list[Any], solution: list[Any]) -> bool:
    if not puzzle or not solution:
        return not puzzle and not solution
    first, rest = puzzle[0], puzzle[1:]
    if isinstance(first, ast.Expr) and is_blank(first.value):
        return any(all_fit(rest, solution[taken:]) for taken in range(1, len(solution) + 1))
    return fits(first, solution[0]) and all_fit(rest, solution[1:])


def arrays(puzzle: Exercise) -> list[tuple[Any, ...]]:
    return [puzzle._arguments(case) for case in puzzle.cases()]


@pytest.fixture(params=puzzles.PUZZLES, ids=NAMES)
def puzzle(request: pytest.FixtureRequest) -> Exercise:
    found: Exercise = request.param
    return found


def test_there_are_twenty_in_the_order_of_the_sheet() -> None:
    assert len(NAMES) == len(set(NAMES)) == 20
    assert list(sheet()) == list(SOLUTIONS) == list(WRONG) == NAMES
    assert [getattr(puzzles, name) for name in NAMES] == list(puzzles.PUZZLES)


def test_a_puzzle_is_its_solution_minus_the_blanks(puzzle: Exercise) -> None:
    blank, solved = ast.parse(sheet()[puzzle.name]), ast.parse(SOLUTIONS[puzzle.name])
    assert any(map(is_blank, ast.walk(blank))) and not any(map(is_blank, ast.walk(solved)))
    assert fits(blank, solved)


def test_fits_is_not_fooled() -> None:
    def compared(blank: str, solved: str) -> bool:
        return fits(ast.parse(blank), ast.parse(solved))

    assert compared("f(a=___)\n___\ng()", "f(a=b + 1)\nx = 1\ny = 2\ng()")
    assert not compared("f(a=___)", "f(b=1)")
    assert not compared("___\ng()", "g()")
    assert not compared("f(___)", "f(___)")
    assert not compared("f(1)", "f(1.5)")


def test_as_it_stands_a_blank_is_left(puzzle: Exercise) -> None:
    result = puzzle.check(kernel_of(sheet()[puzzle.name], puzzle.name))
    assert result.outcome == "blank" and not result.passed and "to fill in" in result.reason


def test_the_solution_is_right_and_at_par(puzzle: Exercise) -> None:
    kernel = getattr(puzzle_solutions, puzzle.name)
    first, other = puzzle.check(kernel), puzzle.check(kernel, seed=7)
    assert first.passed and other.passed, f"{first}\n{other}"
    assert first.reason == "at par", "python tests/notebook/puzzle_solutions.py prints what each one costs now"


@pytest.mark.parametrize(
    ("name", "find", "instead", "reason"),
    [(name, *variant) for name, variants in WRONG.items() for variant in variants],
)
def test_a_wrong_one_fails_for_its_reason(name: str, find: str, instead: str, reason: str) -> None:
    assert find in SOLUTIONS[name]
    result = getattr(puzzles, name).check(kernel_of(SOLUTIONS[name].replace(find, instead), name))
    assert not result.passed and result.cost is None
    if reason == FIRST_WRONG:
        assert result.outcome == "wrong" and result.reason.startswith(FIRST_WRONG), result
    elif reason == BLANK:
        assert result.outcome == "blank", result
    else:
        assert result.rule == reason, result


def test_hints_say_no_line_of_the_solution(puzzle: Exercise) -> None:
    assert len(puzzle.hints) >= 2
    lines = [line.strip() for line in SOLUTIONS[puzzle.name].splitlines() if len(line.strip()) > 20]
    assert not [line for line in lines for hint in puzzle.hints if line in hint]


def test_inputs_are_small_never_square_and_of_several_shapes(puzzle: Exercise) -> None:
    made = arrays(puzzle)
    assert len({tuple(array.shape for array in case) for case in made}) >= 2
    assert len({case.seed for case in puzzle.cases()}) == len(made)
    for array in (array for case in made for array in case):
        assert len(set(array.shape)) == array.ndim and array.nbytes < 1_000_000
    assert not np.array_equal(made[0][0], made[1][0])


def test_par_can_be_beaten() -> None:
    direct = """
def copy_a_tile(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out
"""
    result = puzzles.copy_a_tile.check(kernel_of(direct, "copy_a_tile"))
    assert result.passed and result.reason == "under par by 1 instruction, 48.8 KiB of DMA"
    fused = SOLUTIONS["softmax_rows"].replace("    nisa.tensor_reduce(dst=total, op=nl.add, data=powers, axis=1)\n", "")
    fused = fused.replace("    nisa.activation(dst=powers, op=nl.exp, data=tile, bias=low)\n", "")
    both = "nisa.activation_reduce(dst=powers, op=nl.exp, data=tile, bias=low, reduce_op=nl.add, reduce_res=total)"
    fused = fused.replace("    share = ", f"    {both}\n    share = ")
    result = puzzles.softmax_rows.check(kernel_of(fused, "softmax_rows"))
    assert result.passed and result.reason.startswith("under par by 1 instruction"), result


def test_precision_that_is_not_needed_is_over_par() -> None:
    wide = SOLUTIONS["half_the_bits"].replace(
        "nisa.nc_matmul(dst=acc, stationary=w, moving=x",
        "nisa.nc_matmul(dst=acc, stationary=nl.copy(w, dtype=nl.float32), moving=nl.copy(x, dtype=nl.float32)",
    )
    result = puzzles.half_the_bits.check(kernel_of(wide, "half_the_bits"))
    assert result.passed and result.reason.startswith("over par by 6 instructions"), result

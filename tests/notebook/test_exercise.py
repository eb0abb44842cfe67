"""Exercises: what a check says of right, wrong, blank and refused kernels, in a session and called from Python."""

from __future__ import annotations

import inspect
import re
from typing import Any

import nki_sim
import numpy as np
import pytest
from puzzle_solutions import kernel_of
from runs import HOSTILE
from session import Notebook

from nki_nb.drawing import Picture
from nki_nb.exercise import REGISTRY, BlankError, Cost, Exercise, Result, ___
from nki_nb.exercise.blanks import find_blanks
from nki_nb.stepper.widget import StepperWidget

TEACHER = """
from nki_nb.exercise import Exercise, ___

halve = Exercise(
    "halve",
    spec=lambda x: x / 2,
    inputs=[["randn:96x130"], ["randn:40x21"]],
    hints=["nisa.tensor_scalar takes a number as operand0."],
)
"""
HALVE = """
def halve(x):
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=0.5)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
IMPORTS = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n"


def exercise(**changed: Any) -> Exercise:
    given: dict[str, Any] = {
        "name": "halve",
        "spec": lambda x: x / 2,
        "inputs": [["randn:96x130"], ["randn:40x21"]],
        "hints": ("a first hint", "a second hint"),
    }
    return Exercise(**{**given, **changed})


def kernel(find: str = "", instead: str = "") -> Any:
    assert find in HALVE
    return kernel_of(HALVE.replace(find, instead) if find else HALVE, "halve")


# -- in a notebook ---------------------------------------------------------------------------------------------------------


def test_a_teacher_writes_one_in_ten_lines(notebook: Notebook) -> None:
    assert len(TEACHER.strip().splitlines()) <= 10
    assert notebook.run(TEACHER).error is None
    shown = notebook.run(IMPORTS + HALVE.replace("def halve", "@nki.jit\ndef mine") + "\ndisplay(halve.check(mine))")
    assert shown.error is None and shown.text.startswith("halve: right\n  instructions  3\n")
    assert shown.mime("text/html")[0].startswith("<table")
    assert notebook.run("display(halve.hint())").text.strip() == "hint 1 of 1: nisa.tensor_scalar takes a number as operand0."


def test_the_ten_lines_are_those_of_the_docstring() -> None:
    shown = "\n".join(re.findall(r"^(?:>>>|\.\.\.) ?(.*)$", inspect.getdoc(Exercise) or "", re.M))
    assert shown == TEACHER.strip().replace("Exercise, ___\n\n", "Exercise\n")


def test_a_blank_is_no_exception_and_says_its_line(notebook: Notebook) -> None:
    notebook.run(TEACHER)
    source = HALVE.replace("operand0=0.5", "operand0=___").replace("def halve", "@nki.jit\ndef mine")
    shown = notebook.run(IMPORTS + source + "\nhalve.check(mine)")
    assert shown.error is None and "halve: 1 blank to fill in" in shown.text
    assert "line 8        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=___)" in shown.text


def test_kernels_of_magic_cells_can_be_checked(notebook: Notebook) -> None:
    notebook.run(TEACHER)
    notebook.run("%%nki\n@nki.jit\n" + HALVE.strip().replace("def halve", "def mine").replace("0.5", "___"))
    assert "1 blank to fill in" in notebook.run("halve.check(mine)").text
    notebook.run("%%nki\n@nki.jit\n" + HALVE.strip().replace("def halve", "def mine").replace("dst=tile, data", "dst=x, data"))
    shown = notebook.run("halve.check(mine)")
    assert "breaks a limit: tensor_scalar.buffers" in shown.text and "%%nki cell, line 5, in mine" in shown.text


def test_the_name_survives_outputs(notebook: Notebook) -> None:
    notebook.run(TEACHER)
    for _ in range(4):
        notebook.run("1 + 1")
    assert notebook.names["___"] is ___


def test_show_is_a_view_of_the_run(notebook: Notebook) -> None:
    notebook.run(TEACHER + IMPORTS + HALVE.replace("def halve", "@nki.jit\ndef mine"))
    shown = notebook.run("display(halve.show(mine))")
    assert shown.error is None and shown.mime("image/svg+xml")[0].startswith("<svg")


# -- what a check says -------------------------------------------------------------------------------------------------------


def test_right_is_right_and_costs() -> None:
    result = exercise(par=Cost(4, 99840, 60)).check(kernel())
    assert result.passed and result.cost == Cost(3, 99840, 65)
    assert result.headline == "halve: right, over par by 5 cycles, with 1 instruction less"
    assert result.as_dict()["par"] == {"instructions": 4, "dma_bytes": 99840, "cycles": 60}
    assert "instructions  3 (par 4)" in str(result) and "an estimate" in str(result)


def test_without_par_there_is_no_verdict() -> None:
    result = exercise().check(kernel())
    assert result.headline == "halve: right" and result.par is None


def test_wrong_says_the_first_element_and_the_inputs() -> None:
    result = exercise().check(kernel("0.5", "0.25"))
    assert result.outcome == "wrong"
    assert re.fullmatch(r"first wrong element result\[0, 0\]: got \S+, wanted \S+", result.reason)
    assert "12480 of 12480 elements" in str(result) and "x float32 [96 × 130], seed 0" in str(result)


def test_right_for_one_shape_only_is_wrong() -> None:
    fixed = kernel("tile = nl.load(x)", "tile = nl.load(x[0:96, :]) if x.shape[0] >= 96 else nl.multiply(nl.load(x), 3.0)")
    result = exercise().check(fixed)
    assert result.outcome == "wrong" and "x float32 [40 × 21], seed 2" in str(result)


def test_right_for_one_seed_only_is_wrong() -> None:
    first = exercise()
    learned = kernel("tile = nl.load(x)", "tile = nl.load(nl.shared_constant(VALUES))")
    learned.__globals__["VALUES"] = first._arguments(first.cases()[0])[0]
    result = first.check(learned)
    assert result.outcome == "wrong" and "seed 1" in str(result)


def test_a_broken_limit_has_the_diagnosis() -> None:
    result = exercise(inputs=[["randn:200x30"], ["randn:40x21"]]).check(kernel())
    assert result.outcome == "limit" and result.rule == "nl.load_partition_le_128"
    assert "cell, line 3, in halve" in str(result) and "fix" in str(result) and "ipython-input" not in str(result)


def test_findings_are_errors_unless_told_otherwise() -> None:
    late = kernel("tile = nl.load(x)", "tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)")
    assert exercise().check(late).rule == "ndarray.uninitialised"
    assert exercise(strict=False).check(late).outcome == "wrong"


def test_python_that_raises_says_its_line() -> None:
    result = exercise().check(kernel("tile = nl.load(x)", "tile = nl.load(x[missing])"))
    assert result.outcome == "raised" and result.reason == "NameError: name 'missing' is not defined"
    assert "cell, line 3, in halve" in str(result)


def test_a_wrong_shape_dtype_or_count_is_said() -> None:
    turned = exercise(spec=lambda x: x.T / 2).check(kernel())
    assert turned.reason == "shape [96 × 130] but [130 × 96] expected"
    assert exercise(spec=lambda x: (x / 2, x)).check(kernel()).reason == "1 outputs but 2 references"
    short = exercise(spec=lambda x: (x / 2).astype(np.float16)).check(kernel())
    assert short.reason == "result is float32 [96 × 130], wanted float16 [96 × 130]"
    assert exercise(spec=lambda x: x.astype(np.float64) / 2).check(kernel()).passed


def test_giving_back_the_input_is_no_kernel() -> None:
    result = exercise(spec=lambda x: x).check(lambda x: x)
    assert result.outcome == "wrong" and "no instruction" in result.reason


def test_a_kernel_that_writes_its_input_does_not_change_the_next_case() -> None:
    writes = kernel("nisa.dma_copy(dst=out", "nisa.dma_copy(dst=x, src=tile)\n    nisa.dma_copy(dst=out")
    assert exercise().check(writes).passed and exercise().check(kernel()).passed


def test_the_reference_is_never_shown() -> None:
    secret = kernel("tile = nl.load(x)", "tile = nl.load(x)  # THE SOLUTION")
    made = exercise(par=secret)
    said = [made.check(kernel()), made.check(kernel("0.5", "0.25")), made.check(kernel("0.5", "___")), made, made.hint()]
    assert said[0].reason == "at par"
    assert not [text for text in map(str, said) if "SOLUTION" in text]
    broken = exercise(par=kernel("nl.load(x)", "nl.load(x[0:500])  # THE SOLUTION"))
    with pytest.raises(ValueError, match="the kernel given as par does not run") as raised:
        broken.check(kernel())
    assert "SOLUTION" not in str(raised.value) and raised.value.__context__ is None


def test_hints_come_one_by_one_and_only_when_asked() -> None:
    made = exercise()
    for given in (kernel("0.5", "___"), kernel("0.5", "1")):
        assert "a first hint" not in str(made.check(given)) + made.check(given)._repr_html_()
    assert [made.hint().text for _ in range(3)] == [
        "hint 1 of 2: a first hint",
        "hint 2 of 2: a second hint",
        "hint 1 of 2: a first hint",
    ]
    assert exercise(hints=()).hint().text == "halve has no hints"


def test_names_and_messages_do_not_become_markup() -> None:
    made = exercise(name=HOSTILE, hints=(HOSTILE,))
    raising = kernel("tile = nl.load(x)", f"raise ValueError({HOSTILE!r})")
    results = [made.check(k) for k in (kernel(), kernel("0.5", "0.25"), kernel("0.5", "___"), raising)]
    results.append(made.check(kernel("dst=tile, data", "dst=x, data")))
    assert {r.outcome for r in results} == {"right", "wrong", "blank", "raised", "limit"}
    for result in results:
        html = result._repr_html_()
        assert "<script" not in html and "\x01" not in html and "&lt;script&gt;" in html


def test_says_the_same_every_time() -> None:
    for given in (kernel(), kernel("0.5", "0.25"), kernel("0.5", "___")):
        first, again = exercise().check(given), exercise().check(given)
        assert str(first) == str(again) and first._repr_html_() == again._repr_html_()


def test_inputs_by_a_function_and_sizes() -> None:
    made = exercise(inputs=lambda random, n, m: random.random((n, m), np.float32), sizes=[(3, 5), (7, 4)])
    assert [case.made_from for case in made.cases()] == [(3, 5), (3, 5), (7, 4)]
    assert made.check(kernel()).passed


def test_what_is_no_text_is_passed_on() -> None:
    made = exercise(spec=lambda x, factor: x * np.float32(factor), inputs=[["randn:3x5", 2.0], ["randn:4x7", 3.0]])
    scaled = kernel_of(HALVE.replace("(x)", "(x, factor)", 1).replace("0.5", "factor"), "halve")
    assert made.check(scaled).passed


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": ""}, "has a name"),
        ({"name": 5}, "has a name"),
        ({"inputs": []}, "inputs are a list of cases"),
        ({"inputs": ["randn:3x5"]}, "inputs are a list of cases"),
        ({"sizes": [(3, 5)]}, "sizes are for a function"),
        ({"hints": "one"}, "hints are a list"),
        ({"target": "trn9"}, "trn9"),
    ],
)
def test_a_definition_that_makes_no_sense(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        exercise(**changed)


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(TypeError, match="check takes a kernel"):
        exercise().check(3)
    assert exercise().check(___).outcome == "blank"


# -- show ----------------------------------------------------------------------------------------------------------------------


def test_show_of_right_refused_and_blank() -> None:
    made = exercise()
    assert isinstance(made.show(kernel()), StepperWidget)
    assert isinstance(made.show(kernel(), "memory"), Picture) and isinstance(made.show(kernel(), "program"), Picture)
    assert isinstance(made.show(kernel("dst=tile, data", "dst=x, data")), StepperWidget)
    for unfinished in (kernel("0.5", "___"), kernel("tile = nl.load(x)", "1 / 0")):
        assert isinstance(made.show(unfinished), Result)
    with pytest.raises(ValueError, match="view is step, memory or program"):
        made.show(kernel(), "tea")


# -- blanks and the registry ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        lambda: ___ + 1,
        lambda: 2 * ___,
        lambda: ___[0],
        lambda: ___(1),
        lambda: list(___),
        lambda: range(___),
        lambda: ___.shape,
        lambda: bool(___),
        lambda: ___ < 3,
        lambda: -___,
    ],
)
def test_a_blank_says_what_it_is_when_used(use: Any) -> None:
    with pytest.raises(BlankError, match="fill in the blank"):
        use()


def test_a_kernel_called_with_a_blank_says_so() -> None:
    with pytest.raises(BlankError, match="fill in the blank"):
        nki_sim.run(kernel("0.5", "___"), np.ones((3, 5), np.float32))


def test_blanks_are_found_without_running() -> None:
    helped = kernel_of("def scale(t):\n    return ___\n" + HALVE.replace("operand0=0.5", "operand0=scale(tile)"), "halve")
    assert [place.line for place in find_blanks(helped)] == [2]
    assert exercise().check(helped).outcome == "blank"
    nested = kernel("tile = nl.load(x)", "tile = nl.load(x)\n    if False:\n        f = lambda: ___")
    assert [place.text for place in find_blanks(nested)] == ["f = lambda: ___"]
    assert [place.count for place in find_blanks(eval("lambda x: ___ + ___", {}))] == [1]  # noqa: S307 - no source to count in
    assert find_blanks(kernel()) == ()


def test_a_blank_reached_another_way_is_still_one() -> None:
    hidden = kernel("0.5", "GLOBAL")
    hidden.__globals__["GLOBAL"] = ___
    assert exercise().check(hidden).outcome == "blank"


def test_the_registry_knows_exercises_and_what_was_handed_in() -> None:
    handed_in: list[tuple[Exercise, Any]] = []
    REGISTRY.listeners.append(lambda made, given: handed_in.append((made, given)))
    try:
        made, given = exercise(name="registered"), kernel()
        made.check(given)
    finally:
        REGISTRY.listeners.pop()
    assert handed_in == [(made, given)] and REGISTRY.known["registered"] is made

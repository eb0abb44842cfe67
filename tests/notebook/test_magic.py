"""``%%nki`` and ``%nki`` in a real shell."""

from __future__ import annotations

import inspect
import linecache
import os
import re
import types
import warnings

import ml_dtypes
import numpy as np
import pytest
from IPython.core.completer import provisionalcompleter
from nki_sim import NkiValidationError, NkiWarning
from nki_sim.cache import KERNELS
from nki_sim.errors import NkiCapacityError
from nki_sim.replay import PROGRAMS, scratch
from session import Notebook
from sources import DOUBLE, FORGETFUL, GREEDY, HOARDER, IN_PLACE, MATMUL, TWO

from nki_nb import completion
from nki_nb.check import CheckError


def test_runs_checks_and_reports(notebook: Notebook) -> None:
    shown = notebook.run('%%nki c = matmul(lhsT, rhs) --check "lhsT.T @ rhs"\n' + MATMUL)
    assert shown.error is None
    np.testing.assert_array_equal(notebook.names["c"], notebook.names["lhsT"].T @ notebook.names["rhs"])
    assert "matmul · trn2 (NeuronCore-v3) · lnc 1" in shown.text
    assert "check lhsT.T @ rhs: ok   max abs 0 · rel 0 · cos 1.000000" in shown.text
    assert shown.errors == ""


def test_a_cell_says_the_same_twice(notebook: Notebook) -> None:
    cell = '%%nki c = matmul(lhsT, rhs) --check "lhsT.T @ rhs" --view memory --view program\n' + MATMUL
    assert notebook.run(cell).displays == notebook.run(cell).displays


def test_kernels_stay_for_later_cells(notebook: Notebook) -> None:
    notebook.run("%%nki\n" + DOUBLE)
    assert notebook.run("d = double(rhs[:96])").error is None
    np.testing.assert_array_equal(notebook.names["d"], notebook.names["rhs"][:96] * 2)
    assert notebook.run("%nki e = double(rhs[:5, :7])").error is None
    assert notebook.names["e"].shape == (5, 7)


def test_without_a_call_kernels_are_linted(notebook: Notebook) -> None:
    shown = notebook.run("%%nki\n" + DOUBLE.replace("tensor_scalar", "tensor_scale"))
    assert shown.error is None
    assert "defined double · 1 finding" in shown.text
    assert "line 6" in shown.text


def test_no_run_defines_only(notebook: Notebook) -> None:
    shown = notebook.run("%%nki d = double(rhs) --no-run\n" + DOUBLE)
    assert "defined double · nothing found" in shown.text
    assert "d" not in notebook.names


def test_a_limit_is_a_diagnosis_with_the_cells_line(notebook: Notebook) -> None:
    shown = notebook.run("%%nki d = double(rhs)\n" + DOUBLE)
    assert isinstance(shown.error, NkiValidationError)
    assert shown.error.diagnosis.line == 4
    assert "%%nki cell, line 4, in double" in shown.text
    assert "320" in shown.text and "128" in shown.text
    (html,) = shown.mime("text/html")
    assert "limit" in html and "why" in html and "fix" in html


def test_an_error_shows_no_path_of_the_machine(notebook: Notebook) -> None:
    for cell in ("%%nki d = double(rhs)\n" + DOUBLE, "%%nki\nx = 1 / 0", "%%nki\ndouble(rhs)\n" + DOUBLE):
        shown = notebook.run(cell)
        assert shown.error is not None
        assert "site-packages" not in shown.text
        assert os.path.dirname(os.path.dirname(inspect.getfile(NkiValidationError))) not in shown.text
        assert not re.search(r"0x[0-9a-f]{6}", shown.text)


def test_a_plain_cell_shows_the_same_diagnosis(notebook: Notebook) -> None:
    notebook.run("%%nki\n" + DOUBLE)
    shown = notebook.run("double(rhs)")
    assert isinstance(shown.error, NkiValidationError)
    assert len(shown.mime("text/html")) == 1
    assert shown.printed.count("\n") <= 2


def test_a_wrong_result_fails_after_its_report(notebook: Notebook) -> None:
    shown = notebook.run('%%nki c = matmul(lhsT, rhs) --check "lhsT.T @ rhs"\n' + FORGETFUL)
    assert isinstance(shown.error, CheckError)
    assert "WRONG at" in shown.text and "first wrong c[0, 0]: got" in shown.text
    assert "c" in notebook.names


def test_tolerances(notebook: Notebook) -> None:
    source = '%%nki d = double(rhs[:96]) --check "rhs[:96] * 2.1" '
    assert isinstance(notebook.run(source + "--rtol 0.01\n" + DOUBLE).error, CheckError)
    assert notebook.run(source + "--rtol 0.1 --atol 0\n" + DOUBLE).error is None


def test_the_reference_is_taken_before_an_input_is_written(notebook: Notebook) -> None:
    notebook.run("a = rhs[:64].copy()")
    shown = notebook.run("%%nki add_one(a)\n" + IN_PLACE)
    assert "no output; wrote x" in shown.text
    np.testing.assert_array_equal(notebook.names["a"], notebook.names["rhs"][:64] + 1)


def test_several_outputs_have_several_names(notebook: Notebook) -> None:
    shown = notebook.run('%%nki twice, thrice = both(rhs[:9]) --check "(rhs[:9] * 2, rhs[:9] * 3)"\n' + TWO)
    assert shown.error is None
    np.testing.assert_array_equal(notebook.names["thrice"], notebook.names["rhs"][:9] * 3)
    assert "twice" in shown.text and "thrice" in shown.text
    notebook.run("%%nki pair = both(rhs[:9])\n" + TWO)
    assert len(notebook.names["pair"]) == 2
    assert "UsageError" in notebook.run("%%nki one, two, three = both(rhs[:9])\n" + TWO).errors


def test_findings_are_in_the_report_and_nowhere_else(notebook: Notebook) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        shown = notebook.run("%%nki c = matmul(lhsT, rhs)\n" + GREEDY)
    assert shown.error is None and shown.errors == ""
    assert "nc_matmul.accumulate.first_must_overwrite" in shown.text
    assert np.isnan(notebook.names["c"]).all()


def test_findings_are_python_warnings_too(notebook: Notebook) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", NkiWarning)
        assert isinstance(notebook.run("%%nki c = matmul(lhsT, rhs)\n" + GREEDY).error, NkiWarning)


def test_strict_makes_findings_errors(notebook: Notebook) -> None:
    assert isinstance(notebook.run("%%nki c = matmul(lhsT, rhs) --strict\n" + GREEDY).error, NkiValidationError)


def test_fit_takes_an_order_in_which_the_tiles_fit(notebook: Notebook) -> None:
    notebook.names["some"] = np.ones((128, 8), np.float32)
    assert isinstance(notebook.run("%%nki out = hoarder(some)\n" + HOARDER).error, NkiCapacityError)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        shown = notebook.run("%%nki out = hoarder(some) --fit compiler --view memory\n" + HOARDER)
    assert shown.error is None and "memory.relisted" in shown.text
    assert (notebook.names["out"] == 1).all()


def test_fp32_keeps_low_precision_wide(notebook: Notebook) -> None:
    notebook.names["half"] = notebook.names["rhs"][:7].astype(ml_dtypes.bfloat16)
    assert "bfloat16 [7 × 200]" in notebook.run("%%nki d = double(half)\n" + DOUBLE).text
    shown = notebook.run("%%nki d = double(half) --fp32\n" + DOUBLE)
    assert "float32 [7 × 200]" in shown.text and "low precision stored as fp32" in shown.text


def test_targets(notebook: Notebook) -> None:
    assert "trn3 (NeuronCore-v4)" in notebook.run("%%nki d = double(rhs[:3]) --target trn3\n" + DOUBLE).text
    assert "trn2 (NeuronCore-v3)" in notebook.run("%nki target").text
    notebook.run("%nki target gen2")
    assert "trn1 (NeuronCore-v2)" in notebook.run("%nki d = double(rhs[:3])").text
    notebook.run("%nki reset")
    assert "trn2" in notebook.run("%nki target").text


def test_limits_read_while_a_cell_is_defined_are_those_of_its_target(notebook: Notebook) -> None:
    notebook.run("%%nki --target trn1\nroom = nl.tile_size.sbuf_fmax_bytes")
    trn1 = notebook.names["room"]
    notebook.run("%%nki\nroom = nl.tile_size.sbuf_fmax_bytes")
    assert trn1 < notebook.names["room"]
    assert "NEURON_PLATFORM_TARGET_OVERRIDE" not in os.environ


def test_lnc(notebook: Notebook) -> None:
    assert "lnc 1" in notebook.run("%%nki d = double(rhs[:3]) --lnc 1\n" + DOUBLE).text
    assert isinstance(notebook.run("%%nki d = double(rhs[:3]) --lnc 3\n" + DOUBLE).error, NkiValidationError)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("d = double(rhs) --target trn9", "unknown target 'trn9'"),
        ("d = double(rhs) --tarmac trn2", "unrecognized arguments"),
        ("d = double(rhs", "closing bracket"),
        ("d = double", "expected a call"),
        ("d.x = double(rhs)", "expected a call"),
        ("double(rhs) or 1", "expected a call"),
        ('d = double(rhs) --check "rhs *"', "--check takes an expression"),
        ("d = double(rhs) --view clockwork", "invalid choice"),
        ("d = double(rhs) --rtol much", "invalid float"),
    ],
)
def test_a_line_that_cannot_be_read(notebook: Notebook, line: str, said: str) -> None:
    shown = notebook.run(f"%%nki {line}\n" + DOUBLE)
    assert shown.error is not None
    assert "UsageError" in shown.errors and said in shown.errors


def test_a_syntax_error_has_the_cells_line(notebook: Notebook) -> None:
    shown = notebook.run("%%nki d = double(rhs)\n@nki.jit\ndef double(x):\n    return (x +* 2)\n")
    assert type(shown.error).__name__ == "CellSyntaxError"
    assert "line 4" in str(shown.error)
    assert "return (x +* 2)" in shown.text


def test_unknown_names(notebook: Notebook) -> None:
    shown = notebook.run("%%nki d = dubble(rhs)\n" + DOUBLE)
    assert isinstance(shown.error, NameError)
    assert "%%nki cell, line 1" in shown.text and "dubble" in shown.text
    assert isinstance(notebook.run("%%nki d = double(missing)\n" + DOUBLE).error, NameError)


def test_a_call_that_does_not_fit(notebook: Notebook) -> None:
    for call in ("double()", "double(rhs, rhs)", "double(y=rhs)"):
        shown = notebook.run(f"%%nki d = {call}\n" + DOUBLE)
        assert isinstance(shown.error, TypeError)
        assert "double(x)" in shown.text


def test_what_is_not_a_function(notebook: Notebook) -> None:
    assert "rhs is no kernel but a ndarray" in notebook.run("%%nki d = rhs(3)\n" + DOUBLE).errors


def test_a_run_of_a_plain_cell_displays_as_a_report(notebook: Notebook) -> None:
    notebook.run("%%nki\n" + DOUBLE)
    shown = notebook.run("import nki_sim\nnki_sim.run(double, rhs[:3])")
    assert "double · trn2 (NeuronCore-v3) · lnc 1" in shown.printed + shown.text
    notebook.run('%%nki d = double(rhs[:3]) --check "rhs[:3] * 2"\n' + DOUBLE)
    assert "check rhs[:3] * 2: ok" in notebook.run("%nki last").printed


def test_errors_of_the_cells_own_code_keep_their_type(notebook: Notebook) -> None:
    shown = notebook.run("%%nki d = broken(rhs)\n@nki.jit\ndef broken(x):\n    return {}['key']\n")
    assert isinstance(shown.error, KeyError)
    assert "%%nki cell, line 4, in broken" in shown.printed
    assert "called from" in shown.printed or "line 4" in shown.printed


def test_source_and_lines_are_registered(notebook: Notebook) -> None:
    notebook.run("%%nki\n" + DOUBLE)
    kernel = notebook.names["double"]
    assert inspect.getsource(kernel) == DOUBLE
    filename = kernel.function.__code__.co_filename
    linecache.checkcache()
    assert linecache.getline(filename, 3) == "def double(x):\n"
    notebook.run("%%nki\n" + DOUBLE.replace("2.0", "4.0"))
    assert linecache.getline(filename, 6).count("operand0=2.0") == 1


def test_breakpoint_stops_in_the_cell(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    stops: list[str] = []

    def hook() -> None:
        frame = inspect.currentframe()
        assert frame is not None and frame.f_back is not None
        stops.append(linecache.getline(frame.f_back.f_code.co_filename, frame.f_back.f_lineno).strip())

    monkeypatch.setattr("sys.breakpointhook", hook)
    notebook.run("%%nki d = double(rhs[:3])\n" + DOUBLE.replace("    tile", "    breakpoint()  # here\n    tile", 1))
    assert stops == ["breakpoint()  # here"]


# -- names of the cell -----------------------------------------------------------------------------------------------


def test_a_real_nki_of_the_notebook_is_left_alone(notebook: Notebook) -> None:
    real = types.ModuleType("nki")
    notebook.names.update(nki=real, nl="mine")
    cell = "import nki\nimport nki.isa as nisa\nfrom nki.language import sbuf as place\nimport nki.language as nl\n"
    shown = notebook.run("%%nki d = double(rhs[:3])\n" + cell + DOUBLE)
    assert shown.error is None, shown.text
    assert notebook.names["nki"] is real and notebook.names["nl"] == "mine"
    assert "place" not in notebook.names and "nisa" not in notebook.names


def test_imports_inside_a_kernel_stay_the_simulators(notebook: Notebook) -> None:
    inside = DOUBLE.replace("    tile", "    import nki.language as nl\n    from nki import isa as nisa\n    tile", 1)
    notebook.run("%%nki\n" + inside)
    assert notebook.run("d = double(rhs[:3])").error is None


def test_unknown_imports_explain_themselves(notebook: Notebook) -> None:
    assert "nki.isa has no multiply" in notebook.run("%%nki\nfrom nki.isa import multiply").text
    assert isinstance(notebook.run("%%nki\nimport nki.bogus").error, ModuleNotFoundError)


def test_the_cell_sees_later_changes_of_the_notebook(notebook: Notebook) -> None:
    notebook.run("factor = 2.0")
    notebook.run("%%nki\n" + DOUBLE.replace("operand0=2.0", "operand0=factor"))
    notebook.run("factor = 5.0")
    notebook.run("d = double(rhs[:3])")
    np.testing.assert_array_equal(notebook.names["d"], notebook.names["rhs"][:3] * 5)


def test_numpy_is_there_and_the_notebooks_own_np_wins(notebook: Notebook) -> None:
    assert notebook.run("%%nki\nzero = np.zeros(1)").error is None
    notebook.names["np"] = "mine"
    notebook.run("%%nki\nseen = np")
    assert notebook.names["seen"] == "mine"


def test_names_the_cell_defines_are_the_notebooks(notebook: Notebook) -> None:
    notebook.run("%%nki\nsize = 3\ndel rhs\n")
    assert notebook.names["size"] == 3 and "rhs" not in notebook.names


# -- %nki ------------------------------------------------------------------------------------------------------------


def test_last_shows_and_gives_the_run(notebook: Notebook) -> None:
    assert "UsageError" in notebook.run("%nki last").errors
    notebook.run("%%nki c = matmul(lhsT, rhs)\n" + MATMUL)
    notebook.run("run = %nki last")
    run = notebook.names["run"]
    assert run.counts["nc_matmul"] == 3 and run.memory.peak_banks == 1
    assert len(run.program) == 11


def test_info_names_what_is_not_documented(notebook: Notebook) -> None:
    shown = notebook.run("info = %nki info")
    assert shown.error is None
    assert "212984 *" in str(notebook.names["info"])
    assert "212984 *" in notebook.names["info"]._repr_html_()


def test_help_explains_a_rule(notebook: Notebook) -> None:
    notebook.run("page = %nki help hw.partition_dim_le_128")
    assert "128" in str(notebook.names["page"]) and "why" in str(notebook.names["page"])
    notebook.run("page = %nki help nc_matmul")
    assert len(notebook.names["page"].rules) > 5
    assert "nc_matmul.k_le_128" in notebook.run("%nki help nc_matmul.k_le_129").text
    assert "nothing about" in notebook.run("%nki help zzzzqqqq").errors
    assert "help about what?" in notebook.run("%nki help").errors


def test_unknown_command(notebook: Notebook) -> None:
    assert "target | info | last | profile | lint | help | reset" in notebook.run("%nki frobnicate").errors
    assert "unknown target" in notebook.run("%nki target trn9").errors


def test_question_mark_explains_the_options(notebook: Notebook) -> None:
    shown = notebook.run("%%nki?")
    assert "--check EXPR" in shown.text and "%%nki" in shown.text


def test_tab_completes(notebook: Notebook) -> None:
    def complete(line: str) -> set[str]:
        with provisionalcompleter():
            return {found.text for found in notebook.shell.Completer.completions(line, len(line))}

    assert {"--target", "--check", "--view"} <= complete("%%nki c = f(x) --")
    assert {"--target"} == complete("%%nki c = f(x) --ta")
    assert {"memory", "program", "timeline"} <= complete("%%nki c = f(x) --view ")
    assert {"trn1", "trn2", "trn3"} <= complete("%%nki --target ")
    assert {"trn2"} <= complete("%nki target trn2")
    assert {"--json", "--order"} <= complete("%nki profile --")
    assert {"compiler", "program"} <= complete("%nki profile --order ")
    assert "nc_matmul.k_equal" in complete("%nki help nc_matmul.k_e")
    assert {"nc_matmul", "nc_match_replace8"} <= complete("%nki help nc_mat")
    assert "NkiTensor.permute" in complete("%nki help NkiTensor.p")


def test_completion_knows_every_option_and_command(notebook: Notebook) -> None:
    magics = notebook.shell.magics_manager.registry["NkiMagics"]
    assert all(option in magics.run_cell.__doc__ for option in completion.OPTIONS)
    assert magics.run_cell.__doc__.count("\n  --") == len(completion.OPTIONS)
    assert " | ".join(completion.COMMANDS) in notebook.run("%nki frobnicate").errors


def test_unload_takes_everything_away(notebook: Notebook) -> None:
    notebook.run("%nki target trn3")
    notebook.run("%unload_ext nki_nb")
    assert "not found" in notebook.run("%nki info").errors
    assert notebook.shell.custom_exceptions == ()
    assert "NEURON_PLATFORM_TARGET_OVERRIDE" not in os.environ
    notebook.run("%load_ext nki_nb")
    assert notebook.run("%nki info").error is None


def test_reset_forgets_what_is_kept_for_the_next_run(notebook: Notebook) -> None:
    notebook.run("%%nki\n" + DOUBLE)
    KERNELS.clear()
    for _ in range(2):
        assert notebook.run("d = double(rhs[:128])").error is None
    scratch.give_back(scratch.take((256, 128)))
    assert len(KERNELS) == 1 and len(PROGRAMS) >= 1 and scratch.kept()
    assert notebook.run("%nki reset").error is None
    assert len(KERNELS) == len(PROGRAMS) == scratch.kept() == 0


def test_lint_of_a_call(notebook: Notebook) -> None:
    notebook.run("%%nki\n" + DOUBLE)
    before = notebook.names["rhs"].copy()
    notebook.run("x = rhs[:96]")
    shown = notebook.run("%nki lint double(x)")
    assert shown.error is None
    assert "double · 0 errors, 0 warnings\n" in shown.text and "trn1" in shown.text and "trn3" in shown.text
    assert (notebook.names["rhs"] == before).all()


def test_lint_shows_the_lines_of_cells(notebook: Notebook) -> None:
    notebook.run("%%nki\n" + DOUBLE.replace("    y =", "    spare = nl.exp(tile)\n    y ="))
    shown = notebook.run("found = %nki lint double(rhs[:96])\nfound")
    assert "warning: activation: writes spare, which nothing reads [dataflow.never_read]" in shown.text
    assert "%%nki cell:5" in shown.text
    found = notebook.names["found"]
    assert found.warnings == 1 and found._repr_html_().startswith("<pre") and "→" in found._repr_html_()


@pytest.mark.parametrize(("line", "words"), [("%nki lint", "expected a call"), ("%nki lint double", "expected a call")])
def test_lint_without_a_call(notebook: Notebook, line: str, words: str) -> None:
    assert words in str(notebook.run(line).error)

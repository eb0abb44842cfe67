"""What is said of a kernel before it runs: names, arguments, and what the frontend of 0.6 refuses."""

import textwrap

import pytest
from nki_sim.lint import kernel_names, lint, syntax_error

HEAD = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n\n@nki.jit\n"


def found(kernel, frontend="0.7"):
    """(rule, line within the kernel, text) of each finding; line 1 is the ``def``."""
    diagnoses = lint(HEAD + textwrap.dedent(kernel).lstrip(), "kernels.py", frontend=frontend)
    return [(d.rule.id, d.line - HEAD.count("\n"), d.text()) for d in diagnoses]


CLEAN = """
def kernel(x):
    t = nl.load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out
"""


@pytest.mark.parametrize("frontend", ["0.6", "0.7"])
def test_a_good_kernel_gives_no_finding(frontend):
    assert found(CLEAN, frontend) == []


@pytest.mark.parametrize(
    ("line", "rule", "words"),
    [
        ("nisa.multiply(x, 2.0)", "kernel.api_name", "nisa.tensor_scalar"),
        ("nl.arange(128)", "kernel.api_name", "nl.ds"),
        ("nl.softmx(x)", "kernel.api_name", "did you mean nki.language.softmax?"),
        ("nisa.memset(dst=x, value=0, mask=True)", "kernel.unexpected_kwargs", "unexpected argument mask"),
        ("nisa.memset(value=0)", "lang.isa_dst_required", "missing dst"),
        ("nisa.nc_matmul(x, stationary=x)", "lang.isa_dst_required", "missing moving"),
        ("e = nisa.vector_engine", "kernel.deprecated_name", "write nisa.engine.vector"),
        ("for i in nl.affine_range(4): pass", "kernel.deprecated_name", "write Python's range"),
        ("n = nl.tile_size.psum_fmax", "kernel.deprecated_name", "write nl.tile_size.psum_bank_fmax"),
        ("nisa.dma_copy(dst=x, src=x, dge_mode=3)", "kernel.enum_members", "write nisa.dge_mode.none"),
        ("nisa.dma_copy(dst=x, src=x, dge_mode=9)", "kernel.enum_members", "dge_mode is 9, not a member of nisa.dge_mode"),
    ],
)
def test_names_and_arguments(line, rule, words):
    [(got, at, text)] = found(f"def kernel(x):\n    y = x\n    {line}\n    return y\n")
    assert (got, at) == (rule, 3)
    assert words in text and "kernels.py, line" in text


def test_aliases_of_imports_are_followed():
    source = (
        "from nki import jit\nimport nki.isa\nfrom nki import language as lang\n"
        "@jit\ndef kernel(x):\n    nki.isa.multiply(x)\n    lang.arange(3)\n    y.isa.multiply(x)\n"
    )
    assert [d.line for d in lint(source, "kernels.py")] == [6, 7]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import neuronxcc.nki as nki", "import of neuronxcc.nki"),
        ("import neuronxcc.nki.language as nl", "import of neuronxcc.nki.language"),
        ("from neuronxcc import nki", "import of neuronxcc.nki"),
        ("from neuronxcc.nki import language", "import of neuronxcc.nki.language"),
    ],
)
def test_imports_of_the_old_namespace(text, words):
    [diagnosis] = lint(f"x = 1\n{text}\n", "kernels.py")
    assert (diagnosis.rule.id, diagnosis.line, diagnosis.headline) == ("kernel.legacy_namespace", 2, words)


def test_an_import_that_may_fail_is_left_alone():
    assert lint("try:\n    import neuronxcc.nki as nki\nexcept ImportError:\n    import nki\n", "kernels.py") == []


def test_kernels_of_the_old_namespace_are_read():
    source = "from neuronxcc import nki\nimport neuronxcc.nki.isa as nisa\n@nki.jit\ndef kernel(x):\n    nisa.multiply(x)\n"
    assert [(d.rule.id, d.line) for d in lint(source, "kernels.py")] == [
        ("kernel.legacy_namespace", 1),
        ("kernel.legacy_namespace", 2),
        ("kernel.api_name", 5),
    ]


@pytest.mark.parametrize(
    ("launch", "fix"),
    [
        ("kernel[2](a)", "NEURON_LOGICAL_NC_CONFIG"),
        ("kernel[1](a)", "call kernel(…)"),
        ("kernel[4, 2](a)", "loops over tiles inside of the kernel"),
    ],
)
def test_launches_with_brackets(launch, fix):
    source = f"import nki\n@nki.jit\ndef kernel(x):\n    return x\nother[2](a)\nkernel(a)\ny = {launch}\n"
    [diagnosis] = lint(source, "kernels.py")
    assert (diagnosis.rule.id, diagnosis.line) == ("kernel.bracket_launch", 7)
    assert fix in diagnosis.text()
    assert diagnosis.site.span[2:] == (4, 4 + len(launch) - 3)


def test_functions_that_are_no_kernels_are_left_alone():
    assert lint("import nki.isa as nisa\ndef helper(x):\n    nisa.multiply(x)\n", "kernels.py") == []


@pytest.mark.parametrize(
    ("kernel", "rule", "words"),
    [
        ("def kernel(x):\n    return [t for t in x]\n", "lang.unsupported_python", "list comprehension"),
        ("def kernel(x):\n    return (lambda t: t)(x)\n", "lang.unsupported_python", "lambda"),
        ("def kernel(x):\n    def f(t): return t\n    return f(x)\n", "lang.unsupported_python", "inner function f"),
        ("def kernel(x):\n    x[0] = 1\n    return x\n", "lang.unsupported_python", "assignment to an item"),
        ("def kernel(x):\n    return 1 if x is None else 2\n", "kernel.no_is", "is in a comparison"),
        ("def kernel(x, *, n=1):\n    return x\n", "kernel.no_kwonly_star", "keyword-only"),
        ("def kernel(x, n=[1]):\n    return x\n", "kernel.no_list_args", "a list as default"),
        ("def kernel(x):\n    return {1: x}\n", "lang.dict_string_keys", "no string"),
    ],
)
def test_the_frontend_of_0_6_refuses_what_0_7_takes(kernel, rule, words):
    assert found(kernel, "0.7") == []
    [(got, _, text)] = found(kernel, "0.6")
    assert got == rule
    assert words in text


def test_an_unknown_frontend_and_text_that_is_no_python():
    with pytest.raises(ValueError, match=r"frontend '0\.5' is neither"):
        lint(CLEAN, "kernels.py", frontend="0.5")
    with pytest.raises(SyntaxError):
        lint("def kernel(:", "kernels.py")


def test_text_that_is_no_python_as_a_finding():
    with pytest.raises(SyntaxError) as caught:
        lint("x = 1\ndef kernel(:\n", "kernels.py")
    diagnosis = syntax_error(caught.value, "kernels.py")
    assert (diagnosis.rule.id, diagnosis.line, diagnosis.site.span[2]) == ("kernel.python_syntax", 2, 11)


def test_the_kernels_of_a_text():
    source = "import nki\n@nki.jit\ndef a(x): ...\ndef b(x): ...\n@nki.jit(compile_config=None)\ndef c(x): ...\n"
    assert kernel_names(source) == ["a", "c"]

"""Imports run one way, and the simulator needs NumPy only; it uses ml-dtypes where that is installed."""

import ast
import subprocess
import sys
from pathlib import Path

import nki_sim
import pytest

ROOT = Path(nki_sim.__file__).parent
ORDER = [
    "hw", "recent", "lowprec", "dtypes", "mx", "ops", "source", "errors", "config", "context", "marks", "claims", "memory",
    "tensor", "run_time_loops", "copies", "scalars", "unrolled", "psum", "clobbers", "isa", "deprecated", "program", "pending",
    "regions", "placement", "reporting", "machine", "collectives", "timing", "cores", "dataflow", "trace", "rewriting",
    "spilling", "fitting", "lang", "calls", "hints", "importer", "torch_rules", "arrays", "inputs", "run", "fingerprint",
    "replay", "cache", "kept", "kernel", "ranks", "estimate", "step", "jax_arrays", "migration", "lint", "verify", "reference",
    "torch", "api",
]  # fmt: skip
"""Each module imports only from those before it (and from its own package)."""
NOT_IN_THE_BROWSER = {
    "curses", "dbm", "ensurepip", "fcntl", "grp", "mmap", "multiprocessing", "pty", "pwd", "resource", "signal", "socket",
    "ssl", "subprocess", "syslog", "termios", "tkinter", "venv",
}  # fmt: skip
"""Modules of the standard library that Pyodide lacks, or that do nothing there."""


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        yield path, ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)


def typing_only(tree):
    """Nodes under ``if TYPE_CHECKING:``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield from ast.walk(node)


def imports(path):
    """Absolute names that a module imports when it runs."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {id(node) for node in typing_only(tree)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path.name}: relative import"
            yield node.module
            if node.module == "nki_sim":
                yield from (f"nki_sim.{alias.name}" for alias in node.names)


def part(name):
    """``nki_sim.isa.base`` as ``isa``."""
    names = name.split(".")
    return names[1] if len(names) > 1 else ""


@pytest.mark.parametrize(("path", "name"), [pytest.param(p, n, id=n) for p, n in modules()])
def test_a_module_imports_only_what_comes_before_it(path, name):
    own = part(name)
    if own in ("", "__init__"):
        return
    for imported in imports(path):
        other = part(imported)
        if imported.partition(".")[0] != "nki_sim" or other in ("", own):
            continue
        assert other in ORDER, f"{other} has no place in ORDER"
        assert ORDER.index(other) < ORDER.index(own), f"{name} imports {imported}"


@pytest.mark.parametrize(("path", "name"), [pytest.param(p, n, id=n) for p, n in modules()])
def test_the_simulator_knows_nothing_of_notebooks(path, name):
    optional = {"ml_dtypes"} if name == "nki_sim.lowprec" else {"torch"} if part(name) == "torch" else set()
    allowed = {"numpy", "nki_sim", *optional, *sys.stdlib_module_names} - NOT_IN_THE_BROWSER
    assert {i.partition(".")[0] for i in imports(path)} <= allowed


def test_only_torch_neuronx_imports_what_needs_pytorch():
    inside = {name for path, name in modules() if part(name) != "torch" and any(part(i) == "torch" for i in imports(path))}
    assert inside == {"nki_sim.api.torch_neuronx.__init__"}


def test_import_nki_sim_loads_numpy_and_ml_dtypes_alone():
    text = "import sys, nki_sim; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = set(_output(text).split()) - set(sys.stdlib_module_names)
    ours = {"nki_sim", "numpy", "ml_dtypes"}
    assert ours <= loaded
    assert {m for m in loaded - ours if not m.startswith(("_", "cython"))} == set()


AT_FIRST_USE = {
    "nki_sim.cores", "nki_sim.collectives", "nki_sim.api.nki.collectives", "nki_sim.timing", "nki_sim.dataflow",
    "nki_sim.replay", "nki_sim.kept.digest", "nki_sim.kept.encoding", "nki_sim.reference", "nki_sim.lint",
    "nki_sim.migration", "nki_sim.torch", "hashlib", "tempfile", "inspect", "concurrent.futures", "urllib.request",
    "importlib.metadata", "multiprocessing",
}  # fmt: skip
"""What ``import nki`` does not load: it is for a second core, several ranks, times, a second call, help, a file."""


def test_what_only_some_need_is_loaded_at_first_use():
    text = "import sys, nki_sim; nki_sim.install(); import nki, nki.isa, nki.language; print(*sys.modules)"
    plain = "import sys, inspect, ml_dtypes, numpy, numpy.typing; print(*sys.modules)"
    loaded, already = (set(_output(code).split()) for code in (text, plain))
    assert "nki_sim.isa.nc_matmul" in loaded
    assert (loaded - already) & AT_FIRST_USE == set()


def _output(code):
    done = subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}"],
                          capture_output=True, text=True, check=True, timeout=60)  # fmt: skip
    return done.stdout


def test_nothing_about_the_machine_is_a_module_global():
    import nki_sim.context as context

    assert context.machine_or_none() is None
    assert nki_sim.core("trn1").target == "trn1"
    assert context.machine_or_none() is None

"""pytest plugin that runs the public NKI Library's own test suite (tag 2.29) on the simulator.

The suite has a CPU mode that expects a package ``nki_cpu_simulator``; this gives it ours under that name, and stand-ins for
what the public repository imports but does not hold. Nothing of the library is changed.

    PYTHONPATH=$NKILIB_ROOT/src:tests/conformance python -m pytest -p nkilib_plugin --test-mode simulation …
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import json
import math
import os
import re
import signal
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import nki_sim
import numpy as np
import pytest
from nki_sim import dtypes, mx
from nki_sim.run import RunOptions

RESULTS = os.environ.get("NKILIB_RESULTS")
"""Append one JSON object per case to this file."""
CASE_SECONDS = int(os.environ.get("NKILIB_CASE_SECONDS", "0"))
"""After how much of the process's time a case is given up, which other processes do not change; 0: never."""
SMALLEST = bool(os.environ.get("NKILIB_SMALLEST"))
"""Run one case of each test function, the smallest that the suite does not skip."""
LARGER = "a smaller case has run"
BLOCK = 1 << 15
"""Elements that are compared at a time."""
RAN: set[str] = set()
"""Test functions of which a case has run."""
CASE: dict[str, Any] = {}
"""What is known of the case that runs."""

_GEN = {"gen2": "trn1", "gen3": "trn2", "gen4": "trn3"}


def _module(name: str, **members: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    vars(made).update(members)
    sys.modules[name] = made
    return made


def _static_cast(array: Any, dtype: Any) -> Any:
    values, wanted = np.asarray(array), _numpy(dtype)
    if _packed(values.dtype):
        numbers = mx.unpack(_as_bits(values), _packed(values.dtype))
        values = numbers.reshape(*numbers.shape[:-2], -1)
    if _packed(wanted):
        groups = values.astype(np.float32).reshape(*values.shape[:-1], -1, mx.PACK)
        return np.ascontiguousarray(mx.pack(groups, _packed(wanted))).view(wanted)
    if values.dtype == np.float32 and wanted.names is None:  # rounds as ml_dtypes does, and faster
        made = np.empty(values.shape, wanted)
        dtypes.assign(made, values)
        return made
    return values.astype(wanted)


def _packed(dtype: np.dtype[Any]) -> str:
    """The NKI name of a packed NumPy type: a structure with one field, so named."""
    return dtype.names[0] if dtype.names else ""


def _as_bits(values: Any) -> Any:
    return np.ascontiguousarray(values).view(dtypes.TABLE[_packed(values.dtype)].storage)


def _numpy(dtype: Any) -> np.dtype[Any]:
    if isinstance(dtype, str) and dtype in PACKED:
        return PACKED[dtype]
    return dtypes.lookup(dtype).storage if isinstance(dtype, str) and dtype in dtypes.TABLE else np.dtype(dtype)


PACKED = {n: np.dtype([(n, np.uint8, dtypes.TABLE[n].itemsize)]) for n in mx.ELEMENTS}


def _library_dtypes() -> dict[str, Any]:
    names = {n: getattr(ml_dtypes, n) for n in ("bfloat16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")}
    return {**names, **PACKED}


def _stand_ins() -> None:
    kinds = _library_dtypes()
    _module(
        "neuron_dtypes",
        **kinds,
        static_cast=_static_cast,
        is_float_type=lambda d: dtypes.lookup(d).is_float,
        sizeinbytes=lambda d: _numpy(d).itemsize,
        finfo=ml_dtypes.finfo,
    )
    package = _module("neuronxcc")
    package.__path__ = []  # type: ignore[attr-defined]
    for name in ("neuronxcc.nki", "neuronxcc.starfish", "neuronxcc.starfish.support"):
        _module(name).__path__ = []  # type: ignore[attr-defined]
    _module("neuronxcc.nki.typing", mutable_tensor=object, tensor=object)
    _module("neuronxcc.starfish.support.dtype", static_cast=_static_cast, **kinds)
    _module("test.utils.perf_analysis_private", analyze_trace=lambda *a, **k: None)
    _module("test.utils.kernel_tracer", trace_kernel=_trace_kernel)
    _module("test.utils.scripts").__path__ = []  # type: ignore[attr-defined]
    lock = type("Lock", (), {})
    _module("test.utils.scripts.remote_lock_scripts", LockResult=lock, LockStatus=lock)


@contextlib.contextmanager
def _simulating() -> Iterator[None]:
    """Note how much of a case's time the simulator takes; the rest is the suite's inputs, references and comparisons."""
    began = time.perf_counter()
    try:
        yield
    finally:
        CASE["simulated"] = round(CASE.get("simulated", 0.0) + time.perf_counter() - began, 2)


class _CpuSimulate:
    """``nki.cpu_simulate(kernel)[cores](**inputs)``, as the suite calls it."""

    def __init__(self, kernel: Any):
        self.kernel = kernel

    def __getitem__(self, cores: int) -> Any:
        def call(**inputs: Any) -> Any:
            target = _GEN[os.environ.get("NKI_NC_VERSION", "gen3")]
            os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = target
            returned: list[str] = []
            kernel = nki_sim.jit(_viewing(self.kernel, inputs, returned))[cores]
            CASE.update(kernel=kernel.name, target=target, cores=kernel.lnc)
            with _simulating():
                run = kernel.run((), _plain(inputs), RunOptions(keep_inputs=False, fit="compiler"))
            CASE.update(instructions=len(run.program), findings=sorted({f.rule.id for f in run.findings if f.rule}))
            return _library_results(run.result, returned)

        return call


def _plain(inputs: dict[str, Any]) -> dict[str, Any]:
    """The arguments, with packed arrays as whole numbers: all that an array from outside can be.

    Arrays are copied: the suite computes its references after the run, and a cache that the kernel updates in place would show
    them its new values.
    """
    plain = {n: _as_bits(v) if isinstance(v, np.ndarray) and _packed(v.dtype) else v for n, v in inputs.items()}
    return {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in plain.items()}


def _viewing(kernel: Any, inputs: dict[str, Any], returned: list[str]) -> Any:
    """The kernel, to be called with those whole numbers; notes the dtypes of what it returns."""
    function = getattr(kernel, "function", kernel)
    packed = {n: _packed(v.dtype) for n, v in inputs.items() if isinstance(v, np.ndarray) and _packed(v.dtype)}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.arguments |= {n: bound.arguments[n].view(dtype) for n, dtype in packed.items()}
        result = function(*bound.args, **bound.kwargs)
        returned[:] = [t.dtype for t in (result if isinstance(result, (tuple, list)) else [result]) if t is not None]
        return result

    return call


def _library_results(result: Any, returned: list[str]) -> Any:
    """Results, of packed tensors in the library's types."""
    several = isinstance(result, (tuple, list))
    arrays = list(result) if several else [result]
    if len(arrays) == len(returned):
        arrays = [_Packed(a.view(PACKED[d])) if d in PACKED else a for a, d in zip(arrays, returned, strict=True)]
    return tuple(arrays) if several else arrays[0]


class _Packed:
    """A result of a packed type. The suite asks for some of them as float32 and means the same bytes."""

    def __init__(self, packed: Any):
        self.packed = packed

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.packed if dtype is None else self.packed.view(dtype)
        return array.copy() if copy else array


def _trace_kernel(kernel_under_test: Any, mode: Any, output_directory: Any, **_: Any) -> None:
    """What cases marked ``trace_only`` call: specialise the kernel, and let its errors out."""
    del mode, output_directory
    inputs = {k.removesuffix(".must_alias_input"): v for k, v in (kernel_under_test.kernel_input or {}).items()}
    os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = _GEN[kernel_under_test.compiler_input.platform_target.get_nc_gen()]
    nki_sim.run(nki_sim.jit(_viewing(kernel_under_test.kernel_func, inputs, [])), **_plain(inputs))


def _namespace() -> None:
    """Our modules under the names the suite imports, with the few names that NKI 0.3 had and 0.7 has not."""
    nki_sim.install()
    import nki
    import nki.collectives
    import nki.compiler
    import nki.isa
    import nki.language
    import nki.typing

    names = _module("nki.language.dtypes", **{n: n for n in dtypes.TABLE})
    nki.language.range = range  # type: ignore[attr-defined]
    nki.language.bool = "bool_"  # type: ignore[attr-defined]
    nki.typing.mutable_tensor = object  # type: ignore[attr-defined]
    constants = _module("nki.isa.constants", **{n: getattr(nki.isa, n) for n in nki.isa.__all__})
    tensor = _module("nki.tensor", NkiTensor=nki.isa.NkiTensor)
    builtin = _module("nki.builtin")
    nki.builtin, nki.tensor, nki.dtype = builtin, tensor, names  # type: ignore[attr-defined]
    sys.modules["nki.dtype"] = names
    nki.language.dtypes = names  # type: ignore[attr-defined]
    nki.isa.constants = constants  # type: ignore[attr-defined]
    nki.cpu_simulate = _CpuSimulate  # type: ignore[attr-defined]
    builtins.builtin = builtin  # type: ignore[attr-defined]
    root = _module("nki_cpu_simulator", nki=nki)
    root.__path__ = []  # type: ignore[attr-defined]
    for suffix in (
        "",
        ".builtin",
        ".compiler",
        ".isa",
        ".isa.constants",
        ".language",
        ".language.dtypes",
        ".tensor",
        ".typing",
    ):
        sys.modules["nki_cpu_simulator.nki" + suffix] = sys.modules["nki" + suffix]


np._core.numerictypes.sctypeDict.update(PACKED)  # np.dtype("float8_e4m3fn_x4"), as the suite writes it
np.einsum = functools.partial(np.einsum, optimize=True)  # of the references for MX: by BLAS, seconds instead of minutes
_stand_ins()
_namespace()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Small cases first, where only the smallest is wanted; and cases that name no platform run on the one asked for."""
    from test.utils.common_dataclasses import CompilerArgs, Platforms

    asked: Any = Platforms(config.getoption("platform_target"))
    init: Any = CompilerArgs.__init__
    init.__defaults__ = tuple(asked if default is Platforms.TRN2 else default for default in init.__defaults__)
    if SMALLEST:
        items.sort(key=lambda item: (_function(item), _size(item)))


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _size(item: pytest.Item) -> int:
    """How large a case is: the product of the numbers in its name, which are mostly sizes."""
    return math.prod(max(1, int(n)) for n in re.findall(r"(?<![.\d])\d+(?![.\d])", item.nodeid.partition("[")[2]))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """The suite reads an attribute that its CPU mode never sets."""
    if SMALLEST and _function(item) in RAN:
        pytest.skip(LARGER)
    import test.utils.test_orchestrator as orchestrator

    orchestrator.Orchestrator._compiled_kernel = None
    orchestrator.Orchestrator.execute = _executing(orchestrator.Orchestrator.execute)
    if CASE_SECONDS:
        signal.signal(signal.SIGPROF, _give_up)
    CASE.clear()


def _executing(execute: Any) -> Any:
    """``Orchestrator.execute``, which in CPU mode cannot run several ranks: those are run and compared here."""
    if getattr(execute, "runs_ranks", False):
        return execute

    @functools.wraps(execute)
    def call(self: Any, kernel_under_test: Any) -> Any:
        ranks = kernel_under_test.inference_args.collective_ranks
        return execute(self, kernel_under_test) if ranks < 2 else _execute_ranks(kernel_under_test, ranks)

    call.runs_ranks = True  # type: ignore[attr-defined]
    return call


def _execute_ranks(case: Any, ranks: int) -> None:
    from test.integration.nkilib.utils.comparators import maxAllClose

    target = _GEN[case.compiler_input.platform_target.get_nc_gen()]
    os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = target
    inputs = case.kernel_input
    per_rank = [inputs.for_rank(r) for r in range(ranks)] if hasattr(inputs, "for_rank") else [inputs]
    given = [_plain({k.removesuffix(".must_alias_input"): v for k, v in one.items()}) for one in per_rank]
    given *= ranks // len(given)  # each rank copies what it writes
    kernel = nki_sim.jit(case.kernel_func)[case.compiler_input.logical_nc_config]
    CASE.update(kernel=kernel.name, target=target, cores=kernel.lnc)
    with _simulating():
        run = nki_sim.run_ranks(kernel, given, ranks=ranks, target=target, keep_inputs=False, fit="compiler")
    CASE.update(instructions=len(run.program), findings=sorted({f.rule.id for f in run.findings if f.rule}))
    wanted = case.validation_args
    several = hasattr(wanted.golden_output, "for_rank")
    for rank, result in enumerate(run.result if several else run.result[:1]):  # one reference is rank 0's
        golden = wanted.golden_output
        if several:
            golden = golden.for_rank(rank)
        elif not isinstance(golden, dict):
            golden = golden.golden or golden.output_ndarray
        outputs = result if isinstance(result, (tuple, list)) else [result]
        for (name, expected), actual in zip(golden.items(), outputs, strict=True):
            judge = getattr(expected, "validator", None)  # the case's own, beside its reference
            array = expected.output_ndarray if judge is not None else expected
            a, b = np.asarray(actual).astype(np.float32), np.asarray(array).astype(np.float32)
            a = a.reshape(b.shape)  # as the suite does, which reads results from files
            CASE["error"] = max(CASE.get("error", 0.0), _error(a, b))
            good = judge().validate(np.asarray(actual)) if judge is not None else maxAllClose(
                a, b, wanted.relative_accuracy, wanted.absolute_accuracy)  # fmt: skip
            assert good, f"rank {rank}: {name}"


def _give_up(number: int, frame: Any) -> None:
    raise TimeoutError(f"not done after {CASE_SECONDS} s")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Note how far results are from the suite's references, and give up on a case that takes too long."""
    from test.utils.output_validator import OutputValidator

    compare = OutputValidator._compare_outputs

    def noting(self: Any, actual: Any, golden: Any, *rest: Any, **options: Any) -> Any:
        for name, expected in golden.items():
            CASE["error"] = max(CASE.get("error", 0.0), _error(actual.get(name), expected))
        return compare(self, actual, golden, *rest, **options)

    OutputValidator._compare_outputs = noting
    signal.setitimer(signal.ITIMER_PROF, CASE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        OutputValidator._compare_outputs = compare


def _error(actual: Any, expected: Any) -> float:
    """The largest difference relative to the largest element; 0 for what are no numbers."""
    if not isinstance(expected, np.ndarray) or actual is None or _packed(expected.dtype):
        return 0.0
    a = np.asarray(actual)
    if a.shape != expected.shape:
        return 0.0
    difference = largest = 0.0
    for mine, theirs in zip(_blocks(a), _blocks(expected), strict=True):
        difference = max(difference, float(np.nanmax(np.abs(mine - theirs), initial=0.0)))
        largest = max(largest, float(np.nanmax(np.abs(theirs), initial=0.0)))
    return difference / max(largest, 1e-30)


def _blocks(array: Any) -> Iterator[Any]:
    """An array's elements as float64, not so many at a time that they leave the cache."""
    flat = array.reshape(-1)
    return (flat[start : start + BLOCK].astype(np.float64) for start in range(0, len(flat), BLOCK))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Any:
    """Append what came of a case to the results."""
    report = (yield).get_result()
    if not RESULTS or not (call.when == "call" or report.outcome != "passed"):
        return
    what = str(call.excinfo.value) if call.excinfo is not None else ""
    if SMALLEST and report.outcome != "skipped":
        RAN.add(_function(item))
    if what == LARGER:
        return
    record = {"case": item.nodeid, **CASE, "result": report.outcome, "seconds": round(call.duration, 2), "what": what[:2500]}
    with Path(RESULTS).open("a") as file:
        file.write(json.dumps(record) + "\n")

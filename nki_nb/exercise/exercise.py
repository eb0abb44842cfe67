"""An exercise: what a kernel should compute, on which inputs, and at what cost it is good."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from nki_sim.dtypes import UnknownDTypeError, lookup
from nki_sim.errors import NkiError, NkiWarning
from nki_sim.hw import core
from nki_sim.kernel import as_kernel
from nki_sim.run import Run, RunOptions

from nki_nb.check import Comparison, Tolerance, compare_all
from nki_nb.drawing import VIEWS, Picture
from nki_nb.exercise.blanks import Blank, BlankError, find_blanks
from nki_nb.exercise.cost import Cost
from nki_nb.exercise.registry import REGISTRY
from nki_nb.exercise.result import Result, raised, stopped
from nki_nb.report import describe, flat_outputs
from nki_nb.sizes import plural
from nki_nb.specs import read_arguments

if TYPE_CHECKING:
    from nki_nb.stepper.widget import StepperWidget

Rows = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Case:
    """One set of inputs: the sizes it was made for, or the texts it was made from, and its seed."""

    made_from: tuple[Any, ...]
    seed: int


@dataclass(frozen=True)
class Hint:
    """One hint; displays as its text."""

    text: str

    def __str__(self) -> str:
        return self.text

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text)


@dataclass(frozen=True, eq=False, repr=False)
class Exercise:
    """A kernel to be written, and what it is checked against. Ten lines make one:

    >>> from nki_nb.exercise import Exercise
    >>> halve = Exercise(
    ...     "halve",
    ...     spec=lambda x: x / 2,
    ...     inputs=[["randn:96x130"], ["randn:40x21"]],
    ...     hints=["nisa.tensor_scalar takes a number as operand0."],
    ... )

    Then ``halve.check(kernel)``, ``halve.show(kernel)`` and ``halve.hint()`` in a cell.

    Attributes:
        name: as it is shown and graded; unique among the exercises of a notebook.
        spec: NumPy function of the inputs, giving an array or a tuple of arrays. A kernel's output has its dtype, where
            that is one kernels have.
        inputs: either one list of texts for each case, as for ``nki-nb run --arg`` (``randn:96x130:bf16``; what is no
            text is passed on as it is), or a function of a NumPy generator and the sizes that gives the inputs.
        sizes: with a function, the sizes of each case. Give at least two, so that a kernel cannot be right for one only.
        target: the NeuronCore generation.
        hints: shown one by one, when asked for.
        par: what a good kernel costs on the first case: a :class:`Cost`, or a kernel that is run for it and never shown.
        rtol, atol: tolerance, fitted to the dtypes when not given: see :class:`nki_nb.check.Tolerance`.
        strict: what is undefined on hardware is an error.

    Raises:
        ValueError: no name, no inputs, sizes without a function of them, or an unknown target.
    """

    name: str
    spec: Callable[..., Any]
    inputs: Callable[..., Any] | Sequence[Sequence[Any]]
    sizes: Sequence[tuple[int, ...]] = ()
    target: str = "trn2"
    hints: Sequence[str] = ()
    par: Cost | Callable[..., Any] | None = None
    rtol: float | None = None
    atol: float | None = None
    strict: bool = True
    _hints_shown: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise ValueError("an exercise has a name")
        if isinstance(self.hints, str):
            raise ValueError(f"{self.name}: hints are a list of texts, not one text")
        if callable(self.inputs):
            pass
        elif self.sizes:
            raise ValueError(f"{self.name}: sizes are for a function that makes the inputs")
        elif not self.inputs or any(isinstance(case, str) for case in self.inputs):
            raise ValueError(f"{self.name}: inputs are a list of cases, each a list: [['randn:96x130'], ['randn:40x21']]")
        core(self.target)
        REGISTRY.add(self)

    def __repr__(self) -> str:
        return f"<exercise {self.name}>"

    # -- what a notebook calls -------------------------------------------------------------------------------------------

    def check(self, kernel: Any, *, seed: int = 0) -> Result:
        """Run a kernel on every case and say whether it is right, or what is wrong first, and what it costs.

        Args:
            kernel: a ``nki.jit`` kernel or a plain function of the inputs.
            seed: of the inputs; another seed makes others.

        Raises:
            TypeError: ``kernel`` is no function. What a kernel does wrong is in the result, not raised.
        """
        REGISTRY.handed_in(self, kernel)
        return self.judge(kernel, seed)

    def show(self, kernel: Any, view: str = "step", *, seed: int = 0) -> StepperWidget | Picture | Result:
        """The picture of what a kernel did on the first case; of one that was refused, the run up to there.

        Args:
            kernel: as for :meth:`check`.
            view: ``step`` to step through the run, or ``memory`` or ``program``.
            seed: of the inputs.

        Returns:
            The picture, or the result of the check where the kernel did not come far enough to have one.

        Raises:
            ValueError: there is no such view.
        """
        from nki_nb import view as step_view

        if view != "step" and view not in VIEWS:
            raise ValueError(f"view is step, {' or '.join(VIEWS)}, not {view!r}")
        if find_blanks(kernel):
            return self.judge(kernel, seed)
        arguments = self._arguments(self.cases(seed)[0])
        try:
            run = self._run(kernel, arguments, strict=False)
        except NkiError as error:
            if error.run is None:
                return self.judge(kernel, seed)
            return step_view(error) if view == "step" else Picture.of(error.run, view)
        except Exception:  # noqa: BLE001 - whatever a kernel's Python raises, the result says it
            return self.judge(kernel, seed)
        return step_view(run) if view == "step" else Picture.of(run, view)

    def hint(self) -> Hint:
        """The next hint; after the last one, the first again."""
        if not self.hints:
            return Hint(f"{self.name} has no hints")
        number = len(self._hints_shown) % len(self.hints)
        text = self.hints[number]
        self._hints_shown.append(text)
        return Hint(f"hint {number + 1} of {len(self.hints)}: {text}")

    # -- judging ---------------------------------------------------------------------------------------------------------

    def cases(self, seed: int = 0) -> tuple[Case, ...]:
        """The inputs that a kernel is checked on: the first twice, with different values."""
        if callable(self.inputs):
            given = [tuple(size) for size in self.sizes] or [()]
        else:
            given = [tuple(case) for case in self.inputs]
        return tuple(Case(made_from, 100 * seed + i) for i, made_from in enumerate((given[0], *given)))

    def judge(self, kernel: Any, seed: int = 0) -> Result:
        """:meth:`check`, without handing the kernel in."""
        if not callable(kernel) and not isinstance(kernel, Blank):
            raise TypeError(f"{self.name}: check takes a kernel, a function with @nki.jit, not a {type(kernel).__name__}")
        blanks = find_blanks(kernel)
        if blanks:
            rows = [(f"line {place.line}" if place.line else "blank", (place.text,)) for place in blanks]
            return Result(
                self.name,
                "blank",
                f"{plural(sum(place.count for place in blanks), 'blank')} to fill in",
                rows=(*rows, *self._hint_row()),
            )
        first: Run | None = None
        cases = self.cases(seed)
        for case in cases:
            outcome = self._outcome(kernel, case)
            if isinstance(outcome, Result):
                return outcome
            first = first or outcome
        assert first is not None
        return self._right(first, len(cases))

    def _outcome(self, kernel: Any, case: Case) -> Result | Run:
        """The run on one case, or what is wrong with it."""
        arguments = self._arguments(case)
        words = self._words(arguments, case)
        expected = self.spec(*_copied(arguments))
        try:
            run = self._run(kernel, _copied(arguments), self.strict)
        except NkiError as error:
            return stopped(self.name, error, (*words, *self._hint_row()))
        except BlankError as error:
            return Result(self.name, "blank", str(error), rows=self._hint_row())
        except Exception as error:  # noqa: BLE001 - whatever a kernel's Python raises is its result
            return raised(self.name, error, (*words, *self._hint_row()))
        reason, said = self._difference(run, expected)
        if reason:
            return Result(self.name, "wrong", reason, rows=(*said, *words, *self._hint_row()), run=run)
        return run

    def _difference(self, run: Run, expected: Any) -> tuple[str, Rows]:
        """Why a run's outputs are not what was expected, in a line and in rows; nothing when they are."""
        if not len(run.program):
            return "the kernel has no instruction: it returns what it was given", ()
        outputs = list(flat_outputs(run.result))
        names, arrays = [name for name, _ in outputs], [value for _, value in outputs]
        for comparison in compare_all(arrays, expected, "spec", names, Tolerance(self.rtol, self.atol)):
            if not comparison.ok:
                return _reason(comparison), _comparison_rows(comparison)
        wanted = [expected] if len(arrays) == 1 and not isinstance(expected, (tuple, list)) else list(expected)
        for name, got, want in zip(names, arrays, wanted, strict=True):
            if _is_dtype_of_kernels(np.asarray(want).dtype) and got.dtype != np.asarray(want).dtype:
                return f"{name} is {describe(got)}, wanted {describe(np.asarray(want))}", ()
        return "", ()

    def _right(self, run: Run, checked: int) -> Result:
        cost, par = Cost.of(run), self.par_cost
        verdict = cost.against(par) if par else ""
        time = f"{run.timeline().total / 1000:.1f} µs on the device, by an estimate"
        rows: list[tuple[str, tuple[str, ...]]] = [(label, (value,)) for label, value in cost.lines(par)]
        rows += [("time", (time,)), ("checked", (f"{plural(checked, 'run')} on {run.core}",))]
        rows += [("finding", (finding.headline,)) for finding in run.findings]
        return Result(self.name, "right", verdict, rows=tuple(rows), cost=cost, par=par, run=run)

    @cached_property
    def par_cost(self) -> Cost | None:
        """What a good kernel costs on the first case, or ``None`` where the exercise does not say.

        Raises:
            ValueError: the kernel given as par does not run.
        """
        if self.par is None or isinstance(self.par, Cost):
            return self.par
        try:
            return Cost.of(self._run(self.par, self._arguments(self.cases()[0]), strict=False))
        except NkiError as error:
            what = error.diagnosis.headline
        raise ValueError(f"{self.name}: the kernel given as par does not run: {what}")

    def _run(self, kernel: Any, arguments: tuple[Any, ...], strict: bool) -> Run:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NkiWarning)  # the result has the findings
            return as_kernel(kernel).run(arguments, {}, RunOptions(target=self.target, strict=strict, precise=True))

    def _arguments(self, case: Case) -> tuple[Any, ...]:
        """The inputs of a case; the same every time."""
        if callable(self.inputs):
            made = self.inputs(np.random.default_rng(case.seed), *case.made_from)
            return tuple(made) if isinstance(made, (tuple, list)) else (made,)
        named = [f"x{i}={text}" for i, text in enumerate(case.made_from) if isinstance(text, str)]
        read = read_arguments(named, case.seed)
        return tuple(read[f"x{i}"] if isinstance(value, str) else value for i, value in enumerate(case.made_from))

    def _words(self, arguments: tuple[Any, ...], case: Case) -> Rows:
        try:
            names = list(inspect.signature(self.spec).parameters)
        except (TypeError, ValueError):  # a NumPy function that does not say
            names = []
        names += [f"input {i}" for i in range(len(names), len(arguments))]
        told = (f"{n} {describe(a)}" if hasattr(a, "shape") else f"{n}={a!r}" for n, a in zip(names, arguments, strict=False))
        return (("inputs", (", ".join(told) + f", seed {case.seed}",)),)

    def _hint_row(self) -> Rows:
        """That there are hints; not the hints."""
        return (("hints", (f"{len(self.hints)}, one at a time: .hint()",)),) if self.hints else ()


def _copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments, safe from a kernel that writes its inputs."""
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arguments)


def _reason(comparison: Comparison) -> str:
    if comparison.mismatch:
        return comparison.mismatch
    assert comparison.first is not None
    index = ", ".join(map(str, comparison.first))
    return f"first wrong element {comparison.name}[{index}]: got {comparison.got}, wanted {comparison.expected}"


def _comparison_rows(comparison: Comparison) -> Rows:
    rows: Iterator[tuple[str, str]] = iter(
        (("wrong", f"{comparison.wrong} of {comparison.total} elements"), ("differences", comparison.measures))
        if comparison.wrong
        else ()
    )
    return tuple((label, (words,)) for label, words in rows)


def _is_dtype_of_kernels(dtype: np.dtype[Any]) -> bool:
    try:
        lookup(dtype)
    except UnknownDTypeError:
        return False
    return dtype.itemsize < 8 and dtype.kind != "b"

"""A kernel on every generation at once: what it breaks, what is reported of it, what it does for nothing, and where."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from nki_sim.calls import user_sites
from nki_sim.deprecated import DEPRECATED
from nki_sim.errors import GEN_TARGET, Diagnosis, NkiDeprecationWarning, NkiError, NkiWarning, Rule, page
from nki_sim.kernel import Kernel, as_kernel
from nki_sim.program import Order
from nki_sim.run import Run, RunOptions
from nki_sim.source import Site, StaticSite

RAISES = Rule(
    "kernel.raises",
    "a kernel is built without an exception from arguments of the shapes that it is called with",
    why="a kernel is specialised by running its Python; an exception there ends the compilation on a device as well",
    fix="mend the line, or pass arguments that the kernel takes",
    page=page("get-started/nki-language-guide.html"),
)

TARGETS = tuple(GEN_TARGET.values())

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """Something found, and on which generations; on none where the source alone tells it."""

    diagnosis: Diagnosis
    targets: tuple[str, ...]
    level: Level

    @property
    def rule(self) -> Rule:
        """What it breaks."""
        return self.diagnosis.rule or RAISES

    @property
    def key(self) -> tuple[str, str, int | None, str]:
        """What findings that are the same share: rule, place, words."""
        site = self.diagnosis.site
        return self.rule.id, site.filename if site else "", self.diagnosis.line, self.diagnosis.headline


def level_of(rule: Rule | None) -> Level:
    """Whether what breaks a rule is an error, or is let through and reported."""
    return "warning" if rule is not None and rule.enforce in ("ub", "warn") else "error"


@dataclass(frozen=True)
class Outcome:
    """A kernel on one generation.

    Attributes:
        run: its record, up to the failure where there was one; ``None`` where it did not begin.
        failure: what ended it.
        reported: what was let through, and what it did for nothing.
    """

    target: str
    run: Run | None = field(repr=False)
    failure: Diagnosis | None
    reported: tuple[Diagnosis, ...]

    @property
    def ok(self) -> bool:
        """Whether the kernel breaks no limit there."""
        return self.failure is None


@dataclass(frozen=True)
class Verification:
    """What :func:`verify` found, generation by generation."""

    name: str
    outcomes: tuple[Outcome, ...]

    @property
    def ok(self) -> bool:
        """Whether no generation refuses the kernel."""
        return all(outcome.ok for outcome in self.outcomes)

    @property
    def findings(self) -> list[Finding]:
        """Everything found, each once with its generations, in the order of the source."""
        each = [
            Finding(diagnosis, (outcome.target,), "error" if diagnosis is outcome.failure else level_of(diagnosis.rule))
            for outcome in self.outcomes
            for diagnosis in (*outcome.reported, *([outcome.failure] if outcome.failure else []))
        ]
        return merged(each)


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Findings that are the same but for their generations as one, by place."""
    found: dict[tuple[str, str, int | None, str], Finding] = {}
    for one in findings:
        known = found.get(one.key)
        if known is None:
            found[one.key] = one
        else:
            targets = tuple(dict.fromkeys((*known.targets, *one.targets)))
            found[one.key] = Finding(known.diagnosis, targets, "error" if "error" in (known.level, one.level) else "warning")
    return sorted(found.values(), key=lambda f: (f.key[1], f.key[2] or 0, f.rule.id, f.diagnosis.headline))


def verify(
    kernel: Kernel | Callable[..., Any],
    /,
    *args: Any,
    targets: Sequence[str] = TARGETS,
    data: bool = False,
    fit: Order | None = None,
    **kwargs: Any,
) -> Verification:
    """Trace a kernel on several generations, and gather what each of them refuses or lets through with a word.

    Args:
        kernel: a ``nki.jit`` kernel or a plain function.
        args, kwargs: its arguments: arrays, or a :class:`nki_sim.TensorSpec` where only a shape is known.
        targets: generations.
        data: compute as well, on copies of the arrays; else only shapes count, and a kernel whose course depends on data is
            refused (``estimate.needs_data``).
        fit: as of :class:`RunOptions`.
    """
    made = as_kernel(kernel)
    options = RunOptions(keep_inputs=False, dry=not data, watch=not data, fit=fit)
    return Verification(made.name, tuple(_on(target, made, args, kwargs, options) for target in targets))


def _on(target: str, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], options: RunOptions) -> Outcome:
    run, failure = None, None
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            run = kernel.run(_own(args), _own(kwargs), replace(options, target=target))
        except NkiError as error:
            run, failure = error.run, error.diagnosis
        except Exception as error:
            sites = user_sites(error.__traceback__)
            if not sites:
                raise  # not the kernel's own
            failure = raised(error, sites, target)
    reported = [] if run is None else list(run.findings)
    reported += [f for f in (_deprecation(message, target) for message in heard) if f is not None]
    if run is not None and failure is None:
        from nki_sim.dataflow import wasted  # with the model of time: for who asks about it

        reported += wasted(run.program, target)
    place = _definition(kernel)
    for diagnosis in (*reported, *([failure] if failure else [])):
        diagnosis.sites = diagnosis.sites or place
    return Outcome(target, run, failure, tuple(reported))


def _own(value: Any) -> Any:
    """Arguments that a run may write to."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {name: _own(item) for name, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_own(item) for item in value)
    return value.clone() if hasattr(value, "clone") else value


def raised(error: BaseException, sites: tuple[Site, ...], target: str) -> Diagnosis:
    """The finding about an exception of the user's own code."""
    words = f"{type(error).__name__}: {error}".removesuffix(": ").split("\n")[0]
    return Diagnosis(words, target, RAISES, sites=sites)


def _deprecation(heard: warnings.WarningMessage, target: str) -> Diagnosis | None:
    """A deprecated name as a finding. Other warnings than the simulator's own are passed on."""
    message = heard.message
    if isinstance(message, NkiDeprecationWarning):
        site = StaticSite(heard.filename, "", (heard.lineno, heard.lineno, -1, -1))
        return Diagnosis(message.headline, target, DEPRECATED, fix=message.fix, sites=(site,))
    if not isinstance(message, NkiWarning):
        warnings.warn_explicit(message, heard.category, heard.filename, heard.lineno)
    return None


def _definition(kernel: Kernel) -> tuple[Site, ...]:
    """The line where the kernel begins, for what is about no line of it."""
    code = getattr(kernel.function, "__code__", None)
    return () if code is None else (StaticSite(code.co_filename, code.co_name, (code.co_firstlineno,) * 2 + (-1, -1)),)

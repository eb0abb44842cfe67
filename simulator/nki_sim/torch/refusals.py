"""Exceptions of the PyTorch side: each is of the simulator's class, and of PyTorch's or Python's for the same mistake."""

from __future__ import annotations

from nki_sim.errors import Broken, Diagnosis, NkiError, NkiTypeError, NkiValueError, Rule, violation


class NkiRuntimeError(NkiError, RuntimeError):
    """A refusal for which PyTorch raises ``RuntimeError``."""


class NkiNotImplementedError(NkiError, NotImplementedError):
    """A refusal for which PyTorch raises ``NotImplementedError``."""


_CLASSES: dict[type[Exception], type[NkiError]] = {
    RuntimeError: NkiRuntimeError,
    NotImplementedError: NkiNotImplementedError,
    TypeError: NkiTypeError,
    ValueError: NkiValueError,
}


def refusal(rule: Rule, what: str, *, subject: str = "", fix: str = "", error: type[Exception] = RuntimeError) -> NkiError:
    """The exception for a broken rule; the caller raises it."""
    diagnosis: Diagnosis = violation(rule, Broken(what, fix=fix), target="", instruction=subject, sites=())
    return _CLASSES[error](diagnosis)

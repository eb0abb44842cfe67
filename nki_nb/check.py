"""Is it right? An output against a reference: several measures at once, and the first wrong element.

One measure is not enough: a large absolute difference may be small for the values there are, and a good cosine hides
one wrong row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from nki_sim.arrays import incoming

Floats = npt.NDArray[np.float64]


class CheckError(AssertionError):
    """An output is not what ``--check`` expected."""


@dataclass(frozen=True)
class Tolerance:
    """Largest accepted difference: ``atol + rtol * |expected|``; ``None`` fits it to the data.

    The default ``rtol`` is two units in the last place of the coarser of both data types and at least 1e-5; the default
    ``atol`` is ``rtol`` times the root mean square of what is expected, since sums cancel. Integers are compared
    exactly.
    """

    rtol: float | None = None
    atol: float | None = None


@dataclass(frozen=True)
class Comparison:
    """How one output compares with what was expected.

    Attributes:
        expression: what it was compared with, as the user wrote it.
        name: the output's name.
        wrong, total: elements outside the tolerance, and all of them.
        max_abs, rel, cos: largest absolute difference, norm of the difference by the norm expected, cosine similarity;
            over the elements that are finite on both sides, NaN where there is none.
        lost: elements that are NaN or infinite where a finite number was expected.
        first: the first wrong element's index, with ``got`` and ``expected`` there.
        mismatch: why nothing could be compared (a shape), or an empty string.
    """

    expression: str
    name: str
    wrong: int = 0
    total: int = 0
    max_abs: float = 0.0
    rel: float = 0.0
    cos: float = 1.0
    lost: int = 0
    first: tuple[int, ...] | None = None
    got: str = ""
    expected: str = ""
    mismatch: str = ""

    @property
    def ok(self) -> bool:
        return not self.wrong and not self.mismatch

    @property
    def verdict(self) -> str:
        """``ok``, or what is wrong."""
        if self.mismatch:
            return f"WRONG, {self.mismatch}"
        if self.wrong:
            return f"WRONG at {self.wrong} of {self.total} elements"
        return "ok"

    @property
    def where(self) -> str:
        """The first wrong element in words, or an empty string."""
        if self.first is None:
            return ""
        index = ", ".join(map(str, self.first))
        return f"first wrong {self.name}[{index}]: got {self.got}, expected {self.expected}"

    @property
    def measures(self) -> str:
        if self.mismatch:
            return ""
        lost = f" · {self.lost} not finite" if self.lost else ""
        return f"max abs {_short(self.max_abs)} · rel {_short(self.rel)} · cos {self.cos:.6f}{lost}"

    def as_dict(self) -> dict[str, Any]:
        """The comparison as plain data, for ``--json``."""
        return {
            "expression": self.expression,
            "ok": self.ok,
            "wrong": self.wrong,
            "total": self.total,
            "max_abs": self.max_abs if np.isfinite(self.max_abs) else None,
            "rel": self.rel if np.isfinite(self.rel) else None,
            "cos": self.cos if np.isfinite(self.cos) else None,
            "not_finite": self.lost,
            "first_wrong": list(self.first) if self.first is not None else None,
            "got": self.got,
            "expected": self.expected,
            "mismatch": self.mismatch,
        }


def compare_all(
    outputs: Sequence[Any], expected: Any, expression: str, names: Sequence[str], tolerance: Tolerance
) -> tuple[Comparison, ...]:
    """Compare every output with its reference; a kernel with one output takes the reference as it is."""
    if not outputs:
        return (Comparison(expression, "result", mismatch="the kernel returned nothing to compare"),)
    wanted = [expected] if len(outputs) == 1 and not isinstance(expected, (tuple, list)) else list(expected)
    if len(wanted) != len(outputs):
        what = f"{len(outputs)} outputs but {len(wanted)} references"
        return (Comparison(expression, names[0], mismatch=what),)
    pairs = zip(outputs, wanted, names, strict=True)
    return tuple(compare(_array(got), _array(want), expression, name, tolerance) for got, want, name in pairs)


def raise_for(checks: tuple[Comparison, ...]) -> None:
    """Fail the cell when a check failed.

    Raises:
        CheckError: with a line for each output that is wrong.
    """
    wrong = [check for check in checks if not check.ok]
    if wrong:
        said = (f"{check.name} is not {check.expression}: {check.verdict}" for check in wrong)
        raise CheckError("\n".join(said))


def _array(value: Any) -> npt.NDArray[Any]:
    """Any array as NumPy, torch's bfloat16 included; a reference may be of a type that kernels do not take."""
    if type(value).__module__.partition(".")[0] == "torch":
        return incoming(value).array
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return np.asarray(np.from_dlpack(value))
    return np.asarray(value)


def compare(got: npt.NDArray[Any], want: npt.NDArray[Any], expression: str, name: str, tolerance: Tolerance) -> Comparison:
    """Compare two arrays in float64; NaN equals NaN, infinities equal themselves."""
    if got.shape != want.shape:
        what = f"shape {_shape(got)} but {_shape(want)} expected"
        return Comparison(expression, name, total=got.size, mismatch=what)
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    rtol, atol = _fitted(got, want, b[finite], tolerance)
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= atol + rtol * np.abs(b)) & finite
    wrong = np.flatnonzero(~same)
    first = tuple(int(i) for i in np.unravel_index(wrong[0], got.shape)) if wrong.size else None
    max_abs, rel, cos = _measures(a[finite], b[finite])
    return Comparison(
        expression,
        name,
        wrong=int(wrong.size),
        total=got.size,
        max_abs=max_abs,
        rel=rel,
        cos=cos,
        lost=int(np.count_nonzero(~np.isfinite(a) & np.isfinite(b))),
        first=first,
        got="" if first is None else f"{a[first]:.6g}",
        expected="" if first is None else f"{b[first]:.6g}",
    )


def _fitted(got: npt.NDArray[Any], want: npt.NDArray[Any], finite: Floats, tolerance: Tolerance) -> tuple[float, float]:
    steps = [_eps(array.dtype) for array in (got, want)]
    exact = not any(steps)
    fitted = 0.0 if exact else max(1e-5, 2 * max(steps))
    rtol = fitted if tolerance.rtol is None else tolerance.rtol
    if tolerance.atol is not None:
        return rtol, tolerance.atol
    return rtol, rtol * float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0


def _eps(dtype: np.dtype[Any]) -> float:
    """Distance from 1 to the next number; 0 for integers."""
    finfo: Any = ml_dtypes.finfo
    return 0.0 if dtype.kind in "biu" else float(finfo(dtype).eps)


def _measures(got: Floats, want: Floats) -> tuple[float, float, float]:
    if not got.size:
        return math.nan, math.nan, math.nan
    difference, scale = got - want, float(np.linalg.norm(want))
    norms = float(np.linalg.norm(got)) * scale
    off = float(np.linalg.norm(difference))
    rel = off / scale if scale else (0.0 if not off else float("inf"))
    cos = float(np.dot(got, want)) / norms if norms else (1.0 if not off else 0.0)
    return float(np.max(np.abs(difference))), rel, min(1.0, max(-1.0, cos))


def _short(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}"


def _shape(array: npt.NDArray[Any]) -> str:
    return f"[{' × '.join(map(str, array.shape))}]"

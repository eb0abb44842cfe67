"""What the kernels of one step cost: a training step, a forward pass, anything that calls several kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nki_sim.arrays import is_array
from nki_sim.dtypes import lookup
from nki_sim.estimate import TensorSpec, estimate
from nki_sim.hw import core
from nki_sim.kernel import Kernel

if TYPE_CHECKING:
    from nki_sim.timing import Order, Profile


@dataclass(frozen=True)
class Called:
    """Calls of one kernel with the same shapes, data types and values.

    Attributes:
        profile: of one of them.
    """

    kernel: str
    count: int
    profile: Profile

    @property
    def time(self) -> float:
        """Of all of them, in ns."""
        return self.count * self.profile.total_time

    @property
    def busiest(self) -> str:
        """The engine that works most of the time, and its share of it."""
        name, engine = max(self.profile.engines.items(), key=lambda item: item[1].active_percent)
        return f"{name} {engine.active_percent:.0f} %"


@dataclass(frozen=True)
class StepProfile:
    """The kernels of one step, the costliest first; one after the other, each with its own launch. Times are estimates.

    Attributes:
        result: what the step returned.
    """

    target: str
    order: str
    calls: tuple[Called, ...]
    result: Any = None

    @property
    def total_time(self) -> float:
        """Of all calls, in ns."""
        return sum(called.time for called in self.calls)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        from nki_sim.timing.profile import format_time  # the model of time: for who asks about it

        yield f"kernels of one step · {self.target} · {self.order} order · estimated"
        kernels = self._by_kernel()
        width = max(map(len, kernels), default=0)
        if kernels:
            yield f"{'kernel':<{width}}  calls    together   share     longest  busiest engine there"
        for name, calls in kernels.items():
            count, time = sum(c.count for c in calls), sum(c.time for c in calls)
            longest = max(calls, key=lambda c: c.profile.total_time)
            yield (
                f"{name:<{width}}  {count:>5}  {format_time(time):>10}  {100 * time / self.total_time:>4.0f} %"
                f"  {format_time(longest.profile.total_time):>10}  {longest.busiest}"
            )
        count, launch = sum(c.count for c in self.calls), sum(c.count * c.profile.launch_time for c in self.calls)
        yield f"{count} calls: {format_time(self.total_time)}, of which launch {format_time(launch)}"

    def _by_kernel(self) -> dict[str, list[Called]]:
        """The calls of each kernel, the costliest kernel first."""
        found: dict[str, list[Called]] = {}
        for called in self.calls:
            found.setdefault(called.kernel, []).append(called)
        return dict(sorted(found.items(), key=lambda item: -sum(c.time for c in item[1])))


def profile_step(step: Callable[[], Any], order: Order = "compiler") -> StepProfile:
    """Run a step, and estimate the time of every kernel that it calls.

    Args:
        step: what to run, without arguments: ``lambda: train(model, batch)``.
        order: ``compiler`` or ``program``: see :meth:`nki_sim.Run.timeline`.

    Raises:
        NkiValidationError: a kernel's course depends on data, which an estimate has not.
    """
    seen: dict[Any, tuple[Kernel, Any, Any, int]] = {}

    def note(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given, named = _shapes(args), _shapes(kwargs)
        key = (kernel.function, kernel.lnc, repr(given), repr(named))
        seen[key] = (kernel, given, named, seen[key][3] + 1 if key in seen else 1)

    Kernel.borders.append(note)
    try:
        result = step()
    finally:
        Kernel.borders.remove(note)
    calls = [Called(k.name, count, estimate(k, *given, order=order, **named)) for k, given, named, count in seen.values()]
    return StepProfile(core().target, order, tuple(sorted(calls, key=lambda called: -called.time)), result)


def _shapes(value: Any) -> Any:
    """Arguments with shapes and data types in place of arrays."""
    if isinstance(value, (tuple, list)):
        items = [_shapes(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {name: _shapes(item) for name, item in value.items()}
    return TensorSpec(tuple(value.shape), lookup(value.dtype).name) if is_array(value) else value

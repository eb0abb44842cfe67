"""A figure beside its bar: what every measurement gives."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Found:
    """One line of the table.

    Attributes:
        name: what was measured.
        ratio: the figure; ``None`` when there is nothing to measure yet.
        bar: what it is held to.
        unit: of both; a ratio has none.
        at_least: the bar is a lower limit.
        medians: the raw figures behind it, with their units in their names.
    """

    name: str
    ratio: float | None
    bar: float | None
    unit: str = ""
    at_least: bool = False
    medians: dict[str, float] = field(default_factory=dict)

    @property
    def missed(self) -> bool:
        if self.ratio is None or self.bar is None:
            return False
        return self.ratio < self.bar if self.at_least else self.ratio > self.bar

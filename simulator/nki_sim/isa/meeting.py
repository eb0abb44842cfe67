"""What instructions have in common that several cores do together: none goes on before all have come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from nki_sim.errors import Broken, Rule
from nki_sim.isa.base import Instruction
from nki_sim.tensor import NkiTensor


class Meeting(Instruction):
    """An instruction that waits for others of its kind on other cores, which a run of several cores brings together.

    Members of a meeting are checked first, then all have come, then each :meth:`take` what the others brought and is executed.
    """

    across: ClassVar[Literal["cores", "ranks"]] = "cores"
    """Who meets: the logical cores of a rank, or the ranks of :attr:`ranks` with all their cores."""
    ranks: tuple[int, ...] = ()
    waits = False
    unanswered: ClassVar[Rule]
    """Every member comes to the meeting."""
    crossed: ClassVar[Rule | None] = None
    """Every member comes to the one of that key, where those who wait with different keys are told so in their own words."""
    received: Any = None
    """What another member brought for this one."""

    def key(self) -> Any:
        """What must be the same of those who meet, besides the kind of instruction."""
        return None

    def called(self) -> str:
        """The meeting, as diagnoses name it."""
        return type(self).__name__

    def orders(self) -> tuple[NkiTensor, ...] | None:
        """The tensors of which it keeps apart what is done before and after it; ``None``: all that the members share."""
        return None

    def waits_on(self) -> str:
        """Of those who wait with different keys, what this one waits on."""
        return self.called()

    def take(self, mine: int, others: Mapping[int, Any]) -> tuple[Rule, Broken] | None:
        """Keep what the members brought, this one included; what is wrong between them, if anything is.

        Args:
            mine: this one's number: its core's, or its rank's where ranks meet.
            others: by such numbers; of several ranks the same core of each.
        """
        return None

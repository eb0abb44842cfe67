"""``nki.collectives.ReplicaGroup``: which ranks work together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nki_sim import context
from nki_sim.errors import NkiTypeError, Rule, fail, page

DISJOINT = Rule(
    "coll.replica_disjoint",
    "a ReplicaGroup is a list of lists of ranks, in which no rank stands twice",
    fix="ReplicaGroup([[0, 1], [2, 3]]): two groups of two ranks",
    page=page("api/generated/nki.collectives.ReplicaGroup.html"),
)


class ReplicaGroup:
    """Lists of ranks; those of one list work together, each list by itself.

    Args:
        groups: lists of rank numbers.

    Raises:
        NkiValidationError: a rank stands in two lists, or twice in one.

    Example:
        pairs = ncc.ReplicaGroup([[0, 1], [2, 3]])
        if nl.num_programs() == 2:  # in a kernel that nki_sim.run_ranks runs
            ncc.all_reduce(srcs=[mine], dsts=[total], replica_group=pairs, op=nl.add)
    """

    def __init__(self, groups: Sequence[Sequence[int]]):
        lists = [list(ranks) if isinstance(ranks, (list, tuple)) else None for ranks in groups]
        plain = all(ranks is not None and ranks and all(_is_rank(r) for r in ranks) for ranks in lists)
        if not plain or not lists:
            raise _wrong(f"groups is {groups!r}", NkiTypeError)
        self.groups: tuple[tuple[int, ...], ...] = tuple(tuple(map(int, ranks or ())) for ranks in lists)
        every = [rank for ranks in self.groups for rank in ranks]
        twice = sorted({rank for rank in every if every.count(rank) > 1})
        if twice:
            raise _wrong(f"rank {', '.join(map(str, twice))} stands twice in {list(map(list, self.groups))}")

    def of(self, rank: int) -> tuple[int, ...]:
        """The list that a rank is in; empty when it is in none."""
        return next((ranks for ranks in self.groups if rank in ranks), ())

    def __repr__(self) -> str:
        return f"ReplicaGroup({[list(ranks) for ranks in self.groups]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReplicaGroup) and self.groups == other.groups

    def __hash__(self) -> int:
        return hash(self.groups)


def _is_rank(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool) and int(value) >= 0


def _wrong(what: str, error: Any = None) -> Exception:
    kind = {} if error is None else {"error": error}
    return fail(DISJOINT, what, target=context.core().target, subject="ncc.ReplicaGroup", **kind)

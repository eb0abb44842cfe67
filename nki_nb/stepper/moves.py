"""Which element goes where in instructions that gather, scatter, shuffle, scan or select: the first few, as pairs.

What an instruction moves is read from its parameters and from the values of its operands at that step, in the first
partition, which stands for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from nki_sim.dtypes import Array
from nki_sim.program import Step
from nki_sim.trace import Replay

SHOWN = 8
"""Pairs that one picture has."""
KEEP = 255
"""The lane of a shuffle mask that leaves a partition as it is."""

Pair = tuple[int, int, str]
"""Where an element comes from, where it goes, and what is special about that: ``kept``, ``dropped``, ``outside`` or nothing."""


@dataclass
class Move:
    """One movement: what kind, in words, and its first pairs.

    Attributes:
        source, target: what the numbers count at either end, as ``x element`` or ``lane``.
        count: how many pairs there are in all.
    """

    kind: str
    words: str
    source: str
    target: str
    pairs: list[Pair] = field(default_factory=list)
    count: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "words": self.words, "source": self.source, "target": self.target,
                "pairs": [list(p) for p in self.pairs], "count": self.count}  # fmt: skip


class _Seen:
    """The operands of one step by name."""

    def __init__(self, step: Step, replay: Replay):
        self.step = step
        self._replay = replay
        self._number = {slot.name: i for i, slot in enumerate(step.plan.slots) if slot.shape}

    def __contains__(self, name: str) -> bool:
        return name in self._number

    def label(self, name: str) -> str:
        operand = self.step.operands[self._number[name]]
        return operand.allocation.label if operand.allocation else name

    def rows(self, name: str, *, after: bool = False) -> Array:
        """An operand's values, a row per partition."""
        values = self._replay.operand(self.step.index, self._number[name], after=after)
        assert values is not None
        rows: Array = values.reshape(values.shape[0], -1)
        return rows

    def first(self, name: str, *, after: bool = False) -> Array:
        """The values of the first partition."""
        found: Array = self.rows(name, after=after)[0]
        return found

    def parameter(self, name: str, default: Any = None) -> Any:
        return self.step.plan.params.get(name, default)


def moves(step: Step, replay: Replay) -> list[dict[str, Any]]:
    """What a step moves, a picture each; empty for instructions that compute element by element."""
    if step.instruction not in _KNOWN and not (step.engine != "dma" and any(s.gathers for s in step.plan.slots)):
        return []
    seen = _Seen(step, replay)
    found = [*_indirect(seen)]
    known = _KNOWN.get(step.instruction)
    made = known(seen) if known else None
    return [move.as_dict() for move in [*found, *([made] if made is not None else [])]]


def _pairs(sources: Any, size: int) -> tuple[list[Pair], int]:
    """Element i of the result comes from ``sources[i]`` of ``size``."""
    numbers = [int(n) for n in sources]
    return [(n, i, "" if 0 <= n < size else "outside") for i, n in enumerate(numbers[:SHOWN])], len(numbers)


def _indirect(seen: _Seen) -> Iterator[Move]:
    """Operands whose elements an index tile names."""
    group = 32 if seen.step.engine == "tensor" else 16
    for operand in seen.step.operands:
        name = operand.slot.name
        if not operand.slot.gathers or f"{name}_index" not in seen or seen.step.engine == "dma":
            continue
        index = seen.rows(f"{name}_index")
        rows = min(group, len(index))
        listed = [index[i % rows, i // rows] for i in range(operand.slot.picked)]
        pairs, count = _pairs(listed, operand.slot.shape[-1])
        label = seen.label(name)
        if operand.slot.access == "read":
            yield Move("gather", f"{seen.label(name + '_index')} picks elements of {label}", f"{label} element", "element",
                       pairs, count)  # fmt: skip
        else:
            turned = [(to, where, state) for where, to, state in pairs]
            yield Move("scatter", f"{seen.label(name + '_index')} says where in {label} an element goes", "element",
                       f"{label} element", turned, count)  # fmt: skip


def _shuffle(seen: _Seen) -> Move:
    mask = [int(n) for n in seen.parameter("shuffle_mask", ())]
    pairs: list[Pair] = [(lane, lane, "kept") if n == KEEP else (n, lane, "") for lane, n in enumerate(mask)][:SHOWN]
    return Move("shuffle", "within each quadrant of 32 partitions, the mask says from where", "src partition", "dst partition",
                pairs, len(mask))  # fmt: skip


def _local_gather(seen: _Seen) -> Move:
    index = seen.rows("index")[:16]
    step = int(seen.parameter("num_elem_per_idx", 1))
    listed = index.T.reshape(-1)[: seen.parameter("num_valid_indices") or index.size]
    starts = [int(n) + k for n in listed for k in range(step)]
    pairs, count = _pairs(starts, seen.first("src_buffer").size)
    return Move("gather", f"{seen.label('index')} picks elements of {seen.label('src_buffer')}, for 16 partitions at a time",
                "src element", "dst element", pairs, count)  # fmt: skip


def _n_gather(seen: _Seen) -> Move:
    pairs, count = _pairs(seen.first("indices"), seen.first("data").size)
    words = f"{seen.label('indices')} picks elements of {seen.label('data')}, each partition its own"
    return Move("gather", words, "data element", "dst element", pairs, count)


def _scan(seen: _Seen) -> Move:
    count = seen.first("dst").size
    pairs: list[Pair] = [(i, i + 1, "") for i in range(min(SHOWN, count - 1))]
    return Move("scan", "each element goes on from the one before it, along the free dimension", "result", "result", pairs,
                count)  # fmt: skip


def _selected(seen: _Seen, source: str, chosen: Array, other: str) -> Move:
    pairs: list[Pair] = [(i, i, "" if c else other) for i, c in enumerate(chosen[:SHOWN])]
    taken = int(np.count_nonzero(chosen))
    words = f"{taken} of {chosen.size} elements of the first partition come from {seen.label(source)}"
    return Move("select", words, f"{source} element", "dst element", pairs, int(chosen.size))


def _predicated(seen: _Seen) -> Move:
    chosen = seen.first("predicate").astype(bool) != bool(seen.parameter("reverse_pred", False))
    if "src" in seen:
        return _selected(seen, "src", chosen, "kept")
    pairs: list[Pair] = [(i, i, "" if c else "kept") for i, c in enumerate(chosen[:SHOWN])]
    words = f"{int(np.count_nonzero(chosen))} of {chosen.size} elements of the first partition become the scalar"
    return Move("select", words, "scalar for element", "dst element", pairs, int(chosen.size))


def _where_true(source: str) -> Callable[[_Seen], Move]:
    """Selects whose condition is not a tile: chosen is what came out as it went in."""

    def move(seen: _Seen) -> Move:
        given, made = (seen.first(source).astype(np.float32), seen.first("dst", after=True).astype(np.float32))
        return _selected(seen, source, (given == made) | (np.isnan(given) & np.isnan(made)), "dropped")

    return move


def _select_reduce(seen: _Seen) -> Move:
    chosen = (seen.first("predicate") != 0) != bool(seen.parameter("reverse_pred", False))
    return _selected(seen, "on_true", chosen, "dropped")


def _topk(seen: _Seen) -> Move:
    found = seen.rows("idx_dst", after=True)[:16].T.reshape(-1)
    pairs, count = _pairs(found[: int(seen.parameter("k", found.size))].astype(np.int64), 16 * seen.first("src").size)
    return Move("find", f"which numbers of {seen.label('src')} are the largest, for 16 partitions together", "number", "result",
                pairs, count)  # fmt: skip


def _dropout(seen: _Seen) -> Move:
    given, made = seen.first("data").astype(np.float32), seen.first("dst", after=True).astype(np.float32)
    return _selected(seen, "data", (made != 0) | (given == 0), "dropped")


def _found(source: str) -> Callable[[_Seen], Move]:
    """Instructions whose result are positions."""

    def move(seen: _Seen) -> Move:
        pairs, count = _pairs(seen.first("dst", after=True).astype(np.int64), seen.first(source).size)
        return Move("find", f"where in {seen.label(source)} the values are", f"{source} element", "result", pairs, count)

    return move


_KNOWN: dict[str, Callable[[_Seen], Move | None]] = {
    "nc_stream_shuffle": _shuffle,
    "local_gather": _local_gather,
    "nc_n_gather": _n_gather,
    "tensor_tensor_scan": _scan,
    "tensor_scalar_cumulative": _scan,
    "tensor_copy_predicated": _predicated,
    "range_select": _where_true("on_true_tile"),
    "affine_select": _where_true("on_true_tile"),
    "select_reduce": _select_reduce,
    "dropout": _dropout,
    "topk": _topk,
    "nc_find_index8": _found("data"),
}

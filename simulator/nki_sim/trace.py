"""What was in memory at step N: the recorded program run again from the nearest checkpoint.

Nothing is kept of the data while a kernel runs but its inputs. :class:`Replay` runs the record on memory of its own and
keeps a few checkpoints within a budget, so that stepping back costs no more than stepping forward from the last one.
"""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nki_sim import dtypes
from nki_sim.dtypes import Array, filled, poison
from nki_sim.hw import NeuronCore
from nki_sim.machine import Machine
from nki_sim.memory import Allocation, MemoryRegion
from nki_sim.program import SCALAR, Program, Slot

CHECKPOINT_BUDGET = 64 << 20
"""Bytes that the checkpoints of one replay may take together."""


@dataclass
class Checkpoint:
    """Memory, accumulator registers and random number states before a step."""

    step: int
    data: dict[Any, Array]
    registers: dict[str, Array]

    @property
    def size(self) -> int:
        return sum(a.nbytes for a in self.data.values())


@dataclass
class Replay:
    """Steps through a recorded program, forward and back.

    Args:
        machine: the machine that recorded it; only its plans, registers and record are used.
        inputs: the values of the kernel's inputs and constants, by allocation number.
    """

    machine: Machine
    inputs: Mapping[int, Array]
    position: int = 0
    budget: int = CHECKPOINT_BUDGET
    _data: dict[Any, Array] = field(default_factory=dict)
    _checkpoints: list[Checkpoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._interval = 0
        self._deaths = sorted((a.last, a.id) for a in self.program.allocations if a.last >= 0 and a.address is None)
        self._restore(Checkpoint(0, {}, {}))
        self._keep()

    @property
    def program(self) -> Program:
        return self.machine.program

    @property
    def core(self) -> NeuronCore:
        return self.machine.core

    # -- seeking -----------------------------------------------------------------------------------------------------

    def seek(self, step: int) -> None:
        """Bring memory to what it was before ``step`` (its instruction not yet executed).

        Raises:
            IndexError: there is no such step.
        """
        if not 0 <= step <= len(self.program):
            raise IndexError(f"step {step} of {len(self.program)}")
        if step < self.position or self._nearest(step).step > self.position:
            self._restore(self._nearest(step))
        every = self._spacing()
        with self.machine.muted(), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of casts that the first run reported as it reports them
            while self.position < step:
                self._execute(self.position)
                self.position += 1
                if self.position % every == 0:
                    self._keep()

    def values(self, allocation: int | Allocation, step: int) -> Array:
        """A copy of a tensor's values before ``step``, in its own shape and stored dtype."""
        tensor = allocation if isinstance(allocation, Allocation) else self.program.allocations[allocation]
        self.seek(step)
        return self._view(tensor, _whole(tensor), 0).copy()

    def operand(self, step: int, index: int, *, after: bool = False) -> Array | None:
        """A copy of what an operand of a step held before (or after) the step; ``None`` for scalars."""
        plan = self.program.plan_at(step)
        where, offset = self.program.raw(step)[index]
        if where < 0:
            return None
        self.seek(step + 1 if after else step)
        slot = plan.slots[index]
        tensor = self.program.allocations[where]
        return self._view(tensor, _whole(tensor) if slot.gathers else slot, 0 if slot.gathers else offset).copy()

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def _nearest(self, step: int) -> Checkpoint:
        at = bisect_right([c.step for c in self._checkpoints], step)
        return self._checkpoints[at - 1]

    def _spacing(self) -> int:
        """Steps between checkpoints: about the square root of the program, more when one is large."""
        if not self._interval:
            self._interval = max(16, int(len(self.program) ** 0.5))
        return self._interval

    def _keep(self) -> None:
        if any(c.step == self.position for c in self._checkpoints):
            return
        data = {key: array.copy() for key, array in self._data.items() if self._changes(key)}
        registers = {name: acc.values.copy() for name, acc in self.machine.registers.items()}
        made = Checkpoint(self.position, data, registers)
        if sum(c.size for c in self._checkpoints) + made.size > self.budget and len(self._checkpoints) > 1:
            # too many: keep every other one, and keep them twice as far apart from here on
            self._checkpoints[1:] = self._checkpoints[2::2]
            self._interval = self._spacing() * 2
            if sum(c.size for c in self._checkpoints) + made.size > self.budget:
                return
        self._checkpoints.insert(bisect_right([c.step for c in self._checkpoints], self.position), made)

    def _changes(self, key: Any) -> bool:
        """Whether a checkpoint must hold it: inputs that the program never writes are always there."""
        return key not in self.inputs or key in self._written_inputs()

    def _written_inputs(self) -> set[int]:
        found: set[int] | None = getattr(self, "_inputs_written", None)
        if found is None:
            found = set()
            for step in range(len(self.program)):
                plan = self.program.plan_at(step)
                raw = self.program.raw(step)
                found.update(raw[i][0] for i in plan.writes if raw[i][0] in self.inputs)
            self._inputs_written = found
        return found

    def _restore(self, point: Checkpoint) -> None:
        self.position = point.step
        self._data = {key: array.copy() for key, array in point.data.items()}
        for number, array in self.inputs.items():
            if number not in self._data:
                writable = number in self._written_inputs()
                flat = array.reshape(-1).view(np.uint8)
                self._data[number] = flat.copy() if writable else flat
        for name, held in self.machine.registers.items():
            held.values[...] = point.registers.get(name, held.initial)

    # -- execution ---------------------------------------------------------------------------------------------------

    def _execute(self, step: int) -> None:
        plan = self.program.plan_at(step)
        arguments: list[Any] = []
        for slot, (where, offset) in zip(plan.slots, self.program.raw(step), strict=True):
            if where >= 0:
                arguments.append(self._view(self.program.allocations[where], slot, offset))
            else:
                arguments.append(self.program.constants[offset] if where == SCALAR else None)
        plan.body(*arguments)
        self._bury(step - 1)  # not this step's: its operands are still to be looked at

    def _bury(self, step: int) -> None:
        """Let go of tiles whose last use was ``step``."""
        at = bisect_right(self._deaths, (step, -1))
        while at < len(self._deaths) and self._deaths[at][0] == step:
            number = self._deaths[at][1]
            if self.program.allocations[number].region.on_chip:
                self._data.pop(number, None)
            at += 1

    def _view(self, tensor: Allocation, slot: Slot, offset: int) -> Array:
        """A NumPy view of an access, on this replay's memory."""
        info = dtypes.TABLE[slot.dtype]
        stored = self.machine.memory.stored(info)
        own = self.machine.memory.stored(tensor.dtype)
        size = stored.itemsize
        if not tensor.region.on_chip:
            data = self._bytes(tensor, own.itemsize)
            return np.ndarray(slot.shape, stored.storage, data, offset * size, tuple(s * size for s in slot.strides))
        elements = tensor.row_bytes // tensor.dtype.itemsize
        row = elements * tensor.dtype.itemsize // info.itemsize
        pitch, base = elements * own.itemsize, 0
        data = self._bytes(tensor, own.itemsize)
        if tensor.address is not None and own is tensor.dtype:
            pitch = len(data) // self.core.partitions
            base = tensor.address[0] * pitch + tensor.address[1]
        start = base + offset // row * pitch + offset % row * size
        strides = (slot.strides[0] // row * pitch, *(s * size for s in slot.strides[1:]))
        return np.ndarray(slot.shape, stored.storage, data, start, strides)

    def _bytes(self, tensor: Allocation, itemsize: int) -> Array:
        key: Any = tensor.id
        pinned = tensor.address is not None and self.machine.memory.stored(tensor.dtype) is tensor.dtype
        if pinned:
            key = (tensor.region, tensor.core)
        found = self._data.get(key)
        if found is not None:
            return found
        if pinned:
            core = self.core
            pitch = core.sbuf_partition_bytes if tensor.region is MemoryRegion.sbuf else core.psum_partition_bytes
            made = np.full(pitch * core.partitions, 0xFF, np.uint8)
        else:
            stored = self.machine.memory.stored(tensor.dtype).storage
            count = tensor.partitions * tensor.row_bytes // tensor.dtype.itemsize
            made = filled(count, poison(tensor.dtype), stored).view(np.uint8)
        self._data[key] = made
        return made


def _whole(tensor: Allocation) -> Slot:
    strides = [1] * len(tensor.shape)
    for i in range(len(strides) - 2, -1, -1):
        strides[i] = strides[i + 1] * tensor.shape[i + 1]
    return Slot("", "read", tensor.shape, tuple(strides), tensor.dtype.name, tensor.dtype.itemsize, tensor.region.on_chip)


def alive(allocations: Sequence[Allocation], step: int) -> list[Allocation]:
    """Tiles on chip that exist before ``step``: allocated, and used then or later."""
    return [a for a in allocations if a.region.on_chip and a.born <= step <= a.last]


__all__ = ["Checkpoint", "Replay", "alive"]

"""What nc_matmul and nc_matmul_mx share: sums in PSUM, and the part of the array they run on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nki_sim import context
from nki_sim.dtypes import Array, to_float32
from nki_sim.errors import Broken, Rule, isa_page
from nki_sim.isa.base import Body, ComputeInstruction, free, partitions
from nki_sim.isa.enums import engine
from nki_sim.isa.indirection import available, base_of, chosen, gather, group_of, index_of, is_indirect, offsets
from nki_sim.isa.values import is_plain_f32, loader, storer
from nki_sim.psum import Accumulation, State
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("nc_matmul")
_GROUP = group_of(engine.tensor)

FIRST_OVERWRITES = Rule(
    "nc_matmul.accumulate.first_must_overwrite",
    "the first matmul into a PSUM location overwrites it",
    why="PSUM is not cleared for you: accumulate=True adds to what was there",
    fix="accumulate=(k > 0), or leave accumulate out",
    page=_PAGE,
    enforce="ub",
)
NON_MATMUL_INIT = Rule(
    "nc_matmul.accumulate.non_matmul_init_ub",
    "a matmul accumulates only onto what a matmul has written",
    why="an accumulation group opens with an overwriting matmul; a value put there by another engine is not part of it",
    fix="start with accumulate=False, and add the other value while evacuating: nisa.tensor_tensor(…, op=nl.add)",
    page=_PAGE,
    gens=(2, 3),
    enforce="ub",
)
REUSED = Rule(
    "nc_matmul.accumulate.warn_patterns",
    "a group that was read is closed: say whether the next matmul overwrites or adds",
    why="with accumulate=None the first write after the allocation overwrites and all later ones add, evicted or not",
    fix="accumulate=(k > 0), or allocate a new PSUM tile for the next group",
    page=_PAGE,
    enforce="warn",
)


class Matmul(ComputeInstruction):
    """A matrix multiplication of the tensor engine, whose product overwrites ``dst`` or is added to it."""

    runs_on = engine.tensor
    accumulates = True
    decided_params = ("mode",)
    decided_operands = ("keep",)

    dst: NkiTensor
    accumulate: bool | None
    tile_position: Any
    tile_size: Any
    mode: str
    keep: Array | None

    # -- accumulation: decided at issue, since program order decides it ------------------------------------------------

    def __post_init__(self) -> None:
        self.mode, self.keep, pending = "overwrite", None, None
        dst, opens = self.dst, self.sums()
        group = dst.storage.accumulation if isinstance(dst, NkiTensor) else None
        adds = self.accumulate is None or self.accumulate
        if group is not None and opens and adds:
            pending = self._decide(group.of(dst) if dst.dynamic is None else self._states(group))
        super().__post_init__()
        if group is not None:
            where = chosen(dst, _GROUP) if dst.dynamic is not None and is_indirect(dst) else None
            group.set(dst if where is None else base_of(dst), State.OPEN if opens else State.EMPTY, where)
        if pending is not None:
            context.machine().finding(self, pending, Broken(_FOUND[pending.id], "dst"))

    def _states(self, group: Accumulation) -> Array | State:
        """What the elements of a dst are whose address is known at run time: one state, or each its own."""
        base = base_of(self.dst)
        states = group.of(base)
        if isinstance(states, State) or not is_indirect(self.dst) or self.dst.shape[1] > available(self.dst, _GROUP):
            return states
        at = offsets(self.dst, index_of(self.dst).array, _GROUP)
        return gather(np.broadcast_to(states, base.shape), at, np.asarray(State.EMPTY, np.uint8))

    def sums(self) -> bool:
        """Whether its write opens or continues a sum."""
        return True

    def _decide(self, states: Array | State) -> Rule | None:
        """Set the mode of one that may add: overwrite, add, mixed (add where ``keep``) or poison; return the rule that this
        stretches."""
        if states is State.OPEN:
            self.mode = "add"
            return None
        if states is State.EMPTY and self.accumulate is None:
            return None
        empty = states == State.EMPTY
        if self.accumulate is None:
            if np.all(empty):
                return None
            self.mode = "add" if not np.any(empty) else "mixed"
            self.keep = None if self.mode == "add" else np.array(np.broadcast_to(~np.asarray(empty), self.dst.shape))
            return REUSED if np.any(states == State.READ) else None
        self.mode = "add"
        if not np.any(empty):
            return None
        if self.dst.storage.state != 0 and self.dst.storage.unwritten():
            self.dst.storage.poison()  # the sum is of what was there, which nobody knows
            return FIRST_OVERWRITES
        if context.core().gen == 4:
            return None
        # What the hardware adds here is undefined, except that zeros make overwriting and adding the same.
        if np.any(to_float32(self.dst.array)[np.broadcast_to(empty, self.dst.shape)] != 0):
            self.mode, self.keep = "poison", np.broadcast_to(np.asarray(empty), self.dst.shape)
        return NON_MATMUL_INIT

    def keeps(self, operand: str) -> bool:
        """An accumulating matmul reads dst."""
        return operand == "dst" and self.mode != "overwrite"

    def accumulated(self, product: Callable[..., Any], size: tuple[int, int]) -> Body:
        """The body that puts a product where the mode says.

        Args:
            product: of all operands but ``dst``, as float32; takes ``out`` as NumPy's functions do.
            size: rows and columns of the product.
        """
        store, shape = storer(self.dst), self.dst.shape
        if self.mode == "overwrite" and is_plain_f32(self.dst) and len(shape) == 2:
            return lambda dst, *read: product(*read, out=dst)
        if self.mode == "overwrite":
            return lambda dst, *read: store(dst, product(*read).reshape(shape))
        if self.mode == "add" and is_plain_f32(self.dst):
            scratch = np.empty(size, np.float32)
            flat = scratch.reshape(shape)

            def add(dst: Array, *read: Any) -> None:
                product(*read, out=scratch)
                np.add(dst, flat, out=dst)

            return add
        load = loader(self.dst)
        if self.mode == "add":
            return lambda dst, *read: store(dst, load(dst) + product(*read).reshape(shape))
        poison = np.float32(np.nan) if self.mode == "poison" else None

        def mixed(dst: Array, *read: Any) -> None:
            new, keep = product(*read).reshape(shape), read[-1]
            total = load(dst) + new
            store(dst, np.where(keep, poison, total) if poison is not None else np.where(keep, total, new))

        return mixed

    # -- checks; each returns what is broken, or None --------------------------------------------------------------------

    def tile_pair(self) -> Broken | None:
        """tile_position and tile_size are two pairs of numbers, or neither is given."""
        for name, value in (("tile_position", self.tile_position), ("tile_size", self.tile_size)):
            if value and not (isinstance(value, Sequence) and len(value) == 2 and all(isinstance(n, int) for n in value)):
                return Broken(f"{name} is {value!r}, not (row, column)", name, error=TypeError)
        if bool(self.tile_position) != bool(self.tile_size):
            given = "tile_position" if self.tile_position else "tile_size"
            return Broken(f"only {given} is given", given)
        return None

    def tile_start(self, axis: int, label: str) -> Broken | None:
        """The tile starts at a multiple of its size, and ends within the array."""
        if self.tile_position and self.tile_size:
            start, size = self.tile_position[axis], self.tile_size[axis]
            if start % size or not 0 <= start <= 128 - size:
                return Broken(f"{label} {start} with size {size}", "tile_position")
        return None

    def result_shape(self, m: int, n: int) -> Broken | None:
        """dst is [m, n]."""
        if (partitions(self.dst), free(self.dst)) != (m, n):
            return Broken(f"dst is [{partitions(self.dst)}, {free(self.dst)}], the product is [{m}, {n}]", "dst")
        return None


_FOUND = {
    FIRST_OVERWRITES.id: "accumulate=True onto PSUM that no matmul has started",
    NON_MATMUL_INIT.id: "accumulate=True onto PSUM that another engine initialised",
    REUSED.id: "adds to a sum that was evicted already",
}

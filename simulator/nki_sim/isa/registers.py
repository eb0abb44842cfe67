"""Registers and runtime scalars: ``register_alloc``, ``register_move``, ``register_load``, ``register_store``,
``scalar_load`` and ``scalar_store``."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_sim import context
from nki_sim.dtypes import Array, DType, to_float32, write_float32, write_integers
from nki_sim.errors import Broken, NkiTypeError, Rule, fail, isa_page, page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import DMA_REACH, Body, Instruction, instruction, read, register, write
from nki_sim.isa.enums import engine
from nki_sim.scalars import NkiScalar, VirtualRegister, now
from nki_sim.tensor import NkiTensor

INITIAL = Rule(
    "register_alloc.arg",
    "register_alloc takes nothing, or a whole number",
    fix="load a value that a tile holds: reg = nisa.register_alloc(); nisa.register_load(reg, tile)",
    page=isa_page("register_alloc"),
)
PREFILL = Rule(
    "register_alloc.tensor_prefill",
    "register_alloc takes a whole number, not a tensor",
    why="a release took tensors, and its notes still say so; the guide of this one refuses them. The value is loaded here",
    fix="reg = nisa.register_alloc(); nisa.register_load(reg, tile)",
    page=page("get-started/about/index.html"),
    enforce="warn",
)
FROZEN = Rule(
    "lang.dynamic_range_var_frozen",
    "the number of an nl.dynamic_range loop is not written",
    fix="copy it first: reg = nisa.register_alloc(); nisa.register_move(reg, i)",
    page=page("deep-dives/nki-dynamic-loops.html"),
)
READ_ONLY = Rule(
    "lang.fori_loop_var_readonly",
    "the number of an nl.fori_loop is read only: writing it does not change the loop",
    why="the body gets a copy of the loop's own register",
    fix="copy it first: reg = nisa.register_alloc(); nisa.register_move(reg, i)",
    page=page("deep-dives/nki-dynamic-loops.html"),
    enforce="warn",
)
REGISTERS = Rule(
    "hw.engine_regs_64",
    "a kernel keeps at most 64 registers at a time",
    why="each engine's sequencer has 64 of 32 bits; the compiler lays registers that are not needed at one time on one",
    fix="use a register again with nisa.register_move, or keep numbers in SBUF",
    page=page("api/generated/nki.isa.VirtualRegister.html"),
    enforce="warn",
)
MOST_REGISTERS = 64
ACCESS = 140.0
"""Cycles to move a number between memory and a register (release 2.21: reading an index from SBUF)."""
MOVE = 64.0
"""Cycles of a move between registers: not documented, an instruction's least."""


def register_alloc(x: int | NkiTensor | None = None) -> VirtualRegister:
    """A register of the engines' sequencers, with a first value or none.

    Args:
        x: the first value, a whole number; ``None`` for none. That of a (1, 1) tensor is loaded, and reported: an old form.

    Raises:
        NkiValidationError: ``x`` is no whole number.

    Example:
        empty = nisa.register_alloc()
        nisa.register_load(dst=empty, src=nl.full((1, 1), 8, dtype=nl.int32))
        start = nisa.register_alloc(2)
    """
    machine = context.machine()
    if isinstance(x, NkiTensor):
        machine.found(fail(PREFILL, "x is a tensor", target=machine.core.target, subject="register_alloc").diagnosis)
        loaded = register_alloc()
        register_load(dst=loaded, src=x)
        return loaded
    if x is not None and (not isinstance(x, int) or isinstance(x, bool)):
        raise fail(
            INITIAL, f"x is {type(x).__name__}", target=machine.core.target, subject="register_alloc", error=NkiTypeError
        )
    made = VirtualRegister(x)
    alive = machine.count_register(made)
    if alive > MOST_REGISTERS:
        machine.found(fail(REGISTERS, f"{alive} registers", target=machine.core.target, subject="register_alloc").diagnosis)
    machine.effect(lambda: made.reset(x))
    return made


class _Sequencer(Instruction):
    """What a sequencer does itself, without an engine's data path."""

    runs_on = engine.sync

    def check_owner(self) -> None:
        """The register that is written is no loop's own."""
        written = getattr(self, "dst", None)
        owner = written.owner if isinstance(written, VirtualRegister) else ""
        if owner:
            broken = Broken(f"dst is the register of an {owner}", "dst", error=AssertionError)
            context.machine().broken(self, FROZEN if owner == "nl.dynamic_range" else READ_ONLY, broken)

    def cycles(self, core: NeuronCore) -> float:
        """About 140 to reach memory, the least of an instruction between registers."""
        return ACCESS if any(True for _ in self.tiles()) else MOVE

    def one_element(self, name: str) -> Broken | None:
        """One number of at most 32 bits."""
        tile = getattr(self, name)
        if tile.size != 1 or tile.info.itemsize > 4 or tile.ndim > 2:
            return Broken(f"{name} has shape {tile.shape}, dtype {tile.dtype}", name, fix="take one element: t[0:1, 0:1]")
        return None


def _held_by(register: Any) -> bool:
    """Whether there is a register to write: in a replay there is its value only."""
    return isinstance(register, VirtualRegister) and not register.frozen


def _write(dst: Array, info: DType, source: Any) -> None:
    """The number that a register holds into one element: as a number, not as 32 bits of another kind."""
    value = now(source)
    if isinstance(value, float):
        write_float32(dst, info, np.full(dst.shape, value, np.float32))
    else:
        write_integers(dst, info, np.full(dst.shape, value, np.int64))


@instruction
class register_move(_Sequencer):
    """``dst = src``, a compile-time whole number or another register.

    Args:
        dst: a register; a loop gives its body a copy of its own, so that writing it does not change the loop.
        src: a register or a whole number.

    Example:
        reg, kept = nisa.register_alloc(), nisa.register_alloc()
        nisa.register_move(dst=reg, src=4)
        nisa.register_move(dst=kept, src=reg)
    """

    dst: Any = register("register_move.dst", access="write")
    src: Any = register("register_move.src", number=True)

    def __post_init__(self) -> None:
        self.check_owner()
        super().__post_init__()

    def body(self, core: NeuronCore) -> Body:
        def move(dst: Any, src: Any) -> None:
            if _held_by(dst):
                dst.hold(now(src))

        return move


@instruction
class register_load(_Sequencer):
    """``dst = src``: one number from memory into a register.

    Args:
        dst: a register.
        src: SBUF or HBM, one element of at most 32 bits.

    Example:
        bound = nl.full((1, 1), 4, dtype=nl.int32)
        reg = nisa.register_alloc()
        nisa.register_load(dst=reg, src=bound)
    """

    dst: Any = register("register_load.dst", access="write")
    src: NkiTensor = read(DMA_REACH, "register.no_psum")

    def __post_init__(self) -> None:
        self.check_owner()
        super().__post_init__()

    @rule("register_load.src", "src is one element of at most 32 bits", page=isa_page("register_load"))
    def one(self, core: NeuronCore) -> Broken | None:
        return self.one_element("src")

    def body(self, core: NeuronCore) -> Body:
        info = self.src.info

        def load(dst: Any, src: Array) -> None:
            if _held_by(dst):
                found = (to_float32(src) if info.is_float else src).reshape(-1)[0]
                dst.hold(int(found) if info.is_integer else float(found))

        return load


@instruction
class register_store(_Sequencer):
    """``dst = src``: a register's number into memory, converted to the dtype of ``dst``.

    Args:
        dst: SBUF or HBM, one element of at most 32 bits.
        src: a register.

    Example:
        reg = nisa.register_alloc(4)
        cell = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.register_store(dst=cell, src=reg)
    """

    dst: NkiTensor = write(DMA_REACH, "register.no_psum")
    src: Any = register("register_store.src")

    @rule("register_store.dst", "dst is one element of at most 32 bits", page=isa_page("register_store"))
    def one(self, core: NeuronCore) -> Broken | None:
        return self.one_element("dst")

    def body(self, core: NeuronCore) -> Body:
        info = self.dst.info
        return lambda dst, src: _write(dst, info, src)


@instruction
class scalar_load(_Sequencer):
    """One number from memory as a runtime scalar, which adds, subtracts and multiplies.

    Args:
        dst: the scalar, made by :func:`load_scalar`, which is what ``nisa.scalar_load(src)`` calls.
        src: SBUF or HBM, one element, int32 or int64.
    """

    dst: Any = register("scalar_load.dst", access="write")
    src: NkiTensor = read(DMA_REACH, "scalar_load.src")

    @rule("scalar_load.src", "src is one element of int32 or int64", page=isa_page("scalar_load"))
    def one(self, core: NeuronCore) -> Broken | None:
        if self.src.size != 1 or self.src.dtype not in ("int32", "int64"):
            return Broken(f"src has shape {self.src.shape}, dtype {self.src.dtype}", "src", fix="take one element: t[0:1, 0:1]")
        return None

    def body(self, core: NeuronCore) -> Body:
        def load(dst: Any, src: Array) -> None:
            if isinstance(dst, NkiScalar):
                dst.hold(int(src.reshape(-1)[0]))

        return load


def load_scalar(src: NkiTensor) -> NkiScalar:
    """One number from memory as a runtime scalar, which adds, subtracts and multiplies.

    Args:
        src: SBUF or HBM, one element, int32 or int64.

    Raises:
        NkiValidationError: ``src`` is not one such number.

    Example:
        start = nisa.scalar_load(src=nl.full((1, 1), 3, dtype=nl.int32))
        column = nl.load(x.select(dim=1, index=2 * start + 1).expand_dim(1))  # (128, 1)
    """
    dtype = src.dtype if isinstance(src, NkiTensor) and src.dtype == "int64" else "int32"
    made = NkiScalar(0, dtype)
    scalar_load(made, src)
    return made


load_scalar.__name__ = load_scalar.__qualname__ = "scalar_load"


@instruction
class scalar_store(_Sequencer):
    """``dst = value``: a runtime scalar into memory.

    Args:
        dst: SBUF or HBM, one integer as wide as the scalar.
        value: a runtime scalar; a number that Python knows goes there by ``nisa.memset``.

    Example:
        tile = nl.full((1, 1), 3, dtype=nl.int32)
        after = nisa.scalar_load(tile) + 1
        nisa.scalar_store(dst=tile, value=after)
    """

    dst: NkiTensor = write(DMA_REACH, "scalar_store.dst")
    value: Any = register("scalar_store.value")

    @rule("scalar_store.dst", "dst is one integer as wide as the scalar", page=isa_page("scalar_store"))
    def width(self, core: NeuronCore) -> Broken | None:
        scalar = self.value
        if not isinstance(scalar, NkiScalar):
            fix = "nisa.register_store takes registers"
            return Broken(f"value is {scalar.words()}", "value", fix=fix, error=TypeError)
        if self.dst.size != 1 or not self.dst.info.is_integer or self.dst.info.itemsize * 8 != scalar.bits:
            return Broken(f"dst has shape {self.dst.shape}, dtype {self.dst.dtype}; value is {scalar.words()}", "dst")
        return None

    def body(self, core: NeuronCore) -> Body:
        info = self.dst.info
        return lambda dst, value: _write(dst, info, value)

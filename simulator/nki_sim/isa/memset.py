"""``nki.isa.memset``: fill a tile with a constant."""

from __future__ import annotations

import numbers
from typing import ClassVar

import numpy as np

from nki_sim.dtypes import encoder
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, immediate, instruction, write
from nki_sim.isa.cost import at_least, elements, gpsimd
from nki_sim.isa.enums import engine as Engine  # noqa: N812
from nki_sim.isa.values import storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("memset")


@instruction
class memset(ComputeInstruction):
    """``dst[...] = value``.

    Args:
        dst: SBUF or PSUM.
        value: a compile-time constant of the dtype's kind: an int for integer tiles, an int or float for float tiles;
            only 0 for packed (x4) tiles.
        engine: vector, gpsimd (SBUF only) or unknown (vector).

    Example:
        acc = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=acc, value=0.0)
    """

    decided_params = ("only_value",)

    takes_scales = True

    dst: NkiTensor = write(ON_CHIP)
    value: float = immediate("memset.const")
    engine: Engine = Engine.unknown
    name: str | None = None

    only_value: ClassVar[object] = None  # plans differ by it where only 0 is let through

    def __post_init__(self) -> None:
        told = isinstance(self.dst, NkiTensor) and (
            self.dst.info.kind == "packed" or (self.dst.info.is_integer and isinstance(self.value, float))
        )
        if told:
            self.__dict__["only_value"] = self.value
        super().__post_init__()

    def resolve_engine(self, core: NeuronCore) -> Engine:
        return Engine.vector if self.engine is Engine.unknown else self.engine

    @rule("memset.engines", "engine is vector, gpsimd or unknown", page=_PAGE)
    def engines(self, core: NeuronCore) -> Broken | None:
        return self.one_of_engines(Engine.vector, Engine.gpsimd)

    @rule("memset.type_match", "the type of value matches dst: an integer for integer tiles", page=_PAGE,
          fix="write the integer without a point, for example value=2")  # fmt: skip
    def type_match(self, core: NeuronCore) -> Broken | None:
        return self._float() if self.value else None

    @rule(
        "memset.type_match",
        "0.0 is no integer: an integer tile is set to 0",
        page=_PAGE,
        enforce="warn",
        fix="write value=0",
        why="the documents refuse any float; the public kernel library of that release sets integer tiles to 0.0",
    )
    def zero(self, core: NeuronCore) -> Broken | None:
        return None if self.value else self._float()

    def _float(self) -> Broken | None:
        if self.dst.info.is_integer and not isinstance(self.value, numbers.Integral):
            return Broken(f"dst is {self.dst.dtype}, value is float {self.value}", "value")
        return None

    @rule("memset.x4_zero", "a packed (x4) tile can only be set to 0", page=_PAGE)
    def packed(self, core: NeuronCore) -> Broken | None:
        if self.dst.info.kind == "packed" and self.value != 0:
            return Broken(f"value {self.value} for {self.dst.dtype}", "value")
        return None

    def cycles(self, core: NeuronCore) -> float:
        """trn1: N, half of that for zeros of bf16 or fp16. Newer: the Vector Engine's data path, four bf16 or fp16 or two
        others per cycle (an estimate: the note is of trn1). GpSimd: 150 + N (an estimate)."""
        n, half = elements(self, "dst"), self.dst.dtype in ("bfloat16", "float16")
        if self.resolve_engine(core) is Engine.gpsimd:
            return gpsimd(n)
        if core.gen > 2:
            return at_least(n / (4 if half else 2))
        return at_least(n / (2 if half and self.value == 0 else 1))

    def body(self, core: NeuronCore) -> Body:
        if self.dst.info.name == "tfloat32":
            store = storer(self.dst)
            return lambda dst, value: store(dst, np.full(dst.shape, value, np.float32))

        return encoder(self.dst.stored_dtype)

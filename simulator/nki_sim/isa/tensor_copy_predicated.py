"""``nki.isa.tensor_copy_predicated``: copy where a predicate holds, keep the rest."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from nki_sim.dtypes import Array, write_float32, write_integers
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, instruction, read, scalar_or_tile, update
from nki_sim.isa.cost import at_least, elements
from nki_sim.isa.enums import engine as Engine  # noqa: N812 - fields have the enums\' names
from nki_sim.isa.indirection import aligned, allowed, is_indirect
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("tensor_copy_predicated")


@instruction
class tensor_copy_predicated(ComputeInstruction):
    """``dst = src where predicate, else dst`` on the Vector Engine.

    Args:
        dst: SBUF or PSUM; elements whose predicate is false keep their value.
        src: a tile of dst's dtype, or a compile-time scalar; not in PSUM together with predicate.
        predicate: uint8, uint16 or uint32 tile; non-zero is true.
        reverse_pred: swap the meaning of predicate.

    Example:
        a, b = nl.load(x[:, 0:64]), nl.load(x[:, 64:128])
        larger = nl.greater(b, a, dtype=nl.uint8)
        nisa.tensor_copy_predicated(dst=a, src=b, predicate=larger)
    """

    writes_all = False

    dst: NkiTensor = update(ON_CHIP)
    src: float | NkiTensor = scalar_or_tile(ON_CHIP)
    predicate: NkiTensor = read(ON_CHIP)
    reverse_pred: bool = False
    name: str | None = None

    indirect_operands = allowed("tcp", ("dst", "predicate"), (Engine.vector,))
    indirect_partitions = aligned("tcp", "predicate")

    def __post_init__(self) -> None:
        super().__post_init__()
        storage = self.dst.storage
        if storage.state and (is_indirect(self.dst) or is_indirect(self.predicate)):
            storage.poison()  # which elements a predicate at offsets means is known on the device only
            storage.mark(self.dst.pattern)
        elif storage.state:
            chosen = self.predicate.array.reshape(self.dst.shape).astype(bool) != self.reverse_pred
            storage.mark(self.dst.pattern, chosen)

    @rule("tcp.shape", "src (if a tile), dst and predicate have equal partition sizes and elements per partition; "
          "ranks may differ", page=_PAGE)  # fmt: skip
    def shape(self, core: NeuronCore) -> Broken | None:
        return self.alike("dst", "src", "predicate")

    @rule("tcp.not_both_psum", "src and predicate are not both in PSUM", page=_PAGE,
          why="the engine has one read port to PSUM")  # fmt: skip
    def psum(self, core: NeuronCore) -> Broken | None:
        return self.not_both_psum("src", "predicate")

    @rule("tcp.predicate_dtype", "predicate is uint8, uint16 or uint32", page=_PAGE,
          fix="compare into a uint8 tile, or reinterpret with .view(nl.uint32)")  # fmt: skip
    def predicate_dtype(self, core: NeuronCore) -> Broken | None:
        if self.predicate.dtype not in ("uint8", "uint16", "uint32"):
            return Broken(f"predicate is {self.predicate.dtype}", "predicate")
        return None

    @rule("tcp.src_dst_dtype", "src and dst share one dtype", page=_PAGE)
    def same_dtype(self, core: NeuronCore) -> Broken | None:
        if isinstance(self.src, NkiTensor) and self.src.dtype != self.dst.dtype:
            return Broken(f"src is {self.src.dtype}, dst is {self.dst.dtype}", "src")
        return None

    def cycles(self, core: NeuronCore) -> float:
        """N when one of src and predicate is in PSUM, 2N when both are in SBUF."""
        in_psum = any(t.buffer is MemoryRegion.psum for _, t in self._named("src", "predicate"))
        return at_least(elements(self, "dst") * (1 if in_psum else 2))

    def body(self, core: NeuronCore) -> Body:
        shape, reverse, tile, info = self.dst.shape, self.reverse_pred, isinstance(self.src, NkiTensor), self.dst.info

        def converted(number: Any, like: Array) -> Array:
            """A scalar as one element of dst: whole numbers exactly, others from float32 as everywhere."""
            one = np.empty(1, like.dtype)
            if isinstance(number, numbers.Integral):
                write_integers(one, info, np.array([int(number)]))
            else:
                write_float32(one, info, np.array([number], np.float32))
            return one

        def copy(dst: Array, src: Any, predicate: Array) -> None:
            chosen = predicate.reshape(shape).astype(bool) != reverse
            np.copyto(dst, src.reshape(shape) if tile else converted(src, dst), where=chosen)

        return copy

"""``nki.isa.tensor_copy``: copy a tile within SBUF and PSUM, converting on the way."""

from __future__ import annotations

import numpy as np

from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, instruction, read, write
from nki_sim.isa.cost import at_least, elements, streamed
from nki_sim.isa.enums import engine as Engine  # noqa: N812
from nki_sim.isa.indirection import aligned, allowed, no_psum_scatter
from nki_sim.isa.values import loader, storer
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("tensor_copy")


@instruction
class tensor_copy(ComputeInstruction):
    """``dst = src``: bit by bit when the dtypes are equal, through float32 otherwise.

    Args:
        dst: SBUF or PSUM, as many partitions and elements per partition as ``src``.
        src: SBUF or PSUM.
        engine: vector, scalar, gpsimd (SBUF only) or unknown (vector).

    Example:
        acc = nl.zeros((128, 64), dtype=nl.float32, buffer=nl.psum)
        tile = nl.ndarray(acc.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_copy(dst=tile, src=acc)
    """

    takes_scales = True

    dst: NkiTensor = write(ON_CHIP, "tensor_copy.buffers")
    src: NkiTensor = read(ON_CHIP, "tensor_copy.buffers")
    engine: Engine = Engine.unknown
    name: str | None = None

    indirect_operands = allowed("tensor_copy", ("dst", "src"), (Engine.vector, Engine.scalar))
    indirect_partitions = aligned("tensor_copy", "src")
    indirect_scatter = no_psum_scatter("tensor_copy")

    def resolve_engine(self, core: NeuronCore) -> Engine:
        return Engine.vector if self.engine is Engine.unknown else self.engine

    @rule("tensor_copy.engines", "engine is vector, scalar, gpsimd or unknown", page=_PAGE)
    def engines(self, core: NeuronCore) -> Broken | None:
        return self.one_of_engines(Engine.vector, Engine.scalar, Engine.gpsimd)

    @rule(
        "tensor_copy.gen2_no_scalar",
        "on trn1 the Scalar Engine has no tensor_copy",
        fix="use nisa.activation(op=nl.copy), or another engine",
        page=_PAGE,
        gens=(2,),
    )
    def no_scalar(self, core: NeuronCore) -> Broken | None:
        return Broken("engine scalar on trn1", "engine") if self.engine is Engine.scalar else None

    @rule(
        "tensor_copy.gpsimd_no_psum",
        "GpSimd copies SBUF to SBUF only",
        why="the GpSimd Engine has no path to PSUM",
        fix="use engine=nisa.engine.vector or scalar",
        page=_PAGE,
    )
    def gpsimd(self, core: NeuronCore) -> Broken | None:
        if self.engine is Engine.gpsimd:
            for name, tile in self.tiles():
                if tile.buffer is MemoryRegion.psum:
                    return Broken(f"{name} is in PSUM with engine gpsimd", name)
        return None

    @rule(
        "tensor_copy.shape",
        "dst has the partition size of src and as many elements per partition",
        fix="t[i, …] of an SBUF tensor keeps partition i as a dimension of size 1; put what you want to pick by index on "
        "the free dimensions: nl.ndarray((128, 4, 64)) and t[:, i, :]",
        page=_PAGE,
    )
    def shape(self, core: NeuronCore) -> Broken | None:
        return self.alike("dst", "src", fix=type(self).shape.rules[0].fix)  # type: ignore[attr-defined]

    def cycles(self, core: NeuronCore) -> float:
        """As a stream on the Vector Engine, N on the others."""
        if self.resolve_engine(core) is Engine.vector:
            return streamed(core, self.dst, self.src)
        return at_least(elements(self, "dst"))

    def body(self, core: NeuronCore) -> Body:
        shape = self.dst.shape
        if self.dst.info is self.src.info:
            if shape == self.src.shape:
                return lambda dst, src: np.copyto(dst, src)

            def copy(dst: Array, src: Array) -> None:
                dst[...] = src.reshape(shape)

            return copy
        load, store = loader(self.src, shape), storer(self.dst)
        return lambda dst, src: store(dst, load(src))

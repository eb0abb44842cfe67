"""``nki.isa.nc_transpose``: a 2-D transpose on the Tensor or Vector Engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nki_sim.dtypes import Array, assign, to_float32
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, Cost, free, instruction, partitions, read, write
from nki_sim.isa.cost import at_least, loads
from nki_sim.isa.enums import engine as Engine  # noqa: N812 - the field is named engine
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("nc_transpose")


@instruction
class nc_transpose(ComputeInstruction):
    """``dst[f, p] = data[p, f]``, all free dimensions of ``data`` taken as one.

    Bit by bit, but on trn1's Tensor Engine, where NaN and infinity make NaN of the other elements of their row of ``dst``.

    Args:
        dst: [F, P]; in PSUM on the Tensor Engine, SBUF or PSUM on the Vector Engine. Same dtype as ``data``.
        data: [P, F]; at most [128, 128] in SBUF on the Tensor Engine, [32, 32] on the Vector Engine.
        engine: tensor, vector or unknown (tensor when ``dst`` is in PSUM, else vector).

    Example:
        a = nl.load(x[:, 0:64])
        turned = nl.ndarray((64, 128), dtype=a.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=a)
    """

    dst: NkiTensor = write(ON_CHIP, "nc_transpose.vector_buffers")
    data: NkiTensor = read(ON_CHIP, "nc_transpose.vector_buffers")
    engine: Engine = Engine.unknown
    name: str | None = None

    def resolve_engine(self, core: NeuronCore) -> Engine:
        """As asked; unknown goes by where ``dst`` is, and to the Vector Engine when ``data`` is in PSUM."""
        if self.engine is not Engine.unknown:
            return self.engine
        tensor = self.dst.buffer is MemoryRegion.psum and self.data.buffer is MemoryRegion.sbuf
        return Engine.tensor if tensor else Engine.vector

    @rule("nc_transpose.engines", "engine is tensor, vector or unknown", page=_PAGE)
    def engines(self, core: NeuronCore) -> Broken | None:
        return self.one_of_engines(Engine.tensor, Engine.vector)

    @rule(
        "nc_transpose.tensor_buffers",
        "on the Tensor Engine data is in SBUF and dst in PSUM",
        why="the array reads SBUF and writes PSUM only",
        fix="allocate dst with buffer=nl.psum and evacuate it with nisa.tensor_copy",
        page=_PAGE,
    )
    def tensor_buffers(self, core: NeuronCore) -> Broken | None:
        if self.resolve_engine(core) is Engine.tensor:
            if self.data.buffer is not MemoryRegion.sbuf:
                return Broken("data is in PSUM", "data", fix="copy it to SBUF first with nisa.tensor_copy")
            if self.dst.buffer is not MemoryRegion.psum:
                return Broken("dst is in SBUF", "dst")
        return None

    @rule(
        "nc_transpose.tensor_le_128",
        "the Tensor Engine transposes at most [128, 128]",
        why="the array has 128 rows and 128 columns",
        fix="cut the free dimension into tiles of 128, one PSUM tile each",
        page=_PAGE,
    )
    def tensor_size(self, core: NeuronCore) -> Broken | None:
        if self.resolve_engine(core) is Engine.tensor and max(partitions(self.data), free(self.data)) > 128:
            return Broken(f"data is [{partitions(self.data)}, {free(self.data)}]", "data")
        return None

    @rule(
        "nc_transpose.vector_le_32",
        "the Vector Engine transposes at most [32, 32]",
        why="it shuffles within one bank of 32 lanes",
        fix="give dst buffer=nl.psum to use the Tensor Engine ([128, 128])",
        page=_PAGE,
    )
    def vector_size(self, core: NeuronCore) -> Broken | None:
        if self.resolve_engine(core) is Engine.vector and max(partitions(self.data), free(self.data)) > 32:
            return Broken(f"data is [{partitions(self.data)}, {free(self.data)}] on the Vector Engine", "data")
        return None

    @rule("nc_transpose.dst_shape", "dst is data with the partition and the flattened free axis swapped", page=_PAGE,
          fix="allocate dst as (data's elements per partition, data's partitions)")  # fmt: skip
    def shapes(self, core: NeuronCore) -> Broken | None:
        p, f = partitions(self.data), free(self.data)
        if (partitions(self.dst), free(self.dst)) != (f, p):
            return Broken(f"dst is {self.dst.shape}, the transpose of data is ({f}, {p})", "dst")
        return None

    @rule(
        "nc_transpose.same_dtype",
        "dst has the dtype of data (on trn1 the Tensor Engine writes float32)",
        why="a transpose moves bits, it does not convert",
        fix="allocate dst with dtype=data.dtype",
        page=_PAGE,
    )
    def dtypes(self, core: NeuronCore) -> Broken | None:
        # The reference asks for equal dtypes; the arch guides add that trn1 writes fp32 to PSUM, and that fp8 lands in
        # 16-bit elements on trn2. All three are accepted.
        data, dst = self.data.info, self.dst.info
        if dst.name == data.name:
            return None
        if self.resolve_engine(core) is Engine.tensor:
            if core.gen == 2 and dst.name == "float32":
                return None
            if data.is_fp8 and dst.itemsize == 2 and dst.is_float:
                return None
        return Broken(f"dst is {dst.name}, data is {data.name}", "dst")

    def cycles(self, core: NeuronCore) -> float:
        """Tensor Engine: max(P, min(64, F)) per pass; fp32 takes 2 passes, on trn1 4. Vector Engine: max(64, N)."""
        p, f = partitions(self.data), free(self.data)
        if self.resolve_engine(core) is Engine.vector:
            return at_least(f)
        return self._passes(core) * max(float(p), min(64.0, f))

    def _passes(self, core: NeuronCore) -> int:
        if self.data.info.itemsize != 4:
            return 1
        return 4 if core.gen == 2 else 2

    def cost(self, core: NeuronCore) -> Cost:
        """On the Tensor Engine a matmul with data as stationary."""
        cost = super().cost(core)
        if self.resolve_engine(core) is Engine.vector:
            return cost
        p, f = partitions(self.data), free(self.data)
        passes = -(-self._passes(core) // 2)
        return replace(cost, load=loads(f), columns=f, passes=passes, transpose_flops=2 * p * f * p)

    def body(self, core: NeuronCore) -> Body:
        p, f, shape = partitions(self.data), free(self.data), self.dst.shape

        def transpose(dst: Array, data: Array) -> None:
            assign(dst, data.reshape(p, f).T.reshape(shape))

        if core.gen > 2 or self.resolve_engine(core) is Engine.vector or not self.data.info.is_float:
            return transpose

        def multiply(dst: Array, data: Array) -> None:
            # trn1 multiplies by an identity matrix: NaN and infinity times the zeros of it are NaN in the rest of the row
            turned = to_float32(data.reshape(p, f)).T
            special = ~np.isfinite(turned)
            if special.any():
                others = special.sum(axis=1, keepdims=True) > special
                assign(dst, np.where(others, np.float32(np.nan), turned).reshape(shape))
            else:
                transpose(dst, data)

        return multiply

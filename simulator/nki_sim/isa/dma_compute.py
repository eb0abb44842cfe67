"""``nki.isa.dma_compute``: add tensors while moving them, and add into gathered or scattered rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from nki_sim import context, ops
from nki_sim.dtypes import Array, to_float32, write_float32
from nki_sim.errors import Broken, Rule, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import DMA_REACH, Body, Instruction, free, instruction, write
from nki_sim.isa.dma import DmaInstruction, Rows, index_of
from nki_sim.isa.enums import engine as Engine  # noqa: N812 - fields have the enums' names
from nki_sim.isa.enums import oob_mode as OobMode  # noqa: N812
from nki_sim.isa.values import loader
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("dma_compute")
_MOST = 16
_SOURCES = tuple(f"src{i}" for i in range(_MOST))

DUPLICATES = Rule(
    "dma_compute.duplicate_index_ub",
    "the indices of a scatter name each row once",
    why="each row is read, added to and written back: of two additions to one row, one may be lost (here: the first)",
    fix="combine the lanes of one row first, for example with a matmul against a 0/1 matrix",
    page=_PAGE,
    enforce="ub",
)


@instruction
class dma_compute(Instruction):
    """``dst = srcs[0] + srcs[1] + …`` in the DMA engines, in float32, in the order of the elements.

    With a ``vector_offset`` there are two sources, and rows are read, added to and written back. Scatter: ``dst`` and one
    source are the same indexed rows in HBM, the other source is in SBUF. Gather: one source is indexed rows in HBM,
    ``dst`` and the other source are the same tile in SBUF.

    Args:
        dst: HBM or SBUF. srcs: 1 to 16 tensors in HBM or SBUF, each with dst's number of elements.
        reduce_op: ``nl.add``. scales: None, or 1.0 for each source.
        unique_indices: True: each row is indexed once.
        oob_mode: what an index out of bounds does: an error, or the row is skipped.

    Example:
        total = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_compute(dst=total, srcs=[x[:, 0:64], x[:, 64:128]], reduce_op=nl.add)
    """

    decided_operands = (*_SOURCES, "index")
    decided_params = ("form", "given")
    runs_on = Engine.dma

    dst: NkiTensor = write(DMA_REACH, "dma_compute.buffers")
    srcs: Sequence[NkiTensor]
    reduce_op: Any
    scales: Sequence[float] | None = None
    unique_indices: bool = True
    oob_mode: OobMode = OobMode.error
    name: str | None = None

    index: ClassVar[NkiTensor | None]
    form: ClassVar[str]
    given: ClassVar[int]

    @classmethod
    def collect(cls) -> None:
        """The sources are operands, not one parameter."""
        super().collect()
        names = cls.param_names = tuple(n for n in cls.param_names if n != "srcs")
        cls.declare(cls.get_operands, lambda ins: tuple(getattr(ins, n) for n in names))

    def __post_init__(self) -> None:
        listed = isinstance(self.srcs, (list, tuple))
        given = list(self.srcs) if listed else [self.srcs]
        self.__dict__.update(dict.fromkeys(_SOURCES))
        self.__dict__.update(zip(_SOURCES, given, strict=False))
        self.__dict__["given"] = len(given) if listed else -1  # what the rules look at and the operands do not say
        self.__dict__["index"] = next((i for i in map(index_of, (self.dst, *given)) if i is not None), None)
        self.__dict__["form"] = _form(self.dst, given)
        super().__post_init__()

    partition_step = DmaInstruction.partition_step

    @rule("dma_compute.buffers", "srcs and dst are in HBM or SBUF", page=_PAGE, why="DMA engines reach HBM and SBUF, not PSUM",
          fix="nisa.tensor_copy to SBUF first")  # fmt: skip
    def buffers(self, core: NeuronCore) -> Broken | None:
        for name, tile in self._named(*_SOURCES):
            if tile.buffer not in DMA_REACH:
                return Broken(f"{name} is in {tile.buffer.name.upper()}", name)
        return None

    @rule("dma_compute.max_16_srcs", "srcs is a list of 1 to 16 tensors of this kernel", page=_PAGE,
          fix="add 16 of them into a tile, then that tile and the rest")  # fmt: skip
    def sources(self, core: NeuronCore) -> Broken | None:
        if not isinstance(self.srcs, (list, tuple)):
            return Broken(f"srcs is {type(self.srcs).__name__}", "srcs", fix="write srcs=[a, b]", error=TypeError)
        if not 1 <= len(self.srcs) <= _MOST:
            return Broken(f"srcs has {len(self.srcs)} tensors", "srcs")
        for name, source in zip(_SOURCES, self.srcs, strict=False):
            if not isinstance(source, NkiTensor) or source.memory is not context.machine().memory:
                return Broken(f"{name} is {type(source).__name__}, no tensor of this kernel", name, error=TypeError)
        return None

    @rule("dma_compute.elem_count", "each source has as many elements as dst", page=_PAGE,
          why="the sum is element by element, in the order of the elements")  # fmt: skip
    def count(self, core: NeuronCore) -> Broken | None:
        for name, tile in self._named(*_SOURCES):
            if tile.size != self.dst.size:
                return Broken(f"{name} has {tile.size} elements, dst {self.dst.size}", name)
        return None

    @rule("dma_compute.reduce_op_add", "reduce_op is nl.add", page=_PAGE)
    def reduction(self, core: NeuronCore) -> Broken | None:
        op = ops.lookup(self.reduce_op)
        return None if op.name == "add" else Broken(f"reduce_op nl.{op.name}", "reduce_op")

    @rule("dma_compute.scales_one", "scales is None, or 1.0 for each source", page=_PAGE,
          fix="scale on chip first: nisa.tensor_scalar(op0=nl.multiply, …)")  # fmt: skip
    def unscaled(self, core: NeuronCore) -> Broken | None:
        scales = self.scales
        if scales is None:
            return None
        listed = isinstance(scales, (list, tuple)) and all(isinstance(s, (int, float, np.number)) for s in scales)
        if not listed or len(scales) != len(self.srcs) or any(s != 1 for s in scales):
            return Broken(f"scales is {scales!r} for {len(self.srcs)} sources", "scales")
        return None

    @rule("dma_compute.static_addresses", "addresses are known at compile time, but for a vector_offset", page=_PAGE,
          why="without a vector_offset the descriptors are written before the kernel starts",
          fix="nisa.dma_copy takes runtime offsets: copy the part first")  # fmt: skip
    def static(self, core: NeuronCore) -> Broken | None:
        for name, tile in self.tiles():
            if tile.dynamic is not None and tile.dynamic.kind != "vector":
                return Broken(f"{name} has a runtime offset", name)
        return None

    @rule("dma_compute.rmw.two_srcs", "with a vector_offset there are exactly two sources", page=_PAGE)
    def two(self, core: NeuronCore) -> Broken | None:
        bad = self.form != "sum" and len(self.srcs) != 2
        return Broken(f"srcs has {len(self.srcs)} tensors", "srcs") if bad else None

    @rule("dma_compute.rmw.unique", "with a vector_offset unique_indices is True", page=_PAGE,
          fix="combine the lanes of one row first, for example with a matmul against a 0/1 matrix")  # fmt: skip
    def unique(self, core: NeuronCore) -> Broken | None:
        bad = self.form != "sum" and self.unique_indices is not True
        return Broken(f"unique_indices is {self.unique_indices!r}", "unique_indices") if bad else None

    @rule("dma_compute.rmw.scatter", "a scatter adds an SBUF tile into rows of HBM: dst and one source are the same view with "
          "the same vector_offset", page=_PAGE)  # fmt: skip
    def scatters(self, core: NeuronCore) -> Broken | None:
        return Broken("dst has a vector_offset, and no source is the same view", "srcs") if self.form == "scatter?" else None

    @rule("dma_compute.rmw.gather", "a gather adds rows of HBM to an SBUF tile: dst is in SBUF and the other source is dst",
          page=_PAGE)  # fmt: skip
    def gathers(self, core: NeuronCore) -> Broken | None:
        bad = self.form == "gather?"
        return Broken("a source has a vector_offset, and the other is not a dst in SBUF", "srcs") if bad else None

    @rule("dma_compute.indices", "the indices are an SBUF tile of shape (P, 1) and integer dtype, one for each row", page=_PAGE)
    def index_shape(self, core: NeuronCore) -> Broken | None:
        index = self.index
        if index is None:
            return None
        rows = next(t.shape[0] for _, t in self.tiles() if index_of(t) is not None)
        bad = index.size < rows or free(index) != 1 or not index.info.is_integer
        return Broken(f"indices are {index.words()} for {rows} rows") if bad or index.buffer is not MemoryRegion.sbuf else None

    @rule("dma_compute.oob_skip_indirect", "oob_mode.skip goes with a vector_offset", page=_PAGE,
          fix="leave oob_mode out: addresses known at compile time are checked here")  # fmt: skip
    def skip(self, core: NeuronCore) -> Broken | None:
        bad = self.oob_mode is OobMode.skip and self.form == "sum"
        return Broken("oob_mode is skip without a vector_offset", "oob_mode") if bad else None

    def body(self, core: NeuronCore) -> Body:
        if self.form == "sum":
            return self._sum()
        kind, tile = self.form[:-1], int(self.form[-1])
        return self._scatter(tile) if kind == "scatter" else self._gather(1 - tile)

    def _sum(self) -> Body:
        info, loads = self.dst.info, [loader(t, self.dst.shape) for _, t in self._named(*_SOURCES)]

        def add(dst: Array, *sources: Any) -> None:
            total = np.array(loads[0](sources[0]), np.float32)
            for load, source in zip(loads[1:], sources[1:], strict=False):
                total += load(source)
            write_float32(dst, info, total)

        return add

    def _gather(self, at: int) -> Body:
        """The rows of source ``at`` are added to dst."""
        info, shape = self.dst.info, self.dst.shape
        rows = Rows(self.srcs[at], self.oob_mode is OobMode.skip)

        def gather(dst: Array, *operands: Any) -> None:
            table, lanes, chosen = rows.select(operands[at], operands[-1])
            into = dst.reshape(rows.count, -1)
            part = np.empty((len(lanes), into.shape[1]), dst.dtype)
            write_float32(part, info, to_float32(into[lanes]) + to_float32(table[chosen]).reshape(part.shape))
            into[lanes] = part
            if not np.shares_memory(into, dst):  # dst's rows are not those of the gather
                dst[...] = into.reshape(shape)

        return gather

    def _scatter(self, at: int) -> Body:
        """The rows of source ``at`` are added into those of dst."""
        info, machine = self.dst.info, context.machine()
        rows = Rows(self.dst, self.oob_mode is OobMode.skip)
        load = loader(self.srcs[at], self.dst.shape)

        def scatter(dst: Array, *operands: Any) -> None:
            table, lanes, chosen = rows.select(dst, operands[-1])
            if len(np.unique(chosen)) < len(chosen):
                machine.finding(self, DUPLICATES, Broken("two lanes add to one row", "dst"))
            part = np.empty((len(lanes), *dst.shape[1:]), dst.dtype)
            write_float32(part, info, to_float32(table[chosen]) + load(operands[at])[lanes])
            table[chosen] = part

        return scatter


def _form(dst: Any, sources: list[Any]) -> str:
    """``sum``, or ``scatter`` or ``gather`` with the number of the source in SBUF; ``?`` where there is no such source."""
    if index_of(dst) is not None:
        pairs = [i for i, s in enumerate(sources[:2]) if _in_sbuf(s) and _same_access(sources[1 - i : 2 - i], dst)]
        return f"scatter{pairs[0]}" if pairs else "scatter?"
    if any(index_of(s) is not None for s in sources):
        pairs = [i for i, s in enumerate(sources[:2]) if _in_sbuf(dst) and _same_access([s], dst)]
        return f"gather{pairs[0]}" if pairs else "gather?"
    return "sum"


def _in_sbuf(tile: Any) -> bool:
    return isinstance(tile, NkiTensor) and tile.buffer is MemoryRegion.sbuf


def _same_access(one: list[Any], other: NkiTensor) -> bool:
    """Whether the only tensor of a list reads the same elements, in the same order, as another."""
    if len(one) != 1 or not isinstance(one[0], NkiTensor):
        return False
    a, b = one[0], other
    same = a.storage is b.storage and a.info is b.info
    same = same and (a.shape, a.strides, a.offset) == (b.shape, b.strides, b.offset)
    i, j = index_of(a), index_of(b)
    if i is None or j is None:
        return same and i is j and a.dynamic is b.dynamic is None
    return same and i.storage is j.storage and (i.shape, i.strides, i.offset) == (j.shape, j.strides, j.offset)

"""``nki.isa.exponential``: exp of a tile less its maximum, with a running sum."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from nki_sim import ops
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.accumulator import accumulator
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, column, free, instruction, partitions, read, write
from nki_sim.isa.checks import one_of_commands
from nki_sim.isa.cost import at_least, elements
from nki_sim.isa.enums import engine as Engine  # noqa: N812 - fields have the enums\' names
from nki_sim.isa.enums import reduce_cmd as ReduceCmd  # noqa: N812 - a field has the enum's name
from nki_sim.isa.indirection import aligned, allowed
from nki_sim.isa.values import column_loader, loader, storer
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("exponential")
_FLOATS = ("float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32")
_INTEGERS = ("int8", "int16", "int32", "uint8", "uint16")


@instruction
class exponential(ComputeInstruction):
    """``dst = exp(src - max_value)``, and its sum over the free dimensions, on the Vector Engine of trn3.

    The sum takes the float32 results, before they are rounded to ``dst``'s dtype (the reference writes dst[i], and says
    that the engine computes in float32).

    Args:
        dst, src: SBUF or PSUM, equal partitions and elements per partition, at most 4 dimensions.
        max_value: a scalar or a (P, 1) float32 tile.
        reduce_res: (P, 1) float tile; None on all but the last step of a chain.
        reduce_cmd: idle, reset_reduce, reduce, or load_reduce with ``reduce_init``.
        reduce_init: a scalar or a (P, 1) float32 tile, 0.0 without load_reduce.

    Example:
        a = nl.load(x[:, 0:64])
        e = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.exponential(dst=e, src=a, max_value=nl.max(a, axis=1), reduce_res=total,
                         reduce_cmd=nisa.reduce_cmd.reset_reduce)
    """

    decided_params = ("starts_at_zero",)

    dst: NkiTensor = write(ON_CHIP)
    src: NkiTensor = read(ON_CHIP)
    max_value: float | NkiTensor = column(ON_CHIP, default=0.0)
    reduce_res: NkiTensor | None = write(ON_CHIP, default=None)
    reduce_cmd: ReduceCmd = ReduceCmd.idle
    reduce_init: float | NkiTensor = column(ON_CHIP, default=0.0)
    name: str | None = None

    indirect_operands = allowed("exponential", ("dst", "src"), (Engine.vector,))
    indirect_partitions = aligned("exponential", "src")

    starts_at_zero: ClassVar[object] = True  # None where reduce_init is something else: only load_reduce takes that

    def __post_init__(self) -> None:
        first = self.reduce_init
        if not isinstance(first, (int, float, np.number)) or first != 0:
            self.__dict__["starts_at_zero"] = None
        super().__post_init__()
        accumulator("vector").note(self, self.reduce_cmd)

    @rule("exponential.gen4_only", "exponential exists on trn3 and newer", page=_PAGE, gens=(2, 3),
          fix="nisa.activation(op=nl.exp, bias=…)")  # fmt: skip
    def generation(self, core: NeuronCore) -> Broken | None:
        return Broken(f"not available on {core.target}")

    @rule("exponential.partition", "src and dst have the same partition size", page=_PAGE, gens=(4,))
    def rows(self, core: NeuronCore) -> Broken | None:
        return self.alike("src", "dst", free_too=False)

    @rule("exponential.free", "src and dst have the same elements per partition", page=_PAGE, gens=(4,))
    def columns(self, core: NeuronCore) -> Broken | None:
        return self.alike("src", "dst")

    @rule("exponential.rank", "src and dst have at most 4 dimensions", page=_PAGE, gens=(4,))
    def rank(self, core: NeuronCore) -> Broken | None:
        for name, tile in self._named("src", "dst"):
            if tile.ndim > 4:
                return Broken(f"{name} has {tile.ndim} dimensions", name)
        return None

    @rule("exponential.dst_dtype", "dst is float8_e4m3, float8_e5m2, float16, bfloat16, float32, tfloat32, int8, int16, int32, "
          "uint8 or uint16", page=_PAGE, gens=(4,))  # fmt: skip
    def dst_dtype(self, core: NeuronCore) -> Broken | None:
        good = self.dst.dtype in (*_FLOATS, "tfloat32", *_INTEGERS)
        return None if good else Broken(f"dst is {self.dst.dtype}", "dst")

    @rule("exponential.src_dtype", "src is float8_e4m3, float8_e5m2, float16, bfloat16, float32, int8, int16, int32, uint8, "
          "uint16 or uint32", page=_PAGE, gens=(4,))  # fmt: skip
    def src_dtype(self, core: NeuronCore) -> Broken | None:
        good = self.src.dtype in (*_FLOATS, *_INTEGERS, "uint32")
        return None if good else Broken(f"src is {self.src.dtype}", "src")

    @rule("exponential.max_value", "max_value is a float32 scalar or a float32 tile of shape (src.shape[0], 1)", page=_PAGE,
          gens=(4,))  # fmt: skip
    def maximum(self, core: NeuronCore) -> Broken | None:
        return self._float32_column("max_value")

    def _float32_column(self, name: str) -> Broken | None:
        value = getattr(self, name)
        if isinstance(value, NkiTensor) and value.dtype != "float32":
            return Broken(f"{name} is {value.dtype}", name)
        return self.column_of("src", name)

    @rule("exponential.reduce_res", "reduce_res has shape (src.shape[0], 1) and a float dtype of dst", page=_PAGE, gens=(4,))
    def result(self, core: NeuronCore) -> Broken | None:
        if self.reduce_res is not None and self.reduce_res.dtype not in (*_FLOATS, "tfloat32"):
            return Broken(f"reduce_res is {self.reduce_res.dtype}", "reduce_res")
        return self.column_of("src", "reduce_res")

    @rule("exponential.reduce_cmd", "reduce_cmd is idle, reset_reduce, reduce or load_reduce", page=_PAGE, gens=(4,))
    def command(self, core: NeuronCore) -> Broken | None:
        return one_of_commands(self.reduce_cmd, ReduceCmd.idle, ReduceCmd.reset_reduce, ReduceCmd.reduce, ReduceCmd.load_reduce)

    @rule("exponential.reduce_init", "reduce_init is 0.0 but with load_reduce; a float32 scalar or a float32 tile of shape "
          "(src.shape[0], 1)", page=_PAGE, gens=(4,))  # fmt: skip
    def initial(self, core: NeuronCore) -> Broken | None:
        if self.starts_at_zero is None and self.reduce_cmd is not ReduceCmd.load_reduce:
            return Broken(f"reduce_cmd {self.reduce_cmd.name}, reduce_init {self.operand_words('reduce_init')}", "reduce_init")
        return self._float32_column("reduce_init")

    def cycles(self, core: NeuronCore) -> float:
        """N/4: four times the rate of the Scalar Engine."""
        return at_least(elements(self, "src") / 4)

    def body(self, core: NeuronCore) -> Body:
        rows, n, shape = partitions(self.src), free(self.src), self.dst.shape
        first = self.src.start_partition
        lanes, registers, command = slice(first, first + rows), accumulator("vector"), self.reduce_cmd
        load, store, fold = loader(self.src, (rows, n)), storer(self.dst), ops.TABLE["add"]
        most, init = column_loader(self.max_value, 2), column_loader(self.reduce_init, 1)
        out = None if self.reduce_res is None else storer(self.reduce_res)
        out_shape = None if self.reduce_res is None else self.reduce_res.shape

        def run(dst: Array, src: Array, max_value: Any, result: Array | None, initial: Any) -> None:
            values = np.exp(load(src) - most(max_value))
            begin = np.broadcast_to(init(initial), (rows,))
            store(dst, values.reshape(shape))
            registers.accumulate(lanes, fold, values, command, begin)
            if out is not None and result is not None:
                out(result, registers.values[lanes].reshape(out_shape))

        return run

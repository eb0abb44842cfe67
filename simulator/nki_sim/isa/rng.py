"""``nki.isa.rng``: random bits."""

from __future__ import annotations

from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, Body, ComputeInstruction, free, instruction, write
from nki_sim.isa.cost import at_least, elements, gpsimd
from nki_sim.isa.enums import engine as Engine  # noqa: N812
from nki_sim.isa.prng import generator, lanes_of
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor

_PAGE = isa_page("rng")
_INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")


@instruction
class rng(ComputeInstruction):
    """``dst = the low bits of 32 random bits per element``; Vector or GpSimd Engine.

    Each partition draws from its own lane's state, which goes on from where the last instruction left it. Which numbers those
    are on a device is not documented: :mod:`nki_sim.isa.prng` says what is drawn here.

    Args:
        dst: SBUF, or PSUM with the Vector Engine; int8, int16, int32, uint8, uint16 or uint32.
        engine: vector, or on trn2 and newer gpsimd.

    Example:
        bits = nl.ndarray((128, 64), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.rng(dst=bits)
    """

    dst: NkiTensor = write(ON_CHIP)
    engine: Engine = Engine.vector
    name: str | None = None

    def resolve_engine(self, core: NeuronCore) -> Engine:
        return Engine.vector if self.engine is Engine.unknown else self.engine

    @rule("rng.engine", "engine is vector, or on trn2 and newer gpsimd", page=_PAGE)
    def engines(self, core: NeuronCore) -> Broken | None:
        return self.one_of_engines(Engine.vector, *((Engine.gpsimd,) if core.gen > 2 else ()))

    @rule("rng.gpsimd_sbuf", "with the GpSimd Engine dst is in SBUF", page=_PAGE, gens=(3, 4),
          why="the GpSimd Engine has no path to PSUM", fix="choose engine=nisa.engine.vector")  # fmt: skip
    def reach(self, core: NeuronCore) -> Broken | None:
        far = self.resolve_engine(core) is Engine.gpsimd and self.dst.buffer is MemoryRegion.psum
        return Broken("dst is in PSUM and the instruction runs on GpSimd", "dst") if far else None

    @rule("rng.dtype", f"dst is {', '.join(_INTEGERS[:-1])} or {_INTEGERS[-1]}", page=_PAGE,
          fix="draw integers and scale them with nisa.tensor_scalar; trn3 has nisa.rand2")  # fmt: skip
    def dtype(self, core: NeuronCore) -> Broken | None:
        return None if self.dst.dtype in _INTEGERS else Broken(f"dst is {self.dst.dtype}", "dst")

    def cycles(self, core: NeuronCore) -> float:
        """N on the Vector Engine, 150 + N on GpSimd (an estimate: the documents have no number)."""
        n = elements(self, "dst")
        return gpsimd(n) if self.resolve_engine(core) is Engine.gpsimd else at_least(n)

    def body(self, core: NeuronCore) -> Body:
        numbers, lanes, n = generator(self.resolve_engine(core)), lanes_of(self.dst), free(self.dst)

        def bits(dst: Array) -> None:
            dst[...] = numbers.draw(lanes, n).astype(dst.dtype).reshape(dst.shape)

        return bits

"""The state of the random numbers: ``set_rng_seed``, ``rand_set_state`` and ``rand_get_state``."""

from __future__ import annotations

import numpy as np

from nki_sim import context
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, isa_page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import ON_CHIP, SBUF, Body, ComputeInstruction, free, instruction, read, write
from nki_sim.isa.cost import MIN_II, gpsimd
from nki_sim.isa.enums import engine as Engine  # noqa: N812
from nki_sim.isa.prng import XORWOW_WORDS, generator, lanes_of, states_per_lane
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor

_SET, _GET = isa_page("rand_set_state"), isa_page("rand_get_state")


@instruction
class set_rng_seed(ComputeInstruction):
    """Seed the Vector Engine's random numbers, in all 128 lanes: the same seed gives the same numbers.

    How one seed becomes 128 states is not documented; :mod:`nki_sim.isa.prng` says how it does here.

    Args:
        src_seeds: SBUF or PSUM, shape (1, 1), any dtype of 32 bits, whose bits count.

    Example:
        nisa.set_rng_seed(src_seeds=nl.full((1, 1), 42, dtype=nl.int32))
        bits = nl.ndarray((128, 64), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.rng(dst=bits)
    """

    src_seeds: NkiTensor = read(ON_CHIP, "set_rng_seed.buffers")
    name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        generator(Engine.vector).seeded = True

    @rule("set_rng_seed.shape", "src_seeds has shape (1, 1) and a dtype of 32 bits", page=isa_page("set_rng_seed"),
          fix="seed = nl.full((1, 1), 42, dtype=nl.int32, buffer=nl.sbuf)")  # fmt: skip
    def one(self, core: NeuronCore) -> Broken | None:
        seeds = self.src_seeds
        good = seeds.shape == (1, 1) and seeds.info.itemsize == 4
        return None if good else Broken(f"src_seeds has shape {seeds.shape}, dtype {seeds.dtype}", "src_seeds")

    def cycles(self, core: NeuronCore) -> float:
        """64, an instruction's least (an estimate: the documents have no number)."""
        return MIN_II

    def goes_on(self) -> bool:
        """All states are new."""
        return False

    def body(self, core: NeuronCore) -> Body:
        numbers = generator(Engine.vector)

        def seed(src_seeds: Array) -> None:
            numbers.values[...] = numbers.spread(int(np.ascontiguousarray(src_seeds).view(np.uint32)[0, 0]))

        return seed


class _States(ComputeInstruction):
    """What loading and storing states share."""

    engine: Engine

    def resolve_engine(self, core: NeuronCore) -> Engine:
        return Engine.gpsimd if self.engine is Engine.unknown else self.engine

    def on_engine(self, core: NeuronCore) -> Broken | None:
        """GpSimd, or on trn3 Vector."""
        return self.one_of_engines(Engine.gpsimd, *((Engine.vector,) if core.gen > 3 else ()))

    def words(self, name: str) -> Broken | None:
        """A 2-D tile of uint32."""
        tile = getattr(self, name)
        good = tile.ndim == 2 and tile.dtype == "uint32"
        return None if good else Broken(f"{name} has shape {tile.shape}, dtype {tile.dtype}", name)

    def complete(self, name: str, core: NeuronCore) -> Broken | None:
        """As many words per partition as the engine keeps in a lane."""
        on = self.resolve_engine(core)
        have, want = free(getattr(self, name)), XORWOW_WORDS * states_per_lane(core, on)
        return None if have == want else Broken(f"{name} has {have} words per partition, {on.name} keeps {want}", name)

    def cycles(self, core: NeuronCore) -> float:
        """64 on the Vector Engine, 150 + 4 per word on GpSimd (an estimate: the documents have no number)."""
        return gpsimd(XORWOW_WORDS, 4.0) if self.resolve_engine(core) is Engine.gpsimd else MIN_II


_GENERATION = "{} exists on trn2 and newer"
_ENGINE = "engine is gpsimd, or on trn3 vector"
_COUNT = "{} has 6 words per partition with gpsimd, 24 with vector"
_WHY = "a state of XORWOW is 6 words; a lane of GpSimd has one, a lane of the Vector Engine four"


@instruction
class rand_set_state(_States):
    """Load the states of an engine's random numbers, those of each partition into its lane; other lanes keep theirs.

    Args:
        src_seeds: SBUF, shape (P, 6) for GpSimd or (P, 24) for the Vector Engine, uint32.
        engine: gpsimd, or on trn3 vector.

    Example:
        state = nl.ndarray((128, 6), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.iota(dst=state, pattern=[[1, 6]], offset=1, channel_multiplier=6)
        nisa.rand_set_state(src_seeds=state)
    """

    src_seeds: NkiTensor = read(SBUF, "rand_set_state.sbuf")
    engine: Engine = Engine.gpsimd
    name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        generator(self.resolve_engine(context.core())).seeded = True

    @rule("rand_set_state.gen3", _GENERATION.format("rand_set_state"), page=_SET, gens=(2,), fix="nisa.set_rng_seed")
    def generation(self, core: NeuronCore) -> Broken | None:
        return Broken(f"not available on {core.target}")

    @rule("rand_set_state.engine", _ENGINE, page=_SET, gens=(3, 4))
    def engines(self, core: NeuronCore) -> Broken | None:
        return self.on_engine(core)

    @rule("rand_set_state.dtype", "src_seeds is 2-D and uint32", page=_SET, gens=(3, 4))
    def dtype(self, core: NeuronCore) -> Broken | None:
        return self.words("src_seeds")

    @rule("rand_set_state.count", _COUNT.format("src_seeds"), why=_WHY, page=_SET, gens=(3, 4))
    def count(self, core: NeuronCore) -> Broken | None:
        return self.complete("src_seeds", core)

    def body(self, core: NeuronCore) -> Body:
        numbers, lanes = generator(self.resolve_engine(core)), lanes_of(self.src_seeds)

        def load(src_seeds: Array) -> None:
            numbers.values[lanes] = src_seeds

        return load


@instruction
class rand_get_state(_States):
    """Store the states of an engine's random numbers: ``rand_set_state`` of them lets the same numbers follow again.

    The words of a state are x, y, z, w, v and d of XORWOW (the order is not documented).

    Args:
        dst: SBUF, on trn3 with the Vector Engine also PSUM; shape (P, 6) for GpSimd, (P, 24) for the Vector Engine; uint32.
        engine: gpsimd, or on trn3 vector.

    Example:
        state = nl.ndarray((128, 6), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.rand_get_state(dst=state)
    """

    dst: NkiTensor = write(ON_CHIP, "rand_get_state.buffer")
    engine: Engine = Engine.gpsimd
    name: str | None = None

    @rule("rand_get_state.gen3", _GENERATION.format("rand_get_state"), page=_GET, gens=(2,), fix="nisa.set_rng_seed again")
    def generation(self, core: NeuronCore) -> Broken | None:
        return Broken(f"not available on {core.target}")

    @rule("rand_get_state.engine", _ENGINE, page=_GET, gens=(3, 4))
    def engines(self, core: NeuronCore) -> Broken | None:
        return self.on_engine(core)

    @rule("rand_get_state.buffer", "dst is in SBUF, on trn3 with engine vector in SBUF or PSUM", page=_GET, gens=(3, 4),
          why="the GpSimd Engine has no path to PSUM")  # fmt: skip
    def reach(self, core: NeuronCore) -> Broken | None:
        far = self.resolve_engine(core) is Engine.gpsimd and self.dst.buffer is MemoryRegion.psum
        return Broken("dst is in PSUM and the instruction runs on GpSimd", "dst") if far else None

    @rule("rand_get_state.dtype", "dst is 2-D and uint32", page=_GET, gens=(3, 4))
    def dtype(self, core: NeuronCore) -> Broken | None:
        return self.words("dst")

    @rule("rand_get_state.count", _COUNT.format("dst"), why=_WHY, page=_GET, gens=(3, 4))
    def count(self, core: NeuronCore) -> Broken | None:
        return self.complete("dst", core)

    def body(self, core: NeuronCore) -> Body:
        numbers, lanes = generator(self.resolve_engine(core)), lanes_of(self.dst)

        def store(dst: Array) -> None:
            dst[...] = numbers.values[lanes]

        return store

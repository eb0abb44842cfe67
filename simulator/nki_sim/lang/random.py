"""Random numbers: ``rand``, ``random_seed``, ``dropout``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_sim import context, isa, ops
from nki_sim.errors import NkiError, NkiTypeError, NkiValidationError, Rule, fail, page
from nki_sim.isa.enums import engine
from nki_sim.isa.prng import generator
from nki_sim.lang.creation import ndarray, result_dtype, tile
from nki_sim.lang.elementwise import need_tile
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor


def _page(name: str) -> str:
    return page(f"api/generated/nki.language.{name}.html")


SEED = Rule(
    "nl.random_seed_tensor",
    "seed is a (1, 1) tile in SBUF or PSUM of a dtype of 32 bits",
    why="the engine reads the seed at run time",
    fix="nl.random_seed(nl.full((1, 1), 42, dtype=nl.int32, buffer=nl.sbuf))",
    page=_page("random_seed"),
)
SEED_ENGINE = Rule(
    "nl.rand_seed_engine",
    "nl.rand follows the seed of nl.random_seed on trn3",
    why="the release notes say that before trn3 nl.rand may draw on another engine than the one that is seeded, which makes "
    "the seed have no effect (here it has: both use the Vector Engine)",
    fix="nisa.set_rng_seed and nisa.rng(dst=…, engine=nisa.engine.vector), then nisa.tensor_scalar",
    page=_page("rand"),
    gens=(2, 3),
    enforce="warn",
)
RATE = Rule("nl.dropout_rate", "rate is a scalar or a tile of shape (x.shape[0], 1)", page=_page("dropout"))


def _error(rule: Rule, what: str, subject: str, operand: str, error: type[NkiError] = NkiValidationError) -> NkiError:
    return fail(rule, what, target=context.core().target, subject=subject, operand=operand, error=error)


def random_seed(seed: NkiTensor) -> None:
    """Seed the numbers of ``nl.rand``: the same seed gives the same numbers.

    Args:
        seed: a (1, 1) tile in SBUF or PSUM with 32 bits.

    Raises:
        NkiValidationError: seed is something else.

    Example:
        nl.random_seed(nl.full((1, 1), 42, dtype=nl.int32))
        noise = nl.rand((128, 64), dtype=nl.float32)
    """
    if not isinstance(seed, NkiTensor):
        raise _error(SEED, f"seed is a {type(seed).__name__}", "nl.random_seed", "seed", NkiTypeError)
    if not seed.on_chip or seed.shape != (1, 1) or seed.info.itemsize != 4:
        raise _error(SEED, f"seed is {seed.words()}", "nl.random_seed", "seed")
    isa.set_rng_seed(seed)


def rand(shape: Sequence[int], dtype: Any, buffer: MemoryRegion = MemoryRegion.sbuf, name: str = "") -> NkiTensor:
    """A new tensor of random numbers, uniform between 0 and 1 (through SBUF when it lies in HBM).

    They are below 1 before they are rounded to dtype. On trn3 ``nisa.rand2`` makes them, before that ``nisa.rng`` and two
    ``nisa.tensor_scalar``.

    Args:
        shape, dtype, buffer, name: as for ``nl.ndarray``.

    Example:
        noise = nl.rand((128, 64), dtype=nl.float32)
    """
    made, machine = ndarray(shape, dtype, buffer, name), context.machine()
    if machine.core.gen < 4 and generator(engine.vector).seeded:
        machine.found(_error(SEED_ENGINE, f"nl.rand after a seed on {machine.core.target}", "nl.rand", "").diagnosis)
    if made.on_chip:
        _fill(made)
        return made
    rows = math.gcd(made.size, 128)
    width = made.size // rows
    step = max(1, min(width, machine.core.sbuf_usable_bytes // 32))
    flat = made.reshape((rows, width))
    for start in range(0, width, step):
        end = min(start + step, width)
        part = tile((rows, end - start), made.dtype)
        _fill(part)
        isa.dma_copy(flat[:, start:end], part)
    return made


def _fill(made: NkiTensor) -> None:
    """Random numbers into a tile."""
    if context.core().gen >= 4:
        isa.rand2(made, 0.0, 1.0)
        return
    bits = tile(made.shape, "uint32")
    isa.rng(bits)
    isa.tensor_scalar(bits, bits, ops.TABLE["right_shift"], 8)  # 24 bits are exact in float32
    isa.tensor_scalar(made, bits, ops.TABLE["multiply"], 2.0**-24)


def dropout(x: NkiTensor, rate: float | NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile with the elements of x, each replaced by 0 with probability ``rate``.

    Args:
        x: a tile in SBUF or PSUM.
        rate: a scalar or a (x.shape[0], 1) tile.
        dtype: of the result; x's by default.

    Raises:
        NkiValidationError: rate is something else, or no probability.

    Example:
        a = nl.load(x[:, 0:64])
        kept = nl.dropout(a, rate=0.25)
    """
    need_tile(x, "nl.dropout")
    if isinstance(rate, NkiTensor):
        if not rate.on_chip or rate.shape != (x.shape[0], 1):
            raise _error(RATE, f"rate is {rate.words()}", "nl.dropout", "rate")
    elif not isinstance(rate, (int, float, np.number)) or isinstance(rate, bool):
        raise _error(RATE, f"rate is a {type(rate).__name__}", "nl.dropout", "rate", NkiTypeError)
    want = result_dtype(x, dtype, "nl.dropout")
    kept = tile(x.shape, x.dtype)
    isa.dropout(kept, x, rate)
    if want == x.dtype:
        return kept
    made = tile(x.shape, want)
    isa.tensor_copy(made, kept)
    return made

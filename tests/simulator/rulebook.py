"""Rule tests as a list of short kernels: each breaks one documented limit, and runs when it stays just inside.

    @book.breaks("nc_matmul.k_equal")
    def _(bad):
        p = ps(64, 512)
        nisa.nc_matmul(dst=p, stationary=x(128, 64), moving=x(96 if bad else 128, 512))
        return p, v(128, 64).T @ v(128, 512)

With ``bad`` the kernel must raise the rule, at its own line; without, it must give the value it returns beside the tile.
"""

import linecache

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from kernels import TARGETS, hb, ps, sb, st

ALL = " ".join(TARGETS)
POOL = np.random.default_rng(7).integers(0, 8, size=(4, 128, 4104)).astype(np.float32)
"""Small whole numbers: exact in every dtype, so that a value is right or wrong."""
POOL.flags.writeable = False

_pool = []


def v(*shape, at=0):
    """The values of :func:`x` with the same arguments."""
    free = int(np.prod(shape[1:]))
    return POOL[at, : shape[0], :free].reshape(shape)


def hx(*shape, at=0, dt=nl.float32):
    """A tensor in HBM that holds ``v(shape)``."""
    made = hb(*shape, dt=dt)
    nisa.dma_copy(dst=made, src=_pool[0][at, : shape[0], : int(np.prod(shape[1:]))])
    return made


def x(*shape, at=0, dt=nl.float32, buffer=nl.sbuf):
    """A tile that holds ``v(shape)``."""
    made = sb(*shape, dt=dt)
    nisa.dma_copy(dst=made, src=_pool[0][at, : shape[0], : int(np.prod(shape[1:]))])
    if buffer is nl.psum:
        moved = ps(*shape, dt=dt)
        nisa.tensor_copy(dst=moved, src=made, engine=nisa.engine.vector)
        return moved
    return made


class Case:
    """One kernel about one rule."""

    def __init__(self, body, rule, on, elsewhere, error):
        self.body, self.rule, self.error = body, rule, error
        self.on, self.elsewhere = on.split(), elsewhere.split()

    def run(self, target, bad):
        wanted = []

        def kernel(pool):
            _pool[:] = [pool]
            tile, want = self.body(bad)
            wanted.append(want)
            return tile if tile.buffer is nl.shared_hbm else st(tile)

        result = nki_sim.run(kernel, POOL, target=target, strict=True).result
        np.testing.assert_array_equal(np.asarray(result, np.float32), np.broadcast_to(wanted[0], result.shape))

    def reject(self, target):
        with pytest.raises(nki_sim.NkiValidationError) as caught:
            self.run(target, bad=True)
        diagnosis = caught.value.diagnosis
        assert diagnosis.rule.id == self.rule, str(caught.value)
        assert isinstance(caught.value, self.error)
        assert diagnosis.target == target
        code = self.body.__code__
        last = max(line for _, _, line in code.co_lines() if line)
        assert diagnosis.site.filename == code.co_filename
        assert code.co_firstlineno < diagnosis.line <= last
        text = linecache.getline(code.co_filename, diagnosis.line)
        assert diagnosis.instruction
        if "[" not in diagnosis.instruction:  # an instruction or a function; views name their tensor
            assert diagnosis.instruction.rpartition(".")[2] in text
        for words in (diagnosis.headline, diagnosis.rule.id, diagnosis.rule.words, f"line {diagnosis.line}", target):
            assert words in str(caught.value)


EVERY = []
"""The cases of all modules that were imported."""


class Book:
    """The cases of one test module."""

    def __init__(self):
        self.cases = []

    def breaks(self, rule, on=ALL, elsewhere="", error=nki_sim.NkiValidationError):
        """Declare a case: it breaks ``rule`` on the targets ``on``; on ``elsewhere`` even the bad kernel is legal."""

        def declare(body):
            case = Case(body, rule, on, elsewhere, error)
            self.cases.append(case)
            EVERY.append(case)
            return body

        return declare

    def rejects(self):
        """Parametrise a test with (case, target) for all that must be refused."""
        return _parametrise("case target", [(c, t) for c in self.cases for t in c.on])

    def accepts(self):
        """Parametrise a test with (case, target, bad) for all that must run."""
        inside = [(c, t, False) for c in self.cases for t in c.on]
        legal = [(c, t, True) for c in self.cases for t in c.elsewhere]
        return _parametrise("case target bad", inside + legal)


def _parametrise(names, rows):
    rows = [pytest.param(*row, id=f"{row[0].rule}:{row[0].body.__code__.co_firstlineno}-{row[1]}") for row in rows]
    return pytest.mark.parametrize(tuple(names.split()), rows)

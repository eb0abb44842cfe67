"""``core_barrier`` and ``sendrecv``: their arguments are checked, and a run with one logical core is no place for them."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from kernels import hb, ps, sb

X = np.ones((16, 8), np.float32)


def refused(call, target="trn2"):
    """The rule that stops a call in a kernel."""

    def kernel(x):
        call(x)
        return x

    with pytest.raises(nki_sim.NkiValidationError) as caught:
        nki_sim.run(kernel, X, target=target)
    assert caught.value.diagnosis.line
    return caught.value.diagnosis.rule.id


def barrier(data=None, cores=(0, 1), where=nl.shared_hbm):
    nisa.core_barrier(data=nl.ndarray((16, 8), dtype=nl.float32, buffer=where) if data is None else data, cores=cores)


@pytest.mark.parametrize(("call", "rule"), [
    (lambda x: barrier(), "core_barrier.lnc2"),
    (lambda x: barrier(cores=[0, 1]), "core_barrier.lnc2"),
    (lambda x: barrier(cores=(0,)), "core_barrier.cores"),
    (lambda x: barrier(cores=(1, 0)), "core_barrier.cores"),
    (lambda x: barrier(cores=2), "core_barrier.cores"),
    (lambda x: barrier(where=nl.private_hbm), "core_barrier.shared_hbm"),
    (lambda x: barrier(where=nl.sbuf), "core_barrier.shared_hbm"),
    (lambda x: barrier(where=nl.psum), "core_barrier.buffers"),
])  # fmt: skip
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_barriers(call, rule, target):
    assert refused(call, target) == rule


def swap(src=None, dst=None, **changed):
    given = {"send_to_rank": 1, "recv_from_rank": 0, "pipe_id": 0, **changed}
    nisa.sendrecv(src=sb(16, 8) if src is None else src, dst=sb(16, 8) if dst is None else dst, **given)


GPSIMD = {"dma_engine": nisa.dma_engine.gpsimd_dma}


@pytest.mark.parametrize(("call", "rule"), [
    (lambda x: swap(), "sendrecv.lnc2"),
    (lambda x: swap(send_to_rank=2), "sendrecv.ranks"),
    (lambda x: swap(recv_from_rank=-1), "sendrecv.ranks"),
    (lambda x: swap(recv_from_rank=True), "sendrecv.ranks"),
    (lambda x: swap(src=ps(16, 8)), "sendrecv.buffers"),
    (lambda x: swap(dst=hb(16, 8)), "sendrecv.buffers"),
    (lambda x: swap(dst=sb(16, 8, dt=nl.int32)), "sendrecv.same_dtype"),
    (lambda x: swap(dst=sb(16, 2, 4)), "sendrecv.same_shape"),
    (lambda x: swap(sb(16, 257), sb(16, 257), **GPSIMD), "sendrecv.gpsimd_dma_size"),
    (lambda x: swap(sb(16, 256), sb(16, 256), **GPSIMD), "sendrecv.gpsimd_dma_lnc2"),
    (lambda x: swap(sb(16, 257, dt=nl.bfloat16), sb(16, 257, dt=nl.bfloat16), **GPSIMD), "sendrecv.gpsimd_dma_size"),
    (lambda x: swap(sb(16, 256, dt=nl.uint8), sb(16, 256, dt=nl.uint8), **GPSIMD), "sendrecv.gpsimd_dma_lnc2"),
    (lambda x: swap(sb(16, 257, dt=nl.uint8), sb(16, 257, dt=nl.uint8), **GPSIMD), "sendrecv.gpsimd_dma_size"),
    (lambda x: swap(use_gpsimd_dma=True), "kernel.unexpected_kwargs"),
])  # fmt: skip
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_exchanges(call, rule, target):
    assert refused(call, target) == rule


def test_trn1_has_neither():
    assert refused(lambda x: barrier(), "trn1") == "core_barrier.gen3"
    assert refused(lambda x: swap(), "trn1") == "sendrecv.gen3"

"""Limits of SBUF and PSUM: what a tile may be, where it may lie, and what a kernel may leave unwritten."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import pytest
from kernels import hb, sb, st
from rulebook import Book, hx, v, x

book = Book()
PSUM, SBUF = nl.psum, nl.sbuf


def filled(t, value=1):
    nisa.memset(dst=t, value=value)
    return t


@book.breaks("hw.sbuf.usable_partition_bytes")
def _(bad):
    usable = nl.tile_size.sbuf_fmax_bytes
    t = nl.ndarray((2, 4, (usable + 8) // 4 // 2 if bad else usable // 4 // 2), dtype=nl.int16, buffer=SBUF)
    nisa.memset(dst=t[:, 0, 0:8], value=3)
    return t[:, 0, 0:8], 3


@book.breaks("hw.psum.partition_bytes")
def _(bad):
    t = nl.ndarray((16, 4097 if bad else 4096), dtype=nl.float32, buffer=PSUM)
    nisa.memset(dst=t, value=1.0)
    return t, 1


@book.breaks("ndarray.buffer_object")
def _(bad):
    t = nl.ndarray((16, 8), dtype=nl.float32, buffer="sbuf" if bad else SBUF)
    return filled(t), 1


@book.breaks("ndarray.address_tuple")
def _(bad):
    t = nl.ndarray((16, 8), dtype=nl.float32, buffer=SBUF, address=0 if bad else (0, 0))
    return filled(t), 1


@book.breaks("ndarray.address_tuple")
def _(bad):
    t = nl.ndarray((16, 8), dtype=nl.float32, buffer=SBUF, address=(0, -4 if bad else 4))
    return filled(t), 1


@book.breaks("ndarray.address_tuple")
def _(bad):
    t = nl.ndarray((16, 8), dtype=nl.float32, buffer=PSUM, address=(0, 0, 0) if bad else (0, 0))
    return filled(t), 1


@book.breaks("ndarray.psum_bank_start")
def _(bad):
    t = nl.ndarray((16, 8), dtype=nl.float32, buffer=PSUM, address=(0, 1024 if bad else 2048))
    return filled(t), 1


@book.breaks("hw.sbuf_min_align")
def _(bad):
    t = nl.ndarray((16, 8), dtype=nl.int8, buffer=SBUF, address=(0, 6 if bad else 8))
    return filled(t), 1


@book.breaks("hw.sbuf.capacity_enforced")
def _(bad):
    usable = nl.tile_size.sbuf_fmax_bytes
    t = nl.ndarray((16, 8), dtype=nl.float32, buffer=SBUF, address=(0, usable - (28 if bad else 32)))
    return filled(t), 1


@book.breaks("hw.psum.capacity_enforced")
def _(bad):
    t = nl.ndarray((16, 520 if bad else 512), dtype=nl.float32, buffer=PSUM, address=(0, 7 * 2048))
    return filled(t), 1


@book.breaks("hw.hbm.capacity")
def _(bad):
    t = nl.ndarray((2**38 if bad else 16, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=t, src=x(16, 8))
    return t, v(16, 8)


@book.breaks("dtype.supported_list", error=nki_sim.errors.NkiTypeError)
def _(bad):
    t = nl.ndarray((16, 8), dtype="float64" if bad else "float32", buffer=SBUF)
    return filled(t), 1


@book.breaks("dtype.supported_list", error=nki_sim.errors.NkiTypeError)
def _(bad):
    t = x(16, 8)
    return nl.copy(t, dtype=complex if bad else nl.bfloat16), v(16, 8)


@book.breaks("dtype.x4_gen4_only", on="trn1 trn2", elsewhere="trn3")
def _(bad):
    t = nl.ndarray((16, 8), dtype=nl.float8_e5m2_x4 if bad else nl.uint32, buffer=SBUF)
    nisa.memset(dst=t, value=0)
    return t.view(nl.uint32), 0


@book.breaks("ndarray.uninitialised")
def _(bad):
    t, u = sb(16, 8), sb(16, 8)
    nisa.memset(dst=t[:, 0 : 7 if bad else 8], value=2.0)
    nisa.tensor_copy(dst=u, src=t)
    return u, 2


@book.breaks("memory.overlap")
def _(bad):
    a = nl.ndarray((16, 8), dtype=nl.float32, buffer=SBUF, address=(0, 0))
    b = nl.ndarray((16, 8), dtype=nl.float32, buffer=SBUF, address=(0, 16 if bad else 32))
    u = sb(16, 8)
    nisa.memset(dst=a, value=1.0)
    nisa.memset(dst=b, value=2.0)
    nisa.tensor_copy(dst=u, src=a)
    return u, 1


@book.breaks("nl.load_transpose2d_local")
def _(bad):
    if bad:
        return nl.load_transpose2d(hx(16, 8)), v(16, 8).T
    return x(8, 16), v(8, 16)


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)


def test_an_unwritten_output_is_reported_with_its_line():
    """The loop runs zero times: 128 // 512 is 0."""

    def kernel():
        out = hb(128, 128)
        for _ in range(128 // 512):
            nisa.dma_copy(dst=out, src=sb(128, 128))
        return out, st(filled(sb(1, 1)))

    with pytest.raises(nki_sim.NkiValidationError, match="0 of 16384 elements") as caught:
        nki_sim.run(kernel, strict=True)
    assert caught.value.diagnosis.rule.id == "kernel.output_written"

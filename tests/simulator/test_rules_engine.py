"""Limits that all engine instructions share: partitions, access patterns, elements, paths to PSUM."""

import nki.isa as nisa
import nki.language as nl
import numpy as np
from kernels import ps, sb
from rulebook import Book, v, x

book = Book()


@book.breaks("hw.partition_dim_le_128")
def _(bad):
    t = nl.ndarray((129 if bad else 128, 4), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=t, value=2.0)
    return t, 2.0


@book.breaks("hw.partition_dim_le_128")
def _(bad):
    t = nl.ndarray((64, 4), dtype=nl.float32, buffer=nl.sbuf, address=(96 if bad else 64, 0))
    nisa.memset(dst=t, value=2.0)
    return t, 2.0


@book.breaks("hw.partition_access_contiguous")
def _(bad):
    t, u = x(128, 8), sb(32, 8)
    nisa.tensor_copy(dst=u, src=t[0:64:2, :] if bad else t[32:64, :])
    return u, v(128, 8)[32:64]


@book.breaks("hw.partition_access_contiguous")
def _(bad):
    t = x(64, 8)
    nisa.memset(dst=t[::2, :] if bad else t, value=1.0)
    return t, 1.0


@book.breaks("hw.start_partition.p1_32")
def _(bad):
    t, u = x(128, 8), sb(2, 8)
    start = 33 if bad else 96
    nisa.tensor_copy(dst=u, src=t[start : start + 2, :])
    return u, v(128, 8)[96:98]


@book.breaks("hw.start_partition.p1_32")
def _(bad):
    t = x(128, 8)
    start = 16 if bad else 32
    nisa.memset(dst=t[start : start + 32, :], value=9.0)
    want = v(128, 8).copy()
    want[32:64] = 9
    return t, want


@book.breaks("hw.start_partition.p1_32")
def _(bad):
    t = nl.ndarray((16, 4), dtype=nl.float32, buffer=nl.sbuf, address=(8 if bad else 96, 0))
    nisa.memset(dst=t, value=3.0)
    return t, 3.0


@book.breaks("hw.start_partition.p33_64")
def _(bad):
    t, u = x(128, 8), sb(33, 8)
    start = 32 if bad else 64
    nisa.activation(dst=u, op=nl.copy, data=t[start : start + 33, :])
    return u, v(128, 8)[64:97]


@book.breaks("hw.start_partition.p65_128")
def _(bad):
    t, u = x(128, 8), sb(65, 8)
    start = 32 if bad else 0
    nisa.reciprocal(dst=u, data=t[start : start + 65, :])
    with np.errstate(divide="ignore"):
        return u, (1 / v(128, 8)[:65]).astype(np.float32)


@book.breaks("hw.ap.free_dims_le_4")
def _(bad):
    t = sb(32, 3, 3, 3, 3, 3)
    nisa.memset(dst=t, value=1.0)
    part = t[:, 0:2, 0:2, 0:2, 0:2, 0:2] if bad else t[:, 0:2, 0:2, 0:2, 0:2, :]
    nisa.memset(dst=part, value=5.0)
    want = np.ones((32, 3, 3, 3, 3, 3))
    want[:, :2, :2, :2, :2] = 5
    return t, want


@book.breaks("hw.ap.free_size_uint16")
def _(bad):
    t = sb(2, 65536 if bad else 65535, dt=nl.uint8)
    nisa.memset(dst=t, value=3)
    return t, 3


@book.breaks("hw.ap.free_stride_int16")
def _(bad):
    t = sb(2, 3, 32768 if bad else 32767, dt=nl.uint8)
    nisa.memset(dst=t[:, :, 0:1], value=3)
    nisa.memset(dst=t[:, 0, 1:9], value=4)
    return t[:, 0, 0:8], [3, 4, 4, 4, 4, 4, 4, 4]


@book.breaks("hw.vector.free_elems_le_64k_sbuf")
def _(bad):
    t = sb(2, 2, 32769 if bad else 32768, dt=nl.uint8)
    nisa.memset(dst=t, value=7, engine=nisa.engine.vector)
    return t, 7


@book.breaks("hw.vector.free_elems_le_4k_psum")
def _(bad):
    t = ps(2, 4097 if bad else 4096, dt=nl.uint8)
    nisa.memset(dst=t, value=7)
    return t, 7


@book.breaks("hw.scalar.free_elems_limit")
def _(bad):
    n = 4097 if bad else 4096
    t = ps(2, n, dt=nl.bfloat16)
    nisa.activation(dst=t, op=nl.square, data=x(2, n, dt=nl.bfloat16))
    return t, v(2, n) ** 2


@book.breaks("hw.scalar.free_elems_limit")
def _(bad):
    a = sb(2, 2, 32769 if bad else 32768, dt=nl.uint8)
    for half in (0, 1):
        nisa.memset(dst=a[:, half, :], value=2)
    nisa.activation(dst=a, op=nl.square, data=a)
    return a, 4


@book.breaks("hw.gpsimd.no_psum")
def _(bad):
    t = ps(32, 4)
    nisa.memset(dst=t, value=1.5, engine=nisa.engine.gpsimd if bad else nisa.engine.vector)
    return t, 1.5


@book.breaks("hw.gpsimd.no_psum")
def _(bad):
    a, b = x(32, 4, dt=nl.int32), sb(32, 4, dt=nl.int32)
    c = x(32, 4, dt=nl.int32, buffer=nl.psum if bad else nl.sbuf)
    nisa.tensor_tensor(dst=b, data1=a, data2=c, op=nl.add, engine=nisa.engine.gpsimd)
    return b, 2 * v(32, 4)


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)

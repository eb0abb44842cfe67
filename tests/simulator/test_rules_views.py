"""Limits of tensors and their views, and of access patterns."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from kernels import hb, sb
from nki_sim.errors import NkiAssertionError, NkiIndexError, NkiTypeError
from rulebook import Book, hx, v, x

book = Book()
PSUM, SBUF, HBM = nl.psum, nl.sbuf, nl.shared_hbm


def index(n, first=0):
    made = sb(n, 1, dt=nl.uint32)
    nisa.iota(dst=made, pattern=[[0, 1]], offset=first, channel_multiplier=1)
    return made


@book.breaks("tensor.shape_positive")
def _(bad):
    t = nl.ndarray((16, 0 if bad else 1), dtype=nl.float32, buffer=SBUF)
    nisa.memset(dst=t, value=1.0)
    return t, 1


@book.breaks("tensor.shape_positive")
def _(bad):
    t = nl.ndarray((16, 2.0 if bad else 2), dtype=nl.float32, buffer=SBUF)
    nisa.memset(dst=t, value=1.0)
    return t, 1


@book.breaks("tensor.shape_positive")
def _(bad):
    t = nl.ndarray((-16, 2) if bad else (16, 2), dtype=nl.float32)
    nisa.memset(dst=t, value=0.0)
    return t, 0


@book.breaks("tensor.onchip_ge_2d")
def _(bad):
    t = nl.ndarray((16,) if bad else (16, 1), dtype=nl.float32, buffer=PSUM)
    nisa.memset(dst=t, value=1.0)
    return t, 1


@book.breaks("tensor.view_le_5d")
def _(bad):
    t = x(16, 2, 2, 2, 2)
    t = t.expand_dim(1) if bad else t
    return t, v(16, 2, 2, 2, 2)


@book.breaks("tensor.view_le_5d")
def _(bad):
    t = x(16, 32)
    t = t.reshape((16, 2, 2, 2, 2, 2) if bad else (16, 2, 2, 2, 4))
    return t, v(16, 2, 2, 2, 4)


@book.breaks("tensor.index_kinds", error=NkiTypeError)
def _(bad):
    t = x(16, 8)
    return t[[1, 2] if bad else slice(1, 3), :], v(16, 8)[1:3]


@book.breaks("tensor.index_kinds", error=NkiTypeError)
def _(bad):
    t = x(16, 8)
    return t[:, np.arange(2) if bad else slice(0, 2)], v(16, 8)[:, :2]


@book.breaks("tensor.index_kinds", error=NkiTypeError)
def _(bad):
    t = x(16, 8)
    return t[:, None if bad else ...], v(16, 8)


@book.breaks("tensor.index_kinds", error=NkiTypeError)
def _(bad):
    t = x(16, 8)
    return t[:, 0 : 2.0 if bad else 2], v(16, 8)[:, :2]


@book.breaks("tensor.index_kinds", error=NkiIndexError)
def _(bad):
    t = x(16, 8)
    return t[(0, 0, 0) if bad else (slice(0, 1), 0)], v(1, 1)


@book.breaks("tensor.index_kinds", error=NkiIndexError)
def _(bad):
    t = x(16, 2, 4)
    return t[(..., 0, ...) if bad else (..., 0)], v(16, 2, 4)[..., 0]


@book.breaks("tensor.slice", error=NkiIndexError)
def _(bad):
    t = x(32, 64)
    return t[0 : 33 if bad else 32, :], v(32, 64)


@book.breaks("tensor.slice", error=NkiIndexError)
def _(bad):
    t = hx(32, 64)
    return nl.load(t[0 : 128 if bad else 32, 0:64]), v(32, 64)


@book.breaks("tensor.slice", error=NkiIndexError)
def _(bad):
    t = x(32, 64)
    return t[:, nl.ds(60, 5 if bad else 4)], v(32, 64)[:, 60:]


@book.breaks("tensor.slice", error=NkiIndexError)
def _(bad):
    t = x(32, 64)
    return t[:, 64 if bad else 63], v(32, 64)[:, 63:]


@book.breaks("tensor.slice", error=NkiIndexError)
def _(bad):
    t = x(32, 64)
    return t[:, -65 if bad else -64], v(32, 64)[:, :1]


@book.breaks("tensor.slice", error=NkiIndexError)
def _(bad):
    t = x(32, 64)
    return t[:, 8 : 7 if bad else 9], v(32, 64)[:, 8:9]


@book.breaks("tensor.slice_empty", error=NkiIndexError)
def _(bad):
    t = x(32, 64)
    nisa.memset(dst=t[:, 8 : 8 if bad else 9], value=1.0)
    return t[:, 8:9], np.ones((32, 1), np.float32)


@book.breaks("tensor.slice_empty", error=NkiIndexError)
def _(bad):
    t, to = hx(32, 64), sb(32, 1)
    nisa.dma_copy(dst=to, src=t[:, nl.ds(8, 0 if bad else 1)])
    return to, v(32, 64)[:, 8:9]


@book.breaks("tensor.slice_empty", error=NkiIndexError)
def _(bad):
    t, row = x(32, 64), sb(1, 64)
    nisa.dma_copy(dst=row, src=t.slice(0, 32 if bad else 31, 32))
    return row, v(32, 64)[31:]


@book.breaks("tensor.slice", error=NkiIndexError)
def _(bad):
    t = x(32, 64)
    return t[:, :: 0 if bad else 63], v(32, 64)[:, ::63]


@book.breaks("tensor.slice", error=NkiIndexError)
def _(bad):
    t = x(32, 64)
    return t.slice(1, 62, 65 if bad else 64), v(32, 64)[:, 62:]


@book.breaks("tensor.slice", error=NkiIndexError)
def _(bad):
    t = x(32, 64)
    return t.slice(1, -2 if bad else 0, 64), v(32, 64)


@book.breaks("tensor.select_static", error=NkiIndexError)
def _(bad):
    t = x(16, 3, 4)
    return t.select(1, 3 if bad else 2), v(16, 3, 4)[:, 2]


@book.breaks("tensor.select_static", error=NkiIndexError)
def _(bad):
    t = x(16, 3, 4)
    return t.select(3 if bad else 2, 0), v(16, 3, 4)[:, :, 0]


@book.breaks("tensor.permute")
def _(bad):
    t = x(16, 3, 4)
    return t.permute((1, 0, 2) if bad else (0, 2, 1)), v(16, 3, 4).transpose(0, 2, 1)


@book.breaks("tensor.permute")
def _(bad):
    t = hx(16, 3, 4)
    return nl.load(t.permute((1, 1, 2) if bad else (1, 0, 2))), v(16, 3, 4).transpose(1, 0, 2)


@book.breaks("tensor.broadcast")
def _(bad):
    t = x(1, 8)
    return t.broadcast(0, 4) if bad else t.reshape((1, 8, 1)).broadcast(2, 2), np.repeat(v(1, 8, 1), 2, 2)


@book.breaks("tensor.broadcast")
def _(bad):
    t = x(16, 2 if bad else 1)
    return t.broadcast(1, 4), np.repeat(v(16, 1), 4, 1)


@book.breaks("tensor.expand_dim")
def _(bad):
    t = x(16, 8)
    return t.expand_dim(0 if bad else 1), v(16, 1, 8)


@book.breaks("tensor.squeeze_dim")
def _(bad):
    t = x(16, 2 if bad else 1, 8)
    return t.squeeze_dim(1), v(16, 8)


@book.breaks("tensor.squeeze_dim")
def _(bad):
    t = x(1, 1, 8)
    return t.squeeze_dim(0 if bad else 1), v(1, 8)


@book.breaks("tensor.reshape_dim")
def _(bad):
    t = x(16, 12)
    return t.reshape_dim(1, (5, -1) if bad else (4, -1)), v(16, 4, 3)


@book.breaks("tensor.reshape_dim")
def _(bad):
    t = x(16, 12)
    return t.reshape_dim(1, (-1, -1) if bad else (-1, 3)), v(16, 4, 3)


@book.breaks("tensor.reshape_dim")
def _(bad):
    t = x(16, 12)
    return t.reshape_dim(0, (4, 4)) if bad else t.reshape_dim(0, (16,)), v(16, 12)


@book.breaks("tensor.flatten_dims")
def _(bad):
    t = x(16, 3, 4)
    t = t.permute((0, 2, 1)) if bad else t
    return t.flatten_dims(1, 2), v(16, 12)


@book.breaks("tensor.flatten_dims")
def _(bad):
    t = x(16, 3, 4)
    return t.flatten_dims(0 if bad else 1, 2), v(16, 12)


@book.breaks("tensor.reshape", error=NkiAssertionError)
def _(bad):
    t = x(16, 12)
    return t.reshape((16, 3, 5 if bad else 4)), v(16, 3, 4)


@book.breaks("tensor.reshape", error=NkiAssertionError)
def _(bad):
    t = x(16, 12)
    return t.reshape((8, 24) if bad else (16, -1, 6)), v(16, 2, 6)


@book.breaks("tensor.reshape", error=NkiAssertionError)
def _(bad):
    t = x(16, 3, 4)
    t = t[:, :, 0:2] if bad else t[:, 0:2, :]
    return t.reshape((16, t.shape[1] * t.shape[2])), v(16, 3, 4)[:, :2].reshape(16, 8)


@book.breaks("tensor.reshape", error=NkiAssertionError)
def _(bad):
    t = x(16, 3, 4)
    t = t.permute((0, 2, 1)) if bad else t
    return t.reshape((16, 12)), v(16, 12)


@book.breaks("tensor.view_dtype")
def _(bad):
    t = x(16, 3 if bad else 4, dt=nl.bfloat16)
    return t.view(nl.float32).view(nl.bfloat16), v(16, 4)


@book.breaks("tensor.view_dtype")
def _(bad):
    t = x(16, 8, dt=nl.bfloat16)
    part = t[:, ::2] if bad else t[:, 0:4]
    return part.view(nl.uint32).view(nl.bfloat16), v(16, 8)[:, :4]


@book.breaks("tensor.view_dtype")
def _(bad):
    t = x(16, 8, dt=nl.bfloat16)
    part = t[:, 1:5] if bad else t[:, 2:6]
    return part.view(nl.uint32).view(nl.bfloat16), v(16, 8)[:, 2:6]


@book.breaks("tensor.rearrange")
def _(bad):
    t, to = x(16, 12), ("p", "b", "c") if bad else ("p", "b", "a")
    return t.rearrange(("p", ("a", "b")), to, {"a": 3}), v(16, 3, 4).transpose(0, 2, 1)


@book.breaks("tensor.rearrange")
def _(bad):
    t = x(16, 3, 4)
    source = ("p", "a") if bad else ("p", "a", "b")
    return t.rearrange(source, ("p", "b", "a")), v(16, 3, 4).transpose(0, 2, 1)


@book.breaks("tensor.select_dynamic_not_partition")
def _(bad):
    t, u, i = x(32, 4, 8), sb(32, 8), index(1, 2)
    nisa.tensor_copy(dst=u, src=t.select(0 if bad else 1, i))
    return u, v(32, 4, 8)[:, 2]


@book.breaks("tensor.select_dynamic_once")
def _(bad):
    t, u, i = x(32, 4, 2, 8), sb(32, 8), index(1, 1)
    view = t.select(1, i)
    nisa.tensor_copy(dst=u, src=view.select(1, i if bad else 1))
    return u, v(32, 4, 2, 8)[:, 1, 1]


@book.breaks("tensor.vector_select")
def _(bad):
    t, table = sb(16, 8), x(64, 8) if bad else hx(64, 8)
    nisa.dma_copy(dst=t, src=table.vector_select(0, index(16, 8)))
    return t, v(64, 8)[8:24]


@book.breaks("tensor.vector_select")
def _(bad):
    t, table = sb(16, 8), hx(64, 8)
    nisa.dma_copy(dst=t, src=table.vector_select(1 if bad else 0, index(16, 8)))
    return t, v(64, 8)[8:24]


@book.breaks("tensor.vector_select_no_reslice")
def _(bad):
    t, table = sb(8, 8), hx(64, 8)
    rows = table.vector_select(0, index(16 if bad else 8, 8))
    nisa.dma_copy(dst=t, src=rows[0:8, :] if bad else rows)
    return t, v(64, 8)[8:16]


@book.breaks("tensor.reinterpret_plus_vector_select")
def _(bad):
    t, table = sb(16, 4), hx(64, 8, dt=nl.bfloat16)
    rows = table.vector_select(0, index(16, 8)).view(nl.float32) if bad else table.view(nl.float32).vector_select(
        0, index(16, 8))  # fmt: skip
    nisa.dma_copy(dst=t, src=rows)
    return t.view(nl.bfloat16), v(64, 8)[8:24]


@book.breaks("tensor.whole_numbers", error=NkiTypeError)
def _(bad):
    t = x(16, 8)
    return t.slice(1, 0, 4.0 if bad else 4), v(16, 8)[:, :4]


# --- access patterns -------------------------------------------------------------------------------------------------


@book.breaks("ap.bounds", error=NkiIndexError)
def _(bad):
    t = hx(16, 8)
    return nl.load(t.ap([[8, 16], [1, 8]], offset=1 if bad else 0)), v(16, 8)


@book.breaks("ap.bounds", error=NkiIndexError)
def _(bad):
    t = x(16, 8)
    return t.ap([[8, 16], [2, 5 if bad else 4]]), v(16, 8)[:, ::2]


@book.breaks("ap.bounds", error=NkiIndexError)
def _(bad):
    t = x(16, 8)
    return t.ap([[8, 17 if bad else 16], [1, 8]]), v(16, 8)


@book.breaks("ap.bounds", error=NkiIndexError)
def _(bad):
    t = hx(16, 8)
    return nl.load(t.ap([[8, 4], [1, 8]], offset=-1 if bad else 0)), v(4, 8)


@book.breaks("ap.partition_first")
def _(bad):
    t = x(16, 8)
    return t.ap([[4 if bad else 8, 16], [1, 4]]), v(16, 8)[:, :4]


@book.breaks("ap.partition_first")
def _(bad):
    t = x(16, 8)
    return t.ap([[16, 8], [1, 8]]) if bad else t.ap([[8, 8], [1, 8]]), v(16, 8)[:8]


@book.breaks("ap.offset_const", error=NkiTypeError)
def _(bad):
    t = x(16, 8)
    return t.ap([[8, 16], [1, 4]], offset=x(1, 1) if bad else 4), v(16, 8)[:, 4:]


@book.breaks("ap.offsets_exclusive")
def _(bad):
    t, table = sb(16, 8), hx(64, 8)
    scalar = index(1, 0) if bad else None
    src = table.ap([[8, 16], [1, 8]], scalar_offset=scalar, vector_offset=index(16, 8), indirect_dim=0)
    nisa.dma_copy(dst=t, src=src)
    return t, v(64, 8)[8:24]


@book.breaks("ap.scalar_offset")
def _(bad):
    t, table = sb(16, 8), hx(64, 8)
    offset = index(2, 8) if bad else index(1, 8)
    nisa.dma_copy(dst=t, src=table.ap([[8, 16], [1, 8]], scalar_offset=offset, indirect_dim=0))
    return t, v(64, 8)[8:24]


@book.breaks("ap.scalar_offset", error=NkiTypeError)
def _(bad):
    t, table = sb(16, 8), hx(64, 8)
    offset = 8 if bad else index(1, 8)
    nisa.dma_copy(dst=t, src=table.ap([[8, 16], [1, 8]], scalar_offset=offset, indirect_dim=0))
    return t, v(64, 8)[8:24]


@book.breaks("ap.vector_offset_dim0")
def _(bad):
    t, table = sb(16, 8), hx(64, 8)
    src = table.ap([[8, 16], [1, 8]], vector_offset=index(16, 8), indirect_dim=1 if bad else 0)
    nisa.dma_copy(dst=t, src=src)
    return t, v(64, 8)[8:24]


@book.breaks("ap.vector_offset_dim0")
def _(bad):
    t, table = sb(16, 8), x(64, 8) if bad else hx(64, 8)
    src = table.ap([[8, 16], [1, 8]], vector_offset=index(16, 8), indirect_dim=0)
    nisa.dma_copy(dst=t, src=src)
    return t, v(64, 8)[8:24]


# --- what Python would do in silence ---------------------------------------------------------------------------------


@book.breaks("lang.isa_dst_required", error=NkiTypeError)
def _(bad):
    t = x(16, 8)
    if bad:
        t += x(16, 8)
    return t, v(16, 8)


@book.breaks("lang.isa_dst_required", error=NkiTypeError)
def _(bad):
    t = x(16, 8)
    return (2.0 * t if bad else nl.multiply(t, 2.0)), 2 * v(16, 8)


@book.breaks("lang.isa_dst_required", error=NkiTypeError)
def _(bad):
    t = x(16, 8)
    n = range(t if bad else 1)
    return t, v(16, 8) * len(n)


@book.breaks("lang.isa_dst_required", error=NkiTypeError)
def _(bad):
    t = x(16, 8)
    return (-t if bad else nl.negative(t)), -v(16, 8)


@book.breaks("lang.isa_dst_required", error=NkiTypeError)
def _(bad):
    t = x(16, 8)
    if bad and t[0:1, 0] > 0:
        t = hb(16, 8)
    return t, v(16, 8)


@book.breaks("lang.isa_dst_required", error=NkiTypeError)
def _(bad):
    t = x(16, 8)
    if bad and t[0:1, 0]:
        t = hb(16, 8)
    return t, v(16, 8)


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)


def test_an_index_outside_says_which_and_how_large():
    def kernel(a):
        return nl.load(a[0:128, 0:64])

    with pytest.raises(nki_sim.NkiValidationError, match="dimension 0: index 127 exceeds dimension size 32"):
        nki_sim.run(kernel, np.zeros((32, 64), np.float32))


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.ap("x"),
        lambda t: t.ap([[8, 16], 3]),
        lambda t: t.ap([[8.0, 16], [1, 8]]),
        lambda t: t.reshape("xy"),
        lambda t: t.reshape((16, 4.0, 2)),
        lambda t: t.reshape_dim(1, (2.0, 4)),
        lambda t: t.permute(1),
        lambda t: t.permute((0, "1")),
        lambda t: t.slice(1, "0", 4),
        lambda t: t.slice(1, 0, 4.0),
        lambda t: t[:, 0:1].broadcast(1, "4"),
        lambda t: t.view("float33"),
        lambda t: t.ap([[8, 16], [1, 8]], dtype=complex),
        lambda t: t.select(0.0, 1),
        lambda t: t.expand_dim("1"),
        lambda t: t.select(1, "0"),
        lambda t: t["a"],
        lambda t: t[:, nl.ds("0", 4)],
        lambda t: t[:, nl.ds(0, 4.0)],
    ],
)
def test_what_is_no_whole_number_is_said_so_at_the_line(view):
    def kernel(a):
        return view(nl.load(a))

    with pytest.raises((TypeError, IndexError)) as caught:
        nki_sim.run(kernel, v(16, 8))
    assert isinstance(caught.value, nki_sim.NkiValidationError), str(caught.value)
    assert "lambda t:" in caught.value.diagnosis.site.text

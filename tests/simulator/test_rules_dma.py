"""Limits of the DMA engines: dma_copy and dma_transpose."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
from kernels import hb, ps, sb
from nki.isa import dge_mode, oob_mode
from rulebook import Book, hx, v, x

book = Book()
BF16 = nl.bfloat16
NkiTypeError = nki_sim.errors.NkiTypeError


def column(n, first=0, dt=nl.uint32, step=1, **where):
    """An (n, 1) tile of the whole numbers from ``first``."""
    made = sb(n, 1, dt=dt, **where)
    nisa.iota(dst=made, pattern=[[0, 1]], offset=first, channel_multiplier=step)
    return made


def rows_of(table, index, n):
    """The rows of a 2-D table that a column of indices names."""
    width = table.shape[1]
    return table.ap(pattern=[[width, n], [1, width]], vector_offset=index, indirect_dim=0)


# --- dma_copy --------------------------------------------------------------------------------------------------------


@book.breaks("dma_copy.elem_count")
def _(bad):
    t = sb(128, 512 if bad else 128)
    nisa.dma_copy(dst=t, src=hx(128, 1024)[:, 0:128])
    return t, v(128, 1024)[:, :128]


@book.breaks("hw.partition_access_contiguous")
def _(bad):
    t, out = x(64, 8), hb(16, 8)
    nisa.dma_copy(dst=out, src=t[1:33:2, :] if bad else t[1:17, :])
    return out, v(64, 8)[1:17]


@book.breaks("dma_copy.no_psum_src")
def _(bad):
    out, t = hb(16, 32), x(16, 32, buffer=nl.psum if bad else nl.sbuf)
    nisa.dma_copy(dst=out, src=t)
    return out, v(16, 32)


@book.breaks("dma_copy.no_psum_dst")
def _(bad):
    t = (ps if bad else sb)(16, 32)
    nisa.dma_copy(dst=t, src=hx(16, 32))
    return t, v(16, 32)


@book.breaks("dma_copy.no_cast_mx", on="trn3")
def _(bad):
    t = sb(16, 8, dt=nl.uint32)
    nisa.memset(dst=t, value=3)
    packed = sb(16, 8, dt=nl.float8_e5m2_x4)
    src = t if bad else t.view(nl.float8_e5m2_x4)
    nisa.dma_copy(dst=packed, src=src)
    return packed.view(nl.uint32), 3


@book.breaks("dma_copy.hwdge_gen3", on="trn1", elsewhere="trn2 trn3")
def _(bad):
    t = sb(16, 32)
    nisa.dma_copy(dst=t, src=hx(16, 32), dge_mode=dge_mode.hwdge if bad else dge_mode.swdge)
    return t, v(16, 32)


@book.breaks("dma_copy.hwdge_same_dtype", on="trn2 trn3")
def _(bad):
    t = sb(16, 32, dt=BF16 if bad else nl.float32)
    nisa.dma_copy(dst=t, src=hx(16, 32), dge_mode=dge_mode.hwdge)
    return t, v(16, 32)


@book.breaks("dma_copy.hwdge_no_indirect", on="trn2 trn3")
def _(bad):
    t = sb(16, 32)
    src = rows_of(hx(64, 32), column(16, 8), 16)
    nisa.dma_copy(dst=t, src=src, dge_mode=dge_mode.hwdge if bad else dge_mode.swdge)
    return t, v(64, 32)[8:24]


@book.breaks("dma_copy.vector_offset_mode")
def _(bad):
    t = sb(16, 32)
    src = rows_of(hx(64, 32), column(16, 8), 16)
    nisa.dma_copy(dst=t, src=src, dge_mode=dge_mode.none if bad else dge_mode.unknown)
    return t, v(64, 32)[8:24]


@book.breaks("dma_copy.none_static_only")
def _(bad):
    t, table = sb(16, 32), hx(64, 32)
    src = table.ap(pattern=[[32, 16], [1, 32]], scalar_offset=column(1, 8), indirect_dim=0)
    nisa.dma_copy(dst=t, src=src if bad else table[8:24, :], dge_mode=dge_mode.none)
    return t, v(64, 32)[8:24]


@book.breaks("dma_copy.hwdge_engine")
def _(bad):
    t = sb(16, 32)
    nisa.dma_copy(dst=t, src=hx(16, 32), engine=nisa.engine.scalar if bad else nisa.engine.unknown)
    return t, v(16, 32)


@book.breaks("dma_copy.hwdge_engine", on="trn2 trn3")
def _(bad):
    t, engine = sb(16, 32), nisa.engine.vector if bad else nisa.engine.scalar
    nisa.dma_copy(dst=t, src=hx(16, 32), engine=engine, dge_mode=dge_mode.hwdge)
    return t, v(16, 32)


@book.breaks("dma_copy.vector_offset_shape")
def _(bad):
    t, index = sb(16, 32), column(8 if bad else 16, 8)
    nisa.dma_copy(dst=t, src=rows_of(hx(64, 32), index, 16))
    return t, v(64, 32)[8:24]


@book.breaks("dma_copy.vector_offset_shape")
def _(bad):
    t, index = sb(16, 32), column(16, 8, dt=nl.float32 if bad else nl.int32)
    nisa.dma_copy(dst=t, src=rows_of(hx(64, 32), index, 16))
    return t, v(64, 32)[8:24]


@book.breaks("dma_copy.vector_offset_shape")
def _(bad):
    t, index = sb(16, 32), column(16, 8)
    if bad:
        wide = sb(16, 2, dt=nl.uint32)
        nisa.iota(dst=wide, pattern=[[0, 2]], offset=8, channel_multiplier=1)
        index = wide
    nisa.dma_copy(dst=t, src=rows_of(hx(64, 32), index, 16))
    return t, v(64, 32)[8:24]


@book.breaks("dma_copy.priority_gen4", on="trn1 trn2", elsewhere="trn3")
def _(bad):
    t = sb(16, 32)
    nisa.dma_copy(dst=t, src=hx(16, 32), priority=3 if bad else None)
    return t, v(16, 32)


@book.breaks("dma_copy.priority_gen4", on="trn3")
def _(bad):
    t = sb(16, 32)
    nisa.dma_copy(dst=t, src=hx(16, 32), priority=4 if bad else 0)
    return t, v(16, 32)


@book.breaks("dma_copy.priority_gen4", on="trn1 trn2", elsewhere="trn3")
def _(bad):
    t = sb(32, 16)
    nisa.dma_transpose(dst=t, src=hx(16, 32), priority=1 if bad else None)
    return t, v(16, 32).T


@book.breaks("dma_copy.oob_error_default")
def _(bad):
    t = sb(16, 32)
    nisa.dma_copy(dst=t, src=rows_of(hx(64, 32), column(16, 49 if bad else 48), 16))
    return t, v(64, 32)[48:64]


@book.breaks("dma_copy.oob_error_default")
def _(bad):
    t, table = sb(16, 32), hx(64, 32)
    src = table.ap(pattern=[[32, 16], [1, 32]], scalar_offset=column(1, 49 if bad else 48), indirect_dim=0)
    nisa.dma_copy(dst=t, src=src)
    return t, v(64, 32)[48:64]


@book.breaks("kernel.enum_members", error=NkiTypeError)
def _(bad):
    t = sb(16, 32)
    nisa.dma_copy(dst=t, src=hx(16, 32), dge_mode=9 if bad else dge_mode.swdge)
    return t, v(16, 32)


@book.breaks("kernel.enum_members", error=NkiTypeError)
def _(bad):
    t = sb(16, 32)
    nisa.dma_copy(dst=t, src=hx(16, 32), oob_mode="skip" if bad else oob_mode.error)
    return t, v(16, 32)


# --- dma_transpose ---------------------------------------------------------------------------------------------------


@book.breaks("dma_transpose.axes")
def _(bad):
    t = sb(32, 16)
    nisa.dma_transpose(dst=t, src=hx(16, 32), axes=(0, 1) if bad else (1, 0))
    return t, v(16, 32).T


@book.breaks("dma_transpose.axes")
def _(bad):
    t = sb(8, 4, 16)
    nisa.dma_transpose(dst=t, src=hx(16, 4, 8), axes=(2, 0, 1) if bad else (2, 1, 0))
    return t, v(16, 4, 8).transpose(2, 1, 0)


@book.breaks("dma_transpose.dst_shape_exact", error=AssertionError)
def _(bad):
    t = sb(32, 1, 16) if bad else sb(32, 16)
    nisa.dma_transpose(dst=t, src=hx(16, 32))
    return t, v(16, 32).T


@book.breaks("dma_transpose.dst_sbuf")
def _(bad):
    t = (ps if bad else sb)(32, 16)
    nisa.dma_transpose(dst=t, src=hx(16, 32))
    return t, v(16, 32).T


@book.breaks("dma_transpose.dst_sbuf")
def _(bad):
    t = (hb if bad else sb)(32, 16)
    nisa.dma_transpose(dst=t, src=x(16, 32))
    return t, v(16, 32).T


@book.breaks("dma_transpose.src_buffers")
def _(bad):
    t = sb(32, 16)
    nisa.dma_transpose(dst=t, src=x(16, 32, buffer=nl.psum if bad else nl.sbuf))
    return t, v(16, 32).T


@book.breaks("dma_transpose.same_dtype")
def _(bad):
    t = sb(32, 16, dt=BF16)
    nisa.dma_transpose(dst=t, src=hx(16, 32, dt=nl.float16 if bad else BF16))
    return t, v(16, 32).T


@book.breaks("dma_transpose.dtype_bytes", on="trn2 trn3")
def _(bad):
    dt = nl.uint8 if bad else nl.int16
    t = sb(32, 16, dt=dt)
    nisa.dma_transpose(dst=t, src=hx(16, 32, dt=dt))
    return t, v(16, 32).T


@book.breaks("dma_transpose.direct_dge_mode")
def _(bad):
    t = sb(32, 16)
    nisa.dma_transpose(dst=t, src=hx(16, 32), dge_mode=dge_mode.swdge if bad else dge_mode.none)
    return t, v(16, 32).T


@book.breaks("dma_transpose.hwdge_gen3", on="trn1", elsewhere="trn2 trn3")
def _(bad):
    t = sb(32, 16, dt=BF16)
    nisa.dma_transpose(dst=t, src=hx(16, 32, dt=BF16), dge_mode=dge_mode.hwdge if bad else dge_mode.unknown)
    return t, v(16, 32).T


@book.breaks("dma_transpose.hwdge_2d_src0_16", on="trn2 trn3")
def _(bad):
    n = 32 if bad else 16
    t = sb(32, n, dt=BF16)
    nisa.dma_transpose(dst=t, src=hx(n, 32, dt=BF16), dge_mode=dge_mode.hwdge)
    return t, v(16, 32).T


@book.breaks("dma_transpose.hwdge_34d_src0", on="trn2 trn3")
def _(bad):
    n, w = (8, 3) if bad else (8, 4)
    t = sb(32, w, n, dt=BF16)
    nisa.dma_transpose(dst=t, src=hx(n, w, 32, dt=BF16), dge_mode=dge_mode.hwdge)
    return t, v(8, w, 32).transpose(2, 1, 0)


@book.breaks("dma_transpose.hwdge_34d_src0", on="trn2 trn3")
def _(bad):
    n = 32 if bad else 2
    t = sb(16, 2, 8, n, dt=BF16)
    nisa.dma_transpose(dst=t, src=hx(n, 2, 8, 16, dt=BF16), dge_mode=dge_mode.hwdge)
    return t, v(n, 2, 8, 16).transpose(3, 1, 2, 0)


@book.breaks("dma_transpose.hwdge_last_le_128", on="trn2 trn3")
def _(bad):
    src, t = hx(16, 256, dt=BF16), sb(128, 16, dt=BF16)
    nisa.dma_transpose(dst=t, src=src[:, 0:129] if bad else src[:, 0:128], dge_mode=dge_mode.hwdge)
    return t, v(16, 256)[:, :128].T


@book.breaks("dma_transpose.hwdge_2byte", on="trn2 trn3")
def _(bad):
    dt = nl.float32 if bad else nl.float16
    t = sb(32, 16, dt=dt)
    nisa.dma_transpose(dst=t, src=hx(16, 32, dt=dt), dge_mode=dge_mode.hwdge)
    return t, v(16, 32).T


@book.breaks("dma_transpose.oob_skip_indirect_only")
def _(bad):
    t = sb(32, 16)
    nisa.dma_transpose(dst=t, src=hx(16, 32), oob_mode=oob_mode.skip if bad else oob_mode.error)
    return t, v(16, 32).T


WANT = v(64, 16)[8:40].T


@book.breaks("dma_transpose.indirect.dge_mode", on="trn2 trn3")
def _(bad):
    t, src = sb(16, 32, dt=BF16), rows_of(hx(64, 16, dt=BF16), column(32, 8), 32)
    nisa.dma_transpose(dst=t, src=src, dge_mode=dge_mode.none if bad else dge_mode.swdge)
    return t, WANT


@book.breaks("dma_transpose.indirect.gen3", on="trn1", elsewhere="trn2 trn3")
def _(bad):
    t, table = sb(16, 32, dt=BF16), hx(64, 16, dt=BF16)
    src = rows_of(table, column(32, 8), 32) if bad else table[8:40, :]
    nisa.dma_transpose(dst=t, src=src)
    return t, WANT


@book.breaks("dma_transpose.indirect.4d", on="trn2 trn3")
def _(bad):
    shape = (64, 2, 2, 4) if bad else (64, 1, 4, 4)
    table = hx(*shape, dt=BF16)
    pattern = [[16, 16], *table.get_pattern()[1:]]
    src = table.ap(pattern=pattern, vector_offset=column(16, 8), indirect_dim=0)
    t = sb(4, *shape[1:3], 16, dt=BF16)
    nisa.dma_transpose(dst=t, src=src)
    return t, v(*shape)[8:24].transpose(3, 1, 2, 0)


@book.breaks("dma_transpose.indirect.last_le_128", on="trn2 trn3")
def _(bad):
    table, width = hx(64, 256, dt=BF16), 129 if bad else 128
    src = table.ap(pattern=[[256, 16], [1, width]], vector_offset=column(16, 8), indirect_dim=0)
    t = sb(128, 16, dt=BF16)
    nisa.dma_transpose(dst=t, src=src)
    return t, v(64, 256)[8:24, :128].T


@book.breaks("dma_transpose.indirect.2byte", on="trn2 trn3")
def _(bad):
    dt = nl.float32 if bad else nl.int16
    t, src = sb(16, 32, dt=dt), rows_of(hx(64, 16, dt=dt), column(32, 8), 32)
    nisa.dma_transpose(dst=t, src=src)
    return t, WANT


@book.breaks("dma_transpose.indirect.indices_2d", on="trn2 trn3")
def _(bad):
    index = column(32, 8)
    t, src = sb(16, 32, dt=BF16), rows_of(hx(64, 16, dt=BF16), index.expand_dim(2) if bad else index, 32)
    nisa.dma_transpose(dst=t, src=src)
    return t, WANT


@book.breaks("dma_transpose.indirect.indices_count", on="trn2 trn3")
def _(bad):
    t, src = sb(16, 32, dt=BF16), rows_of(hx(64, 16, dt=BF16), column(16 if bad else 32, 8), 32)
    nisa.dma_transpose(dst=t, src=src)
    return t, WANT


@book.breaks("dma_transpose.indirect.src0_mult_16", on="trn2 trn3")
def _(bad):
    n = 24 if bad else 32
    t, src = sb(16, n, dt=BF16), rows_of(hx(64, 16, dt=BF16), column(32, 8), n)
    nisa.dma_transpose(dst=t, src=src)
    return t, WANT


@book.breaks("dma_transpose.indirect.indices0", on="trn2 trn3")
def _(bad):
    t, src = sb(16, 32, dt=BF16), rows_of(hx(64, 16, dt=BF16), column(40 if bad else 48, 8), 32)
    nisa.dma_transpose(dst=t, src=src)
    return t, WANT


def block(rows, columns, first):
    """Indices that run down the columns of a tile."""
    made = sb(rows, columns, dt=nl.uint32)
    nisa.iota(dst=made, pattern=[[rows, columns]], offset=first, channel_multiplier=1)
    return made


@book.breaks("dma_transpose.indirect.indices1_gt1", on="trn2 trn3")
def _(bad):
    rows = 64 if bad else 128
    t, index = sb(16, 32, dt=BF16), block(rows, 2, 8)
    nisa.dma_transpose(dst=t, src=rows_of(hx(64, 16, dt=BF16), index, 32))
    return t, WANT


@book.breaks("dma_transpose.indirect.indices_u32_sbuf", on="trn2 trn3")
def _(bad):
    t, index = sb(16, 32, dt=BF16), column(32, 8, dt=nl.int32 if bad else nl.uint32)
    nisa.dma_transpose(dst=t, src=rows_of(hx(64, 16, dt=BF16), index, 32))
    return t, WANT


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)


def test_a_two_column_gather_reads_down_the_columns():
    """200 rows by indices in a (128, 2) tile: 128 from the first column, the rest from the second."""

    def kernel(table):
        t = sb(16, 192, dt=BF16)
        nisa.dma_transpose(dst=t, src=table.ap([[16, 192], [1, 16]], vector_offset=block(128, 2, 5), indirect_dim=0))
        out = hb(16, 192, dt=BF16)
        nisa.dma_copy(dst=out, src=t)
        return out

    table = np.arange(300 * 16).reshape(300, 16).astype(nki_sim.dtypes.TABLE["bfloat16"].storage)
    np.testing.assert_array_equal(nki_sim.run(kernel, table).result, table[5:197].T)

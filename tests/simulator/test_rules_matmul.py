"""Limits of the tensor engine: nc_matmul and nc_transpose."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
from kernels import ps, sb
from rulebook import Book, hx, v, x

book = Book()
BF16, FP8, FP8FN = nl.bfloat16, nl.float8_e4m3, nl.float8_e4m3fn
DOUBLE = nisa.matmul_perf_mode.double_row


def product(k, m, n):
    return v(k, m).T @ v(k, n, at=1)


@book.breaks("nc_matmul.operand_buffers")
def _(bad):
    p = (sb if bad else ps)(64, 512)
    nisa.nc_matmul(dst=p, stationary=x(128, 64), moving=x(128, 512, at=1))
    return p, product(128, 64, 512)


@book.breaks("nc_matmul.operand_buffers")
def _(bad):
    p = ps(64, 32)
    s = x(128, 64, buffer=nl.psum if bad else nl.sbuf)
    nisa.nc_matmul(dst=p, stationary=s, moving=x(128, 32, at=1))
    return p, product(128, 64, 32)


@book.breaks("nc_matmul.operand_buffers")
def _(bad):
    p = ps(64, 32)
    m = hx(128, 32, at=1) if bad else x(128, 32, at=1)
    nisa.nc_matmul(dst=p, stationary=x(128, 64), moving=m)
    return p, product(128, 64, 32)


@book.breaks("nc_matmul.k_equal")
def _(bad):
    p = ps(64, 512)
    nisa.nc_matmul(dst=p, stationary=x(128, 64), moving=x(96 if bad else 128, 512, at=1))
    return p, product(128, 64, 512)


@book.breaks("nc_matmul.k_le_128")
def _(bad):
    p, k = ps(32, 16), 65 if bad else 64
    nisa.nc_matmul(dst=p, stationary=x(k, 32), moving=x(k, 16, at=1), tile_position=(0, 0), tile_size=(64, 64))
    return p, product(k, 32, 16)


@book.breaks("nc_matmul.stationary_free_le_128")
def _(bad):
    p = ps(128, 16)
    nisa.nc_matmul(dst=p, stationary=x(64, 129 if bad else 128), moving=x(64, 16, at=1))
    return p, product(64, 128, 16)


@book.breaks("nc_matmul.stationary_free_le_128")
def _(bad):
    p, m = ps(128, 16), 128 if bad else 64
    nisa.nc_matmul(dst=p[0:m, :], stationary=x(64, m), moving=x(64, 16, at=1), tile_position=(0, 0), tile_size=(64, 64))
    return p[0:64, :], product(64, 64, 16)


@book.breaks("nc_matmul.moving_free_le_512", on="trn1 trn2", elsewhere="trn3")
def _(bad):
    n = 513 if bad else 512
    p = ps(16, n)
    nisa.nc_matmul(dst=p, stationary=x(8, 16), moving=x(8, n, at=1))
    return p, product(8, 16, n)


@book.breaks("nc_matmul.moving_free_gen4", on="trn3")
def _(bad):
    p = ps(16, 4096)
    nisa.nc_matmul(dst=p, stationary=x(8, 16), moving=x(8, 4097 if bad else 4096, at=1))
    return p, product(8, 16, 4096)


@book.breaks("nc_matmul.dst_shape")
def _(bad):
    p = ps(*((64, 32) if bad else (32, 64)))
    nisa.nc_matmul(dst=p, stationary=x(128, 32), moving=x(128, 64, at=1))
    return p, product(128, 32, 64)


@book.breaks("nc_matmul.dst_fits_one_bank", on="trn1 trn2", elsewhere="trn3")
def _(bad):
    p = ps(16, 1024)
    first = 511 if bad else 512
    nisa.nc_matmul(dst=p[:, first : first + 64], stationary=x(8, 16), moving=x(8, 64, at=1))
    return p[:, first : first + 64], product(8, 16, 64)


@book.breaks("nc_matmul.in_dtypes")
def _(bad):
    p, dt = ps(16, 64), nl.int32 if bad else BF16
    nisa.nc_matmul(dst=p, stationary=x(8, 16, dt=dt), moving=x(8, 64, at=1, dt=BF16))
    return p, product(8, 16, 64)


@book.breaks("nc_matmul.in_dtypes")
def _(bad):
    p, dt = ps(16, 64), nl.uint8 if bad else nl.float8_e5m2
    nisa.nc_matmul(dst=p, stationary=x(8, 16, dt=BF16), moving=x(8, 64, at=1, dt=dt))
    return p, product(8, 16, 64)


@book.breaks("nc_matmul.fp32_pairing")
def _(bad):
    p = ps(16, 64)
    nisa.nc_matmul(dst=p, stationary=x(8, 16), moving=x(8, 64, at=1, dt=BF16 if bad else nl.tfloat32))
    return p, product(8, 16, 64)


@book.breaks("nc_matmul.e4m3fn_gen4_only", on="trn1 trn2", elsewhere="trn3")
def _(bad):
    p = ps(16, 64)
    nisa.nc_matmul(dst=p, stationary=x(8, 16, dt=FP8FN if bad else FP8), moving=x(8, 64, at=1, dt=BF16))
    return p, product(8, 16, 64)


@book.breaks("nc_matmul.no_mix_e4m3_e4m3fn", on="trn3")
def _(bad):
    p = ps(16, 64)
    nisa.nc_matmul(dst=p, stationary=x(8, 16, dt=FP8FN), moving=x(8, 64, at=1, dt=FP8 if bad else FP8FN))
    return p, product(8, 16, 64)


@book.breaks("nc_matmul.dst_dtype_fp32", on="trn1 trn2", elsewhere="trn3")
def _(bad):
    p = ps(16, 64, dt=BF16 if bad else nl.float32)
    nisa.nc_matmul(dst=p, stationary=x(4, 16, dt=BF16), moving=x(4, 64, at=1, dt=BF16))
    return p, product(4, 16, 64)


@book.breaks("nc_matmul.dst_dtype_gen4", on="trn3")
def _(bad):
    p = ps(16, 64, dt=nl.float16 if bad else BF16)
    nisa.nc_matmul(dst=p, stationary=x(4, 16, dt=BF16), moving=x(4, 64, at=1, dt=BF16))
    return p, product(4, 16, 64)


@book.breaks("nc_matmul.transpose.psum_dtype", on="trn2 trn3")
def _(bad):
    p = ps(16, 32, dt=nl.float32 if bad else BF16)
    eye = nl.shared_identity_matrix(32, dtype=BF16)
    nisa.nc_matmul(dst=p, stationary=x(32, 16, dt=BF16), moving=eye, is_transpose=True)
    return p, v(32, 16).T


@book.breaks("kernel.enum_members", error=nki_sim.errors.NkiTypeError)
def _(bad):
    p, mode = ps(16, 64), "double_pixel" if bad else nisa.matmul_perf_mode.none
    nisa.nc_matmul(dst=p, stationary=x(8, 16), moving=x(8, 64, at=1), perf_mode=mode)
    return p, product(8, 16, 64)


def packed(k, m, n):
    return np.einsum("kim,kin->mn", v(k, 2, m), v(k, 2, n, at=1))


@book.breaks("nc_matmul.perf_mode_gen", on="trn1", elsewhere="trn2 trn3")
def _(bad):
    p, two, mode = ps(16, 64), (2,) if bad else (), DOUBLE if bad else nisa.matmul_perf_mode.none
    nisa.nc_matmul(dst=p, stationary=x(8, *two, 16, dt=FP8), moving=x(8, *two, 64, at=1, dt=FP8), perf_mode=mode)
    return p, packed(8, 16, 64) if bad else product(8, 16, 64)


@book.breaks("nc_matmul.double_row.dtype", on="trn2 trn3")
def _(bad):
    p, dt = ps(16, 64), BF16 if bad else nl.float8_e5m2
    nisa.nc_matmul(dst=p, stationary=x(8, 2, 16, dt=FP8), moving=x(8, 2, 64, at=1, dt=dt), perf_mode=DOUBLE)
    return p, packed(8, 16, 64)


@book.breaks("nc_matmul.double_row.dtype", on="trn2", elsewhere="trn3")
def _(bad):
    p, dt = ps(16, 64), FP8FN if bad else FP8
    nisa.nc_matmul(dst=p, stationary=x(8, 2, 16, dt=dt), moving=x(8, 2, 64, at=1, dt=dt), perf_mode=DOUBLE)
    return p, packed(8, 16, 64)


@book.breaks("nc_matmul.double_row.first_free_dim_2", on="trn2 trn3")
def _(bad):
    p, s = ps(16, 64), x(8, 32, dt=FP8) if bad else x(8, 2, 16, dt=FP8)
    nisa.nc_matmul(dst=p, stationary=s, moving=x(8, 2, 64, at=1, dt=FP8), perf_mode=DOUBLE)
    return p, packed(8, 16, 64)


@book.breaks("nc_matmul.double_row.first_free_dim_2", on="trn2 trn3")
def _(bad):
    p, three = ps(16, 64), 3 if bad else 2
    nisa.nc_matmul(dst=p, stationary=x(8, three, 16, dt=FP8), moving=x(8, three, 64, at=1, dt=FP8), perf_mode=DOUBLE)
    return p, packed(8, 16, 64)


@book.breaks("nc_matmul.double_row.max_tiles", on="trn2 trn3")
def _(bad):
    p, n = ps(16, 512), 513 if bad else 512
    nisa.nc_matmul(dst=p, stationary=x(8, 2, 16, dt=FP8), moving=x(8, 2, n, at=1, dt=FP8), perf_mode=DOUBLE)
    return p, packed(8, 16, 512)


@book.breaks("nc_matmul.double_row.max_tiles", on="trn2 trn3")
def _(bad):
    p, m = ps(128, 64), 129 if bad else 128
    nisa.nc_matmul(dst=p, stationary=x(8, 2, m, dt=FP8), moving=x(8, 2, 64, at=1, dt=FP8), perf_mode=DOUBLE)
    return p, packed(8, 128, 64)


@book.breaks("nc_matmul.double_row.no_column_tiling", on="trn2 trn3")
def _(bad):
    p, size = ps(16, 64), (128, 64 if bad else 128)
    nisa.nc_matmul(
        dst=p, stationary=x(8, 2, 16, dt=FP8), moving=x(8, 2, 64, at=1, dt=FP8), perf_mode=DOUBLE,
        tile_position=(0, 0), tile_size=size,
    )  # fmt: skip
    return p, packed(8, 16, 64)


@book.breaks("nc_matmul.double_row.no_transpose", on="trn2 trn3")
def _(bad):
    p, s, m = ps(16, 64), x(8, 2, 16, dt=FP8), x(8, 2, 64, at=1, dt=FP8)
    nisa.nc_matmul(dst=p, stationary=s, moving=m, perf_mode=DOUBLE, is_transpose=bad)
    return p, packed(8, 16, 64)


@book.breaks("nc_matmul.tile.both_or_none")
def _(bad):
    p, size = ps(16, 64), () if bad else (128, 128)
    nisa.nc_matmul(dst=p, stationary=x(8, 16), moving=x(8, 64, at=1), tile_position=(0, 0), tile_size=size)
    return p, product(8, 16, 64)


@book.breaks("nc_matmul.tile.row_sizes", on="trn1", elsewhere="trn2 trn3")
def _(bad):
    p, size = ps(16, 64), (32 if bad else 64, 128)
    nisa.nc_matmul(dst=p, stationary=x(8, 16), moving=x(8, 64, at=1), tile_position=(0, 0), tile_size=size)
    return p, product(8, 16, 64)


@book.breaks("nc_matmul.tile.row_sizes")
def _(bad):
    p, size = ps(16, 64), (96 if bad else 128, 128)
    nisa.nc_matmul(dst=p, stationary=x(8, 16), moving=x(8, 64, at=1), tile_position=(0, 0), tile_size=size)
    return p, product(8, 16, 64)


@book.breaks("nc_matmul.tile.col_sizes", on="trn1", elsewhere="trn2 trn3")
def _(bad):
    p, size = ps(16, 64), (64, 32 if bad else 64)
    nisa.nc_matmul(dst=p, stationary=x(8, 16), moving=x(8, 64, at=1), tile_position=(0, 0), tile_size=size)
    return p, product(8, 16, 64)


@book.breaks("nc_matmul.tile.start_row")
def _(bad):
    p, where = ps(16, 64), (32 if bad else 64, 0)
    nisa.nc_matmul(dst=p, stationary=x(8, 16), moving=x(8, 64, at=1), tile_position=where, tile_size=(64, 64))
    return p, product(8, 16, 64)


@book.breaks("nc_matmul.tile.start_row")
def _(bad):
    p, where = ps(16, 64), (128 if bad else 64, 0)
    nisa.nc_matmul(dst=p, stationary=x(8, 16), moving=x(8, 64, at=1), tile_position=where, tile_size=(64, 64))
    return p, product(8, 16, 64)


@book.breaks("nc_matmul.tile.start_col")
def _(bad):
    p, where = ps(16, 64), (0, 32 if bad else 64)
    nisa.nc_matmul(dst=p, stationary=x(8, 16), moving=x(8, 64, at=1), tile_position=where, tile_size=(64, 64))
    return p, product(8, 16, 64)


@book.breaks("nc_matmul.stationary_one_free_dim")
def _(bad):
    p, s = ps(16, 64), x(8, 4, 8)
    s = s[:, :, 0:4] if bad else s.flatten_dims(1, 2)[:, 0:16]
    nisa.nc_matmul(dst=p, stationary=s, moving=x(8, 64, at=1))
    return p, product(8, 16, 64)


@book.breaks("nc_matmul.accumulate.first_must_overwrite")
def _(bad):
    p = ps(16, 64)
    nisa.nc_matmul(dst=p, stationary=x(8, 16), moving=x(8, 64, at=1), accumulate=bad)
    nisa.nc_matmul(dst=p, stationary=x(8, 16), moving=x(8, 64, at=1), accumulate=True)
    return p, 2 * product(8, 16, 64)


@book.breaks("nc_matmul.accumulate.non_matmul_init_ub", on="trn1 trn2", elsewhere="trn3")
def _(bad):
    p = ps(16, 64)
    nisa.memset(dst=p, value=0.0)
    nisa.nc_matmul(dst=p, stationary=x(8, 16), moving=x(8, 64, at=1), accumulate=bad)
    return p, product(8, 16, 64)


@book.breaks("nc_matmul.accumulate.warn_patterns")
def _(bad):
    p, o = ps(16, 64), sb(16, 64)
    nisa.nc_matmul(dst=p, stationary=x(8, 16), moving=x(8, 64, at=1))
    nisa.tensor_copy(dst=o, src=p)
    again = None if bad else False
    nisa.nc_matmul(dst=p, stationary=x(8, 16), moving=x(8, 64, at=1), accumulate=again)
    return p, product(8, 16, 64)


TENSOR, VECTOR = nisa.engine.tensor, nisa.engine.vector


@book.breaks("nc_transpose.engines")
def _(bad):
    p = ps(16, 64)
    nisa.nc_transpose(dst=p, data=x(64, 16), engine=nisa.engine.scalar if bad else TENSOR)
    return p, v(64, 16).T


@book.breaks("nc_transpose.tensor_buffers")
def _(bad):
    p = (sb if bad else ps)(16, 64)
    nisa.nc_transpose(dst=p, data=x(64, 16), engine=TENSOR)
    return p, v(64, 16).T


@book.breaks("nc_transpose.tensor_buffers")
def _(bad):
    p = ps(16, 32)
    nisa.nc_transpose(dst=p, data=x(32, 16, buffer=nl.psum), engine=TENSOR if bad else VECTOR)
    return p, v(32, 16).T


@book.breaks("nc_transpose.vector_buffers")
def _(bad):
    p = sb(16, 32)
    nisa.nc_transpose(dst=p, data=hx(32, 16) if bad else x(32, 16))
    return p, v(32, 16).T


@book.breaks("nc_transpose.tensor_le_128")
def _(bad):
    p = ps(128, 128)
    nisa.nc_transpose(dst=p, data=x(128, 129 if bad else 128))
    return p, v(128, 128).T


@book.breaks("nc_transpose.vector_le_32")
def _(bad):
    n = 33 if bad else 32
    t = sb(n, 32)
    nisa.nc_transpose(dst=t, data=x(32, n))
    return t, v(32, 32).T


@book.breaks("nc_transpose.dst_shape")
def _(bad):
    p = ps(*((64, 16) if bad else (16, 64)))
    nisa.nc_transpose(dst=p, data=x(64, 16))
    return p, v(64, 16).T


@book.breaks("nc_transpose.same_dtype", on="trn2 trn3")
def _(bad):
    p = ps(16, 64, dt=nl.float32 if bad else BF16)
    nisa.nc_transpose(dst=p, data=x(64, 16, dt=BF16))
    return p, v(64, 16).T


@book.breaks("nc_transpose.same_dtype")
def _(bad):
    t = sb(16, 32, dt=nl.float32 if bad else nl.int16)
    nisa.nc_transpose(dst=t, data=x(32, 16, dt=nl.int16))
    return t, v(32, 16).T


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)

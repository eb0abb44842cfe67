"""Limits of ``nl.*``: what its functions take, and what no engine can do."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
from kernels import hb, ps, sb, st
from nki_sim.errors import NkiTypeError
from rulebook import Book, hx, v, x

book = Book()
PSUM, SBUF, I32 = nl.psum, nl.sbuf, nl.int32


@book.breaks("nl.load_hbm")
def _(bad):
    return nl.load(x(16, 8) if bad else hx(16, 8)), v(16, 8)


@book.breaks("nl.load_hbm", error=NkiTypeError)
def _(bad):
    return nl.load(v(16, 8) if bad else hx(16, 8)), v(16, 8)


@book.breaks("nl.load_hbm")
def _(bad):
    if bad:
        return nl.load_transpose2d(hx(16, 2, 4)), 0
    return nl.load(hx(16, 8)), v(16, 8)


@book.breaks("nl.load_partition_le_128")
def _(bad):
    big = hb(256, 8)
    nisa.dma_copy(dst=big[0:128, :], src=hx(128, 8))
    nisa.dma_copy(dst=big[128:256, :], src=hx(128, 8))
    return nl.load(big[0 : 129 if bad else 128, :]), v(128, 8)


@book.breaks("nl.store_sbuf")
def _(bad):
    out, t = hb(16, 8), x(16, 8, buffer=PSUM if bad else SBUF)
    nl.store(out, t)
    return out, v(16, 8)


@book.breaks("nl.store_sbuf")
def _(bad):
    out = (sb if bad else hb)(16, 8)
    nl.store(out, x(16, 8))
    return out, v(16, 8)


@book.breaks("nl.copy")
def _(bad):
    return nl.copy(hx(16, 8) if bad else x(16, 8, buffer=PSUM)), v(16, 8)


@book.breaks("nl.broadcast_to_rank")
def _(bad):
    return nl.broadcast_to(x(16, 1), (16, 1, 4) if bad else (16, 4)), np.repeat(v(16, 1), 4, 1)


@book.breaks("nl.broadcast_to_rank")
def _(bad):
    return nl.broadcast_to(x(16, 2 if bad else 1), (16, 4)), np.repeat(v(16, 1), 4, 1)


@book.breaks("nl.broadcast_to_rank")
def _(bad):
    return nl.broadcast_to(hx(1, 4) if bad else x(1, 4), (128, 4)), v(1, 4)


@book.breaks("shared_identity.n")
def _(bad):
    return nl.shared_identity_matrix(129 if bad else 128), np.eye(128)


@book.breaks("device_print.buffers")
def _(bad):
    t = x(2, 2, buffer=PSUM if bad else SBUF)
    nl.device_print("t", t)
    return t, v(2, 2)


@book.breaks("device_print.buffers", error=NkiTypeError)
def _(bad):
    t = x(2, 2)
    nl.device_print(3 if bad else "t", t)
    return t, v(2, 2)


@book.breaks("nl.binary_no_broadcast")
def _(bad):
    return nl.add(x(16, 8), x(16, 1 if bad else 8, at=1)), v(16, 8) + v(16, 8, at=1)


@book.breaks("nl.binary_no_broadcast")
def _(bad):
    return nl.less(x(16, 8), x(16, 2, 4, at=1) if bad else x(16, 8, at=1)), v(16, 8) < v(16, 8, at=1)


@book.breaks("nl.compare_one_tile", error=NkiTypeError)
def _(bad):
    return nl.less(1.0 if bad else x(16, 8), 2.0), v(16, 8) < 2


@book.breaks("nl.bitwise_int")
def _(bad):
    a = x(16, 8, dt=nl.float32 if bad else I32)
    return nl.bitwise_and(a, 3), v(16, 8) % 4


@book.breaks("nl.bitwise_int")
def _(bad):
    a = x(16, 8, dt=nl.bfloat16 if bad else nl.uint8)
    return nl.invert(a), 255 - v(16, 8)


@book.breaks("nl.bitwise_int")
def _(bad):
    a = x(16, 8, dt=nl.float32 if bad else I32)
    return nl.left_shift(x(16, 8, dt=I32), a), v(16, 8) * 2 ** v(16, 8)


@book.breaks("nl.tile_size", error=NkiTypeError)
def _(bad):
    n = nl.tile_size(16) if bad else nl.tile_size.pmax
    return x(n, 8), v(128, 8)


@book.breaks("nl.divide_unsupported")
def _(bad):
    two = nl.full((16, 8), 2.0, dtype=nl.float32)
    if bad:
        return nl.divide(x(16, 8), two), v(16, 8) / 2
    return nl.multiply(x(16, 8), nl.reciprocal(two)), v(16, 8) / 2


@book.breaks("nl.mod_fmod_unsupported")
def _(bad):
    if bad:
        return nl.mod(x(16, 8), 2), v(16, 8) % 2
    return nl.bitwise_and(x(16, 8, dt=I32), 1), v(16, 8) % 2


@book.breaks("nl.mod_fmod_unsupported")
def _(bad):
    if bad:
        return nl.fmod(x(16, 8), 2), v(16, 8) % 2
    return nl.bitwise_and(x(16, 8, dt=I32), 1), v(16, 8) % 2


@book.breaks("nl.power_tile_tile")
def _(bad):
    exponent = 2.0 if bad else nl.full((16, 8), 2.0, dtype=nl.float32)
    return nl.power(x(16, 8), exponent), v(16, 8) ** 2


@book.breaks("nl.abs_max_min_gen4", on="trn1 trn2", elsewhere="trn3")
def _(bad):
    return (nl.abs_max if bad else nl.maximum)(x(16, 8), x(16, 8, at=1)), np.maximum(v(16, 8), v(16, 8, at=1))


@book.breaks("nl.abs_max_min_gen4", on="trn1 trn2", elsewhere="trn3")
def _(bad):
    return (nl.abs_min if bad else nl.minimum)(x(16, 8), x(16, 8, at=1)), np.minimum(v(16, 8), v(16, 8, at=1))


@book.breaks("nl.rsqrt_no_psum")
def _(bad):
    four = nl.ndarray((16, 8), dtype=nl.float32, buffer=PSUM if bad else SBUF)
    nisa.memset(dst=four, value=4.0)
    return nl.rsqrt(four), 0.5


@book.breaks("nl.reduce_axes")
def _(bad):
    return nl.sum(x(16, 8), axis=0 if bad else 1), v(16, 8).sum(1, keepdims=True)


@book.breaks("nl.reduce_axes")
def _(bad):
    return nl.max(x(16, 3, 4), axis=[1] if bad else [2]), v(16, 3, 4).max(2)


@book.breaks("nl.reduce_axes")
def _(bad):
    return nl.min(x(16, 3, 4), axis=[1, 3] if bad else [1, 2]), v(16, 12).min(1, keepdims=True)


@book.breaks("nl.reduce_axes")
def _(bad):
    ones = nl.ones((16, 8), dtype=nl.float32)
    return nl.softmax(ones, axis=0 if bad else 1), 0.125


@book.breaks("nl.reduce_axes")
def _(bad):
    ones = nl.ones((16, 8), dtype=nl.float32)
    return nl.rms_norm(ones, ones, axis=2 if bad else 1, n=8, epsilon=0.0), 1


@book.breaks("nl.transpose_2d")
def _(bad):
    return nl.transpose(x(16, 2, 4) if bad else x(16, 8)), v(16, 8).T


@book.breaks("nl.matmul_transpose_x")
def _(bad):
    return nl.matmul(x(32, 16), x(32, 8, at=1), transpose_x=not bad), v(32, 16).T @ v(32, 8, at=1)


@book.breaks("nl.matmul_tiles")
def _(bad):
    return nl.matmul(x(32, 129 if bad else 128), x(32, 8, at=1), transpose_x=True), v(32, 128).T @ v(32, 8, at=1)


@book.breaks("nl.matmul_tiles")
def _(bad):
    y = x(32, 8, at=1, buffer=PSUM if bad else SBUF)
    return nl.matmul(x(32, 16), y, transpose_x=True), v(32, 16).T @ v(32, 8, at=1)


@book.breaks("kernel.operand_type")
def _(bad):
    return nl.exp(hx(16, 8)) if bad else nl.square(x(16, 8)), v(16, 8) ** 2


@book.breaks("kernel.operand_type", error=NkiTypeError)
def _(bad):
    t = sb(16, 8)
    nisa.tensor_copy(dst=t, src=v(16, 8) if bad else x(16, 8))
    return t, v(16, 8)


@book.breaks("kernel.operand_type", error=NkiTypeError)
def _(bad):
    return nl.add(x(16, 8), "1" if bad else 1), v(16, 8) + 1


@book.breaks("kernel.operand_type", error=NkiTypeError)
def _(bad):
    t = sb(16, 8)
    nisa.memset(dst=t, value="0" if bad else 0)
    return t, 0


@book.breaks("kernel.operand_type", error=NkiTypeError)
def _(bad):
    t = sb(16, 8)
    nisa.memset(dst=t, value=None if bad else 0)
    return t, 0


@book.breaks("kernel.operand_type", error=NkiTypeError)
def _(bad):
    t, none = sb(16, 8), None if bad else 0.0
    nisa.scalar_tensor_tensor(dst=t, data=x(16, 8), op0=nl.add, operand0=none, op1=nl.add, operand1=x(16, 8))
    return t, 2 * v(16, 8)


@book.breaks("kernel.operator", error=NkiTypeError)
def _(bad):
    t = sb(16, 8)
    nisa.tensor_tensor(dst=t, data1=x(16, 8), data2=x(16, 8, at=1), op=np.add if bad else nl.add)
    return t, v(16, 8) + v(16, 8, at=1)


@book.breaks("kernel.operator", error=NkiTypeError)
def _(bad):
    t = sb(16, 8)
    nisa.activation(dst=t, op="square" if bad else nl.square, data=x(16, 8))
    return t, v(16, 8) ** 2


@book.breaks("kernel.operator", error=NkiTypeError)
def _(bad):
    t = sb(16, 1)
    nisa.tensor_reduce(dst=t, op=nl.max if bad else nl.maximum, data=x(16, 8), axis=1)
    return t, v(16, 8).max(1, keepdims=True)


@book.breaks("kernel.operator", error=NkiTypeError)
def _(bad):
    t, one = sb(16, 8), sb(16, 1)
    nisa.memset(dst=one, value=1.0)
    nisa.activation(dst=t, op=None if bad else nl.square, data=x(16, 8), bias=one)
    return t, (v(16, 8) + 1) ** 2


@book.breaks("kernel.unexpected_kwargs", error=NkiTypeError)
def _(bad):
    t, more = sb(16, 8), {"mask": True} if bad else {}
    nisa.tensor_copy(dst=t, src=x(16, 8), **more)
    return t, v(16, 8)


@book.breaks("kernel.unexpected_kwargs", error=NkiTypeError)
def _(bad):
    t, more = sb(16, 8), {"dtype": nl.float32} if bad else {}
    nisa.memset(dst=t, value=1.0, **more)
    return t, 1


@book.breaks("kernel.unexpected_kwargs", error=NkiTypeError)
def _(bad):
    p, more = ps(16, 8), {"transpose_moving": True} if bad else {}
    nisa.nc_matmul(dst=p, stationary=x(32, 16), moving=x(32, 8, at=1), **more)
    return p, v(32, 16).T @ v(32, 8, at=1)


@book.breaks("lang.isa_dst_required", error=NkiTypeError)
def _(bad):
    t = sb(16, 8)
    if bad:
        nisa.tensor_tensor(data1=x(16, 8), data2=x(16, 8), op=nl.add)
    nisa.tensor_copy(dst=t, src=x(16, 8))
    return t, v(16, 8)


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)


def test_a_store_of_every_kind_of_tile():
    """The helper of the rule tests itself: SBUF and PSUM tiles come out as they went in."""

    def kernel(a):
        p = ps(*a.shape)
        nisa.tensor_copy(dst=p, src=nl.load(a))
        return st(p)

    np.testing.assert_array_equal(nki_sim.run(kernel, v(8, 8).copy()).result, v(8, 8))

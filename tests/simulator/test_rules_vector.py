"""Limits of the element-wise, reducing and scanning instructions of the Vector Engine."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
from kernels import ps, sb
from rulebook import Book, hx, v, x

book = Book()
NkiTypeError = nki_sim.errors.NkiTypeError
I32, U8, F32, PSUM, SBUF = nl.int32, nl.uint8, nl.float32, nl.psum, nl.sbuf
engine, reduce_cmd = nisa.engine, nisa.reduce_cmd


# --- tensor_copy, memset ---------------------------------------------------------------------------------------------


@book.breaks("tensor_copy.buffers")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_copy(dst=t, src=hx(16, 8) if bad else x(16, 8, buffer=PSUM))
    return t, v(16, 8)


@book.breaks("tensor_copy.engines")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_copy(dst=t, src=x(16, 8), engine=engine.tensor if bad else engine.gpsimd)
    return t, v(16, 8)


@book.breaks("kernel.enum_members", error=NkiTypeError)
def _(bad):
    t = sb(16, 8)
    nisa.tensor_copy(dst=t, src=x(16, 8), engine="vector" if bad else engine.vector)
    return t, v(16, 8)


@book.breaks("tensor_copy.gen2_no_scalar", on="trn1", elsewhere="trn2 trn3")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_copy(dst=t, src=x(16, 8), engine=engine.scalar if bad else engine.vector)
    return t, v(16, 8)


@book.breaks("tensor_copy.gpsimd_no_psum")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_copy(dst=t, src=x(16, 8, buffer=PSUM if bad else SBUF), engine=engine.gpsimd)
    return t, v(16, 8)


@book.breaks("tensor_copy.shape")
def _(bad):
    t = sb(16, 9 if bad else 8)
    nisa.tensor_copy(dst=t, src=x(16, 2, 4))
    return t, v(16, 8)


@book.breaks("tensor_copy.shape")
def _(bad):
    big, t = x(64, 4, 8), sb(64, 8)
    nisa.tensor_copy(dst=t, src=big[2, :, :] if bad else big[:, 2, :])
    return t, v(64, 4, 8)[:, 2]


@book.breaks("memset.buffers")
def _(bad):
    t = nl.ndarray((16, 8), dtype=F32, buffer=nl.shared_hbm if bad else SBUF)
    nisa.memset(dst=t, value=1.0)
    return t, 1.0


@book.breaks("memset.engines")
def _(bad):
    t = sb(16, 8)
    nisa.memset(dst=t, value=1.0, engine=engine.scalar if bad else engine.gpsimd)
    return t, 1.0


@book.breaks("memset.const")
def _(bad):
    t = sb(16, 8)
    nisa.memset(dst=t, value=one(16, 1) if bad else np.float32(1))
    return t, 1.0


@book.breaks("memset.type_match")
def _(bad):
    t = sb(16, 8, dt=I32)
    nisa.memset(dst=t, value=2.0 if bad else 2)
    return t, 2


@book.breaks("memset.type_match")
def _(bad):
    t = sb(16, 8, dt=U8 if bad else nl.bfloat16)
    nisa.memset(dst=t, value=0.5)
    return t, 0.5


@book.breaks("memset.x4_zero", on="trn3")
def _(bad):
    t = sb(16, 8, dt=nl.float4_e2m1fn_x4)
    nisa.memset(dst=t, value=0)
    nisa.memset(dst=t, value=1 if bad else 0)
    return t.view(nl.uint16), 0


# --- tensor_copy_predicated ------------------------------------------------------------------------------------------


def odd(*shape, dt=U8, buffer=SBUF):
    """A predicate: the lowest bit of v(shape)."""
    made, bits = sb(*shape, dt=dt), x(*shape, dt=dt)
    nisa.tensor_scalar(dst=made, data=bits, op0=nl.bitwise_and, operand0=1)
    if buffer is PSUM:
        moved = ps(*shape, dt=dt)
        nisa.tensor_copy(dst=moved, src=made)
        return moved
    return made


def chosen(*shape):
    return np.where(v(*shape) % 2 == 1, v(*shape, at=1), v(*shape, at=2))


@book.breaks("tensor_copy_predicated.buffers")
def _(bad):
    t = x(16, 8, at=2)
    nisa.tensor_copy_predicated(dst=t, src=hx(16, 8, at=1) if bad else x(16, 8, at=1), predicate=odd(16, 8))
    return t, chosen(16, 8)


@book.breaks("tcp.shape")
def _(bad):
    t = x(16, 8, at=2)
    nisa.tensor_copy_predicated(dst=t, src=x(16, 2, 4, at=1), predicate=odd(16, 1) if bad else odd(16, 8))
    return t, chosen(16, 8)


@book.breaks("tcp.not_both_psum")
def _(bad):
    t = x(16, 8, at=2)
    src, predicate = x(16, 8, at=1, buffer=PSUM), odd(16, 8, buffer=PSUM if bad else SBUF)
    nisa.tensor_copy_predicated(dst=t, src=src, predicate=predicate)
    return t, chosen(16, 8)


@book.breaks("tcp.predicate_dtype")
def _(bad):
    t = x(16, 8, at=2)
    nisa.tensor_copy_predicated(dst=t, src=x(16, 8, at=1), predicate=odd(16, 8, dt=I32 if bad else nl.uint32))
    return t, chosen(16, 8)


@book.breaks("tcp.src_dst_dtype")
def _(bad):
    t, dt = x(16, 8, at=2, dt=nl.bfloat16), F32 if bad else nl.bfloat16
    nisa.tensor_copy_predicated(dst=t, src=x(16, 8, at=1, dt=dt), predicate=odd(16, 8))
    return t, chosen(16, 8)


# --- tensor_tensor ---------------------------------------------------------------------------------------------------


@book.breaks("tensor_tensor.buffers")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_tensor(dst=t, data1=x(16, 8), data2=hx(16, 8, at=1) if bad else x(16, 8, at=1), op=nl.add)
    return t, v(16, 8) + v(16, 8, at=1)


@book.breaks("tensor_tensor.op")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_tensor(dst=t, data1=x(16, 8), data2=x(16, 8, at=1), op=nl.exp if bad else nl.maximum)
    return t, np.maximum(v(16, 8), v(16, 8, at=1))


@book.breaks("tensor_tensor.op", on="trn1 trn2", elsewhere="trn3")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_tensor(dst=t, data1=x(16, 8), data2=x(16, 8, at=1), op=nl.abs_max if bad else nl.maximum)
    return t, np.maximum(v(16, 8), v(16, 8, at=1))


@book.breaks("tensor_tensor.engines")
def _(bad):
    t, where = sb(16, 8), engine.scalar if bad else engine.gpsimd
    nisa.tensor_tensor(dst=t, data1=x(16, 8), data2=x(16, 8, at=1), op=nl.add, engine=where)
    return t, v(16, 8) + v(16, 8, at=1)


@book.breaks("tensor_tensor.shape")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_tensor(dst=t, data1=x(16, 8), data2=x(16, 1 if bad else 8, at=1), op=nl.multiply)
    return t, v(16, 8) * v(16, 8, at=1)


@book.breaks("tensor_tensor.shape")
def _(bad):
    t = sb(32, 8)
    nisa.tensor_tensor(dst=t, data1=x(32, 8), data2=x(16 if bad else 32, 8, at=1), op=nl.multiply)
    return t, v(32, 8) * v(32, 8, at=1)


@book.breaks("tensor_tensor.not_both_psum")
def _(bad):
    t, second = sb(16, 8), x(16, 8, at=1, buffer=PSUM if bad else SBUF)
    nisa.tensor_tensor(dst=t, data1=x(16, 8, buffer=PSUM), data2=second, op=nl.add)
    return t, v(16, 8) + v(16, 8, at=1)


@book.breaks("tensor_tensor.power_no_psum")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_tensor(dst=t, data1=x(16, 8), data2=x(16, 8, at=1, buffer=PSUM if bad else SBUF), op=nl.power)
    return t, v(16, 8) ** v(16, 8, at=1)


@book.breaks("tensor_tensor.bitvec_int")
def _(bad):
    t = sb(16, 8, dt=I32)
    nisa.tensor_tensor(dst=t, data1=x(16, 8, dt=I32), data2=x(16, 8, at=1, dt=F32 if bad else I32), op=nl.bitwise_or)
    return t, v(16, 8).astype(int) | v(16, 8, at=1).astype(int)


@book.breaks("tensor_tensor.bitvec_int")
def _(bad):
    t = sb(16, 8, dt=F32 if bad else I32)
    nisa.tensor_tensor(dst=t, data1=x(16, 8, dt=I32), data2=x(16, 8, at=1, dt=I32), op=nl.bitwise_xor)
    return t, v(16, 8).astype(int) ^ v(16, 8, at=1).astype(int)


# --- tensor_scalar ---------------------------------------------------------------------------------------------------


@book.breaks("tensor_scalar.buffers")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar(dst=t, data=x(16, 8), op0=nl.add, operand0=hx(16, 1, at=1) if bad else x(16, 1, at=1))
    return t, v(16, 8) + v(16, 1, at=1)


@book.breaks("tensor_scalar.engines")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar(dst=t, data=x(16, 8), op0=nl.add, operand0=3.0, engine=engine.tensor if bad else engine.vector)
    return t, v(16, 8) + 3


@book.breaks("tensor_scalar.op")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar(dst=t, data=x(16, 8), op0=nl.tanh if bad else nl.subtract, operand0=None if bad else 3.0)
    return t, v(16, 8) - 3


@book.breaks("tensor_scalar.op", on="trn1 trn2", elsewhere="trn3")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar(dst=t, data=x(16, 8), op0=nl.relu if bad else nl.abs, operand0=None)
    return t, v(16, 8)


@book.breaks("tensor_scalar.shape")
def _(bad):
    t = sb(16, 8 if bad else 12)
    nisa.tensor_scalar(dst=t, data=x(16, 3, 4), op0=nl.multiply, operand0=2)
    return t, 2 * v(16, 12)


@book.breaks("tensor_scalar.operand_shape")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar(dst=t, data=x(16, 8), op0=nl.add, operand0=x(16, 8 if bad else 1, at=1))
    return t, v(16, 8) + v(16, 1, at=1)


@book.breaks("tensor_scalar.operand_shape")
def _(bad):
    t = sb(16, 8)
    column = x(1 if bad else 16, 1, at=1)
    nisa.tensor_scalar(dst=t, data=x(16, 8), op0=nl.add, operand0=1.0, op1=nl.multiply, operand1=column)
    return t, (v(16, 8) + 1) * v(16, 1, at=1)


@book.breaks("tensor_scalar.op1_none")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar(dst=t, data=x(16, 8), op0=nl.add, operand0=1.0, operand1=2.0 if bad else None)
    return t, v(16, 8) + 1


@book.breaks("tensor_scalar.op1_none")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar(dst=t, data=x(16, 8), op0=nl.add, operand0=1.0, op1=nl.multiply, operand1=None if bad else 2)
    return t, (v(16, 8) + 1) * 2


@book.breaks("tensor_scalar.unary_operand")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar(dst=t, data=x(16, 8), op0=nl.abs, operand0=1.0 if bad else 0.0)
    return t, v(16, 8)


@book.breaks("tensor_scalar.unary_operand")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar(dst=t, data=x(16, 8), op0=nl.abs, operand0=0.0)
    nisa.tensor_scalar(dst=t, data=x(16, 8), op0=nl.abs, operand0=2.0 if bad else 0.0)
    return t, v(16, 8)


@book.breaks("tensor_scalar.unary_operand")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar(dst=t, data=x(16, 8), op0=nl.add, operand0=None if bad else 0)
    return t, v(16, 8)


@book.breaks("tensor_scalar.same_class")
def _(bad):
    t, op1 = sb(16, 8, dt=I32), nl.add if bad else nl.bitwise_or
    nisa.tensor_scalar(dst=t, data=x(16, 8, dt=I32), op0=nl.bitwise_and, operand0=6, op1=op1, operand1=8)
    return t, (v(16, 8).astype(int) & 6) | 8


@book.breaks("tensor_scalar.bitvec_vector_int")
def _(bad):
    t = sb(16, 8, dt=I32)
    nisa.tensor_scalar(dst=t, data=x(16, 8, dt=F32 if bad else I32), op0=nl.left_shift, operand0=2)
    return t, v(16, 8) * 4


@book.breaks("tensor_scalar.bitvec_vector_int")
def _(bad):
    t, where = sb(16, 8, dt=I32), engine.scalar if bad else engine.vector
    nisa.tensor_scalar(dst=t, data=x(16, 8, dt=I32), op0=nl.right_shift, operand0=1, engine=where)
    return t, v(16, 8) // 2


@book.breaks("tensor_scalar.bitvec_vector_int")
def _(bad):
    t = sb(16, 8, dt=I32)
    nisa.tensor_scalar(dst=t, data=x(16, 8, dt=I32), op0=nl.bitwise_and, operand0=1.0 if bad else 1)
    return t, v(16, 8) % 2


@book.breaks("tensor_scalar.arith_operand_fp32")
def _(bad):
    t, column = sb(16, 8), x(16, 1, at=1, dt=nl.bfloat16 if bad else F32)
    nisa.tensor_scalar(dst=t, data=x(16, 8), op0=nl.add, operand0=column)
    return t, v(16, 8) + v(16, 1, at=1)


@book.breaks("tensor_scalar.arith_operand_fp32")
def _(bad):
    t, column = sb(16, 8, dt=I32), x(16, 1, at=1, dt=I32)
    nisa.tensor_scalar(dst=t, data=x(16, 8, dt=I32), op0=nl.maximum if bad else nl.add, operand0=column)
    return t, v(16, 8) + v(16, 1, at=1)


@book.breaks("tensor_scalar.scalar_engine_combos", on="trn2", elsewhere="trn3")
def _(bad):
    t, op1 = sb(16, 8), nl.subtract if bad else nl.add
    nisa.tensor_scalar(
        dst=t, data=x(16, 8), op0=nl.multiply, operand0=2.0, op1=op1, operand1=-1.0 if not bad else 1.0,
        engine=engine.scalar,
    )  # fmt: skip
    return t, 2 * v(16, 8) - 1


@book.breaks("tensor_scalar.scalar_engine_combos", on="trn2")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_scalar(dst=t, data=x(16, 8), op0=nl.maximum if bad else nl.add, operand0=8.0, engine=engine.scalar)
    return t, v(16, 8) + 8


@book.breaks("tensor_scalar.gen2_no_scalar", on="trn1", elsewhere="trn2 trn3")
def _(bad):
    t, where = sb(16, 8), engine.scalar if bad else engine.vector
    nisa.tensor_scalar(dst=t, data=x(16, 8), op0=nl.add, operand0=1.0, engine=where)
    return t, v(16, 8) + 1


@book.breaks("tensor_scalar.gpsimd_rsqrt_only")
def _(bad):
    t = sb(16, 8)
    nisa.memset(dst=t, value=4.0)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add if bad else nl.rsqrt, operand0=0.0, engine=engine.gpsimd)
    return t, 0.5


# --- scalar_tensor_tensor --------------------------------------------------------------------------------------------


@book.breaks("scalar_tensor_tensor.buffers")
def _(bad):
    t, other = sb(16, 8), hx(16, 8, at=1) if bad else x(16, 8, at=1)
    nisa.scalar_tensor_tensor(dst=t, data=x(16, 8), op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=other)
    return t, 2 * v(16, 8) + v(16, 8, at=1)


@book.breaks("scalar_tensor_tensor.arith_only")
def _(bad):
    t, op = sb(16, 8), nl.bitwise_or if bad else nl.subtract
    nisa.scalar_tensor_tensor(dst=t, data=x(16, 8), op0=nl.multiply, operand0=2.0, op1=op, operand1=x(16, 8, at=1))
    return t, 2 * v(16, 8) - v(16, 8, at=1)


@book.breaks("scalar_tensor_tensor.shape")
def _(bad):
    t, other = sb(16, 8), x(16, 4 if bad else 8, at=1)
    nisa.scalar_tensor_tensor(dst=t, data=x(16, 8), op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=other)
    return t, 2 * v(16, 8) + v(16, 8, at=1)


@book.breaks("scalar_tensor_tensor.operand0")
def _(bad):
    t, column = sb(16, 8), x(16, 8 if bad else 1, at=2)
    nisa.scalar_tensor_tensor(dst=t, data=x(16, 8), op0=nl.multiply, operand0=column, op1=nl.add, operand1=x(16, 8, at=1))
    return t, v(16, 1, at=2) * v(16, 8) + v(16, 8, at=1)


@book.breaks("scalar_tensor_tensor.not_both_psum")
def _(bad):
    t, other = sb(16, 8), x(16, 8, at=1, buffer=PSUM if bad else SBUF)
    nisa.scalar_tensor_tensor(dst=t, data=x(16, 8, buffer=PSUM), op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=other)
    return t, 2 * v(16, 8) + v(16, 8, at=1)


# --- tensor_reduce ---------------------------------------------------------------------------------------------------


@book.breaks("tensor_reduce.buffers")
def _(bad):
    t = sb(16, 1)
    nisa.tensor_reduce(dst=t, op=nl.add, data=hx(16, 8) if bad else x(16, 8), axis=1)
    return t, v(16, 8).sum(1, keepdims=True)


@book.breaks("tensor_reduce.op")
def _(bad):
    t = sb(16, 1)
    nisa.tensor_reduce(dst=t, op=nl.power if bad else nl.maximum, data=x(16, 8), axis=1)
    return t, v(16, 8).max(1, keepdims=True)


@book.breaks("tensor_reduce.op")
def _(bad):
    t = sb(16, 1)
    nisa.tensor_reduce(dst=t, op=nl.less if bad else nl.minimum, data=x(16, 8), axis=1)
    return t, v(16, 8).min(1, keepdims=True)


@book.breaks("tensor_reduce.no_axis0")
def _(bad):
    t = sb(16, 1)
    nisa.tensor_reduce(dst=t, op=nl.add, data=x(16, 8), axis=(0,) if bad else (1,))
    return t, v(16, 8).sum(1, keepdims=True)


@book.breaks("tensor_reduce.axis_absolute")
def _(bad):
    t = sb(16, 1)
    nisa.tensor_reduce(dst=t, op=nl.add, data=x(16, 8), axis=2 if bad else -1)
    return t, v(16, 8).sum(1, keepdims=True)


@book.breaks("tensor_reduce.axis_suffix")
def _(bad):
    t = sb(16, 8 if bad else 4)
    nisa.tensor_reduce(dst=t, op=nl.add, data=x(16, 4, 8), axis=(1,) if bad else (2,))
    return t, v(16, 4, 8).sum(2)


@book.breaks("tensor_reduce.axis_suffix")
def _(bad):
    t = sb(16, 3)
    axis = (1, 3) if bad else (2, 3)
    nisa.tensor_reduce(dst=t, op=nl.add, data=x(16, 3, 4, 2), axis=axis)
    return t, v(16, 3, 4, 2).sum((2, 3))


@book.breaks("tensor_reduce.partition")
def _(bad):
    t = sb(8 if bad else 16, 1)
    nisa.tensor_reduce(dst=t, op=nl.add, data=x(16, 8), axis=1)
    return t, v(16, 8).sum(1, keepdims=True)


@book.breaks("tensor_reduce.dst_elems")
def _(bad):
    t = sb(16, 4 if bad else 1)
    nisa.tensor_reduce(dst=t, op=nl.add, data=x(16, 4, 8), axis=(1, 2))
    return t, v(16, 32).sum(1, keepdims=True)


@book.breaks("tensor_reduce.negate_arith")
def _(bad):
    t = sb(16, 1, dt=I32)
    nisa.tensor_reduce(dst=t, op=nl.bitwise_or, data=x(16, 8, dt=I32), axis=1, negate=bad)
    return t, np.bitwise_or.reduce(v(16, 8).astype(int), 1, keepdims=True)


@book.breaks("tensor_reduce.bitvec_int")
def _(bad):
    t = sb(16, 1, dt=I32)
    nisa.tensor_reduce(dst=t, op=nl.bitwise_xor, data=x(16, 8, dt=F32 if bad else I32), axis=1)
    return t, np.bitwise_xor.reduce(v(16, 8).astype(int), 1, keepdims=True)


# --- tensor_scalar_reduce --------------------------------------------------------------------------------------------


@book.breaks("tensor_scalar_reduce.buffers")
def _(bad):
    t, total = sb(16, 8), sb(16, 1)
    data = hx(16, 8) if bad else x(16, 8)
    nisa.tensor_scalar_reduce(dst=t, data=data, op0=nl.add, operand0=1.0, reduce_op=nl.add, reduce_res=total)
    return total, (v(16, 8) + 1).sum(1, keepdims=True)


@book.breaks("tensor_scalar_reduce.reduce_res")
def _(bad):
    t, total = sb(16, 8), nl.ndarray((16, 1), dtype=F32, buffer=nl.shared_hbm if bad else SBUF)
    nisa.tensor_scalar_reduce(dst=t, data=x(16, 8), op0=nl.add, operand0=1.0, reduce_op=nl.add, reduce_res=total)
    return total, (v(16, 8) + 1).sum(1, keepdims=True)


@book.breaks("tensor_scalar_reduce.reduce_res")
def _(bad):
    t, total = sb(16, 8), sb(16, 2 if bad else 1)
    nisa.tensor_scalar_reduce(dst=t, data=x(16, 8), op0=nl.add, operand0=1.0, reduce_op=nl.add, reduce_res=total)
    return total, (v(16, 8) + 1).sum(1, keepdims=True)


@book.breaks("tensor_scalar_reduce.op0")
def _(bad):
    t, total, dt = sb(16, 8, dt=I32), sb(16, 1), I32
    op, operand = (nl.bitwise_and, 1) if bad else (nl.minimum, 1.0)
    nisa.tensor_scalar_reduce(dst=t, data=x(16, 8, dt=dt), op0=op, operand0=operand, reduce_op=nl.add, reduce_res=total)
    return total, np.minimum(v(16, 8), 1).sum(1, keepdims=True)


@book.breaks("tensor_scalar_reduce.reduce_op")
def _(bad):
    t, most = sb(16, 8), sb(16, 1)
    op = nl.logical_and if bad else nl.maximum
    nisa.tensor_scalar_reduce(dst=t, data=x(16, 8), op0=nl.add, operand0=1.0, reduce_op=op, reduce_res=most)
    return most, (v(16, 8) + 1).max(1, keepdims=True)


@book.breaks("tensor_scalar_reduce.reverse0")
def _(bad):
    t, total = sb(16, 8), sb(16, 1)
    nisa.tensor_scalar_reduce(
        dst=t, data=x(16, 8), op0=nl.subtract, operand0=1.0, reduce_op=nl.add, reduce_res=total, reverse0=bad
    )
    return total, (v(16, 8) - 1).sum(1, keepdims=True)


@book.breaks("tensor_scalar_reduce.unary")
def _(bad):
    t, total = sb(16, 8), sb(16, 1)
    nisa.tensor_scalar_reduce(
        dst=t, data=x(16, 8), op0=nl.abs, operand0=2.0 if bad else None, reduce_op=nl.add, reduce_res=total
    )
    return total, v(16, 8).sum(1, keepdims=True)


@book.breaks("tensor_scalar_reduce.unary")
def _(bad):
    t, total = sb(16, 8), sb(16, 1)
    for operand in (0.0, 2.0 if bad else 0.0):
        nisa.tensor_scalar_reduce(dst=t, data=x(16, 8), op0=nl.abs, operand0=operand, reduce_op=nl.add, reduce_res=total)
    return total, v(16, 8).sum(1, keepdims=True)


@book.breaks("tensor_scalar_reduce.shape")
def _(bad):
    t, total = sb(16, 7 if bad else 8), sb(16, 1)
    nisa.tensor_scalar_reduce(dst=t, data=x(16, 8), op0=nl.add, operand0=1.0, reduce_op=nl.add, reduce_res=total)
    return total, (v(16, 8) + 1).sum(1, keepdims=True)


@book.breaks("tensor_scalar_reduce.reduce_cmd")
def _(bad):
    t, total = sb(16, 8), sb(16, 1)
    command = reduce_cmd.reset if bad else reduce_cmd.reset_reduce
    nisa.tensor_scalar_reduce(
        dst=t, data=x(16, 8), op0=nl.add, operand0=1.0, reduce_op=nl.add, reduce_res=total, reduce_cmd=command
    )
    return total, (v(16, 8) + 1).sum(1, keepdims=True)


@book.breaks("tensor_scalar_reduce.reduce_init")
def _(bad):
    t, total = sb(16, 8), sb(16, 1)
    nisa.tensor_scalar_reduce(
        dst=t, data=x(16, 8), op0=nl.add, operand0=1.0, reduce_op=nl.add, reduce_res=total,
        reduce_cmd=reduce_cmd.load_reduce, reduce_init=None if bad else 10.0,
    )  # fmt: skip
    return total, (v(16, 8) + 1).sum(1, keepdims=True) + 10


@book.breaks("vector.accumulator_idle_dirty")
def _(bad):
    t, total = sb(16, 8), sb(16, 1)
    command = reduce_cmd.reduce if bad else reduce_cmd.reset_reduce
    nisa.tensor_scalar_reduce(
        dst=t, data=x(16, 8), op0=nl.add, operand0=1.0, reduce_op=nl.add, reduce_res=total, reduce_cmd=command
    )
    return total, (v(16, 8) + 1).sum(1, keepdims=True)


@book.breaks("vector.accumulators_shared")
def _(bad):
    t, total = sb(16, 8), sb(16, 1)
    nisa.select_reduce(dst=t, predicate=odd(16, 8), on_true=x(16, 8), on_false=0.0, reduce_cmd=reduce_cmd.reset_reduce)
    command = reduce_cmd.reduce if bad else reduce_cmd.reset_reduce
    nisa.tensor_scalar_reduce(
        dst=t, data=x(16, 8), op0=nl.add, operand0=1.0, reduce_op=nl.add, reduce_res=total, reduce_cmd=command
    )
    return total, (v(16, 8) + 1).sum(1, keepdims=True)


# --- select_reduce ---------------------------------------------------------------------------------------------------


@book.breaks("select_reduce.buffers")
def _(bad):
    t, on_true = sb(16, 8), hx(16, 8, at=1) if bad else x(16, 8, at=1)
    nisa.select_reduce(dst=t, predicate=odd(16, 8), on_true=on_true, on_false=9.0)
    return t, np.where(v(16, 8) % 2 == 1, v(16, 8, at=1), 9)


@book.breaks("select_reduce.shape")
def _(bad):
    t = sb(16, 8)
    nisa.select_reduce(dst=t, predicate=odd(16, 2 if bad else 8), on_true=x(16, 8, at=1), on_false=9.0)
    return t, np.where(v(16, 8) % 2 == 1, v(16, 8, at=1), 9)


@book.breaks("select_reduce.not_both_psum")
def _(bad):
    t, predicate = sb(16, 8), odd(16, 8, buffer=PSUM if bad else SBUF)
    nisa.select_reduce(dst=t, predicate=predicate, on_true=x(16, 8, at=1, buffer=PSUM), on_false=9.0)
    return t, np.where(v(16, 8) % 2 == 1, v(16, 8, at=1), 9)


@book.breaks("select_reduce.on_true_dtype")
def _(bad):
    t, on_true = sb(16, 8), x(16, 8, at=1, dt=I32 if bad else nl.int16)
    nisa.select_reduce(dst=t, predicate=odd(16, 8), on_true=on_true, on_false=9.0)
    return t, np.where(v(16, 8) % 2 == 1, v(16, 8, at=1), 9)


@book.breaks("select_reduce.on_false")
def _(bad):
    t, on_false = sb(16, 8), x(16, 8 if bad else 1, at=2)
    nisa.select_reduce(dst=t, predicate=odd(16, 8), on_true=x(16, 8, at=1), on_false=on_false)
    return t, np.where(v(16, 8) % 2 == 1, v(16, 8, at=1), v(16, 1, at=2))


@book.breaks("select_reduce.predicate_dtype")
def _(bad):
    t = sb(16, 8)
    nisa.select_reduce(dst=t, predicate=odd(16, 8, dt=nl.uint32 if bad else nl.uint16), on_true=x(16, 8, at=1), on_false=9.0)
    return t, np.where(v(16, 8) % 2 == 1, v(16, 8, at=1), 9)


@book.breaks("select_reduce.reduce_res")
def _(bad):
    t, most = sb(16, 8), sb(16, 1, dt=nl.int16 if bad else F32)
    nisa.select_reduce(
        dst=t, predicate=odd(16, 8), on_true=x(16, 8, at=1), on_false=0.0, reduce_res=most,
        reduce_cmd=reduce_cmd.reset_reduce,
    )  # fmt: skip
    return most, np.where(v(16, 8) % 2 == 1, v(16, 8, at=1), 0).max(1, keepdims=True)


@book.breaks("select_reduce.reduce_op")
def _(bad):
    t, most = sb(16, 8), sb(16, 1)
    nisa.select_reduce(
        dst=t, predicate=odd(16, 8), on_true=x(16, 8, at=1), on_false=0.0, reduce_res=most,
        reduce_cmd=reduce_cmd.reset_reduce, reduce_op=nl.add if bad else nl.maximum,
    )  # fmt: skip
    return most, np.where(v(16, 8) % 2 == 1, v(16, 8, at=1), 0).max(1, keepdims=True)


@book.breaks("select_reduce.reduce_cmd")
def _(bad):
    t = sb(16, 8)
    nisa.select_reduce(
        dst=t, predicate=odd(16, 8), on_true=x(16, 8, at=1), on_false=9.0,
        reduce_cmd=reduce_cmd.load_reduce if bad else reduce_cmd.idle,
    )  # fmt: skip
    return t, np.where(v(16, 8) % 2 == 1, v(16, 8, at=1), 9)


@book.breaks("kernel.enum_members", error=NkiTypeError)
def _(bad):
    t = sb(16, 8)
    nisa.select_reduce(
        dst=t, predicate=odd(16, 8), on_true=x(16, 8, at=1), on_false=9.0,
        reduce_cmd=7 if bad else reduce_cmd.idle,
    )  # fmt: skip
    return t, np.where(v(16, 8) % 2 == 1, v(16, 8, at=1), 9)


# --- scan, batch norm, shuffle, reciprocal ---------------------------------------------------------------------------


def summed(*shape):
    return np.cumsum(v(*shape, at=1), 1)


def one(*shape, buffer=SBUF):
    made = nl.ndarray(shape, dtype=F32, buffer=buffer)
    nisa.memset(dst=made, value=1.0)
    return made


@book.breaks("tensor_tensor_scan.buffers")
def _(bad):
    t, data1 = sb(16, 8), hx(16, 8, at=1) if bad else x(16, 8, at=1)
    nisa.tensor_tensor_scan(dst=t, data0=one(16, 8), data1=data1, initial=0.0, op0=nl.multiply, op1=nl.add)
    return t, summed(16, 8)


@book.breaks("tensor_tensor_scan.ops")
def _(bad):
    t, op0 = sb(16, 8), nl.bitwise_and if bad else nl.multiply
    nisa.tensor_tensor_scan(dst=t, data0=one(16, 8), data1=x(16, 8, at=1), initial=0.0, op0=op0, op1=nl.add)
    return t, summed(16, 8)


@book.breaks("tensor_tensor_scan.ops")
def _(bad):
    t, op1 = sb(16, 8), nl.abs if bad else nl.add
    nisa.tensor_tensor_scan(dst=t, data0=one(16, 8), data1=x(16, 8, at=1), initial=0.0, op0=nl.multiply, op1=op1)
    return t, summed(16, 8)


@book.breaks("tensor_tensor_scan.shape")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_tensor_scan(
        dst=t, data0=one(16, 1 if bad else 8), data1=x(16, 8, at=1), initial=0.0, op0=nl.multiply, op1=nl.add
    )
    return t, summed(16, 8)


@book.breaks("tensor_tensor_scan.initial")
def _(bad):
    t, first = sb(16, 8), x(16, 2 if bad else 1)
    nisa.tensor_tensor_scan(dst=t, data0=one(16, 8), data1=x(16, 8, at=1), initial=first, op0=nl.multiply, op1=nl.add)
    return t, summed(16, 8) + v(16, 1)


@book.breaks("tensor_tensor_scan.not_both_psum")
def _(bad):
    t, data1 = sb(16, 8), x(16, 8, at=1, buffer=PSUM if bad else SBUF)
    nisa.tensor_tensor_scan(dst=t, data0=one(16, 8, buffer=PSUM), data1=data1, initial=0.0, op0=nl.multiply, op1=nl.add)
    return t, summed(16, 8)


@book.breaks("bn_stats.buffers")
def _(bad):
    t = sb(16, 6)
    nisa.bn_stats(dst=t, data=hx(16, 8) if bad else x(16, 8))
    return t[:, 0:1], 4


@book.breaks("bn_stats.free_le_512")
def _(bad):
    t = sb(16, 6)
    nisa.bn_stats(dst=t, data=x(16, 513 if bad else 512))
    return t[:, 0:1], 256


@book.breaks("bn_stats.dst_6")
def _(bad):
    t = sb(16, 2 if bad else 6)
    nisa.bn_stats(dst=t, data=x(16, 8))
    return t[:, 0:1], 4


@book.breaks("bn_aggr.buffers")
def _(bad):
    t, stats = sb(16, 2), one(16, 6)
    nisa.bn_aggr(dst=t, data=hx(16, 6) if bad else stats)
    return t, 1


@book.breaks("bn_aggr.data_mult_3")
def _(bad):
    t = sb(16, 2)
    nisa.bn_aggr(dst=t, data=one(16, 4 if bad else 3))
    return t, 1


@book.breaks("bn_aggr.dst_2")
def _(bad):
    t = sb(16, 3 if bad else 2)
    nisa.bn_aggr(dst=t, data=one(16, 6))
    return t, 1


FLIP = tuple(range(31, -1, -1))


@book.breaks("nc_stream_shuffle.buffers")
def _(bad):
    t = sb(32, 8)
    nisa.nc_stream_shuffle(dst=t, src=hx(32, 8) if bad else x(32, 8), shuffle_mask=FLIP)
    return t, v(32, 8)[::-1]


@book.breaks("nc_stream_shuffle.mask_32")
def _(bad):
    t = sb(32, 8)
    nisa.nc_stream_shuffle(dst=t, src=x(32, 8), shuffle_mask=FLIP[1:] if bad else FLIP)
    return t, v(32, 8)[::-1]


@book.breaks("nc_stream_shuffle.mask_32")
def _(bad):
    t = sb(32, 8)
    nisa.nc_stream_shuffle(dst=t, src=x(32, 8), shuffle_mask=[32 if bad else 31, *FLIP[1:]])
    return t, v(32, 8)[::-1]


@book.breaks("nc_stream_shuffle.dtype")
def _(bad):
    t = sb(32, 8, dt=nl.bfloat16)
    nisa.nc_stream_shuffle(dst=t, src=x(32, 8, dt=F32 if bad else nl.bfloat16), shuffle_mask=FLIP)
    return t, v(32, 8)[::-1]


@book.breaks("nc_stream_shuffle.free")
def _(bad):
    t = sb(32, 4 if bad else 8)
    nisa.nc_stream_shuffle(dst=t, src=x(32, 2, 4), shuffle_mask=FLIP)
    return t, v(32, 8)[::-1]


@book.breaks("nc_stream_shuffle.start_32")
def _(bad):
    t, start = sb(32, 8), 16 if bad else 32
    nisa.nc_stream_shuffle(dst=t, src=x(128, 8)[start : start + 32, :], shuffle_mask=FLIP)
    return t, v(128, 8)[32:64][::-1]


@book.breaks("nc_stream_shuffle.start_64")
def _(bad):
    t, start = sb(64, 8), 32 if bad else 64
    nisa.nc_stream_shuffle(dst=t, src=x(128, 8)[start : start + 64, :], shuffle_mask=FLIP)
    return t, v(128, 8)[64:].reshape(2, 32, 8)[:, ::-1].reshape(64, 8)


@book.breaks("nc_stream_shuffle.start_128")
def _(bad):
    t, start = sb(96, 8), 32 if bad else 0
    nisa.nc_stream_shuffle(dst=t, src=x(128, 8)[start : start + 96, :], shuffle_mask=FLIP)
    return t, v(128, 8)[:96].reshape(3, 32, 8)[:, ::-1].reshape(96, 8)


@book.breaks("nc_stream_shuffle.rows")
def _(bad):
    t = sb(32, 8)
    nisa.nc_stream_shuffle(dst=t, src=x(1, 8), shuffle_mask=(0,) * 31 + (1 if bad else 0,))
    return t, v(1, 8)


@book.breaks("reciprocal.buffers")
def _(bad):
    t = sb(16, 8)
    nisa.reciprocal(dst=t, data=hx(16, 8) if bad else one(16, 8))
    return t, 1


@book.breaks("reciprocal.shape")
def _(bad):
    t = sb(16, 4 if bad else 8)
    nisa.reciprocal(dst=t, data=one(16, 2, 4))
    return t, 1


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)

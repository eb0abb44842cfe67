"""Limits of the Scalar Engine (activation) and of GpSimd's own instructions (iota, affine_select)."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
from kernels import ps, sb
from rulebook import Book, hx, v, x

book = Book()
NkiTypeError = nki_sim.errors.NkiTypeError
F32, BF16 = nl.float32, nl.bfloat16
reduce_cmd = nisa.reduce_cmd


@book.breaks("activation.buffers")
def _(bad):
    t = sb(16, 8)
    nisa.activation(dst=t, op=nl.square, data=hx(16, 8) if bad else x(16, 8))
    return t, v(16, 8) ** 2


@book.breaks("activation.buffers")
def _(bad):
    t = nl.ndarray((16, 8), dtype=F32, buffer=nl.shared_hbm if bad else nl.psum)
    nisa.activation(dst=t, op=nl.square, data=x(16, 8))
    return t, v(16, 8) ** 2


@book.breaks("activation.buffers")
def _(bad):
    t = sb(16, 8)
    nisa.activation(dst=t, op=nl.square, data=x(16, 8), bias=hx(16, 1, at=1) if bad else x(16, 1, at=1))
    return t, (v(16, 8) + v(16, 1, at=1)) ** 2


@book.breaks("act.legal_functions")
def _(bad):
    t = sb(16, 8)
    nisa.activation(dst=t, op=nl.add if bad else nl.relu, data=x(16, 8))
    return t, v(16, 8)


@book.breaks("act.prelu_relu_param")
def _(bad):
    t = sb(16, 8)
    nisa.activation(dst=t, op=nl.prelu if bad else nl.relu, data=x(16, 8))
    return t, v(16, 8)


@book.breaks("activation.partition")
def _(bad):
    t = sb(8 if bad else 16, 8)
    nisa.activation(dst=t, op=nl.square, data=x(16, 8))
    return t, v(16, 8) ** 2


@book.breaks("activation.free")
def _(bad):
    t = sb(16, 7 if bad else 8)
    nisa.activation(dst=t, op=nl.square, data=x(16, 4, 2))
    return t, v(16, 8) ** 2


@book.breaks("activation.vector_shape")
def _(bad):
    t = sb(16, 8)
    nisa.activation(dst=t, op=nl.square, data=x(16, 8), bias=x(16, 8 if bad else 1, at=1))
    return t, (v(16, 8) + v(16, 1, at=1)) ** 2


@book.breaks("activation.vector_shape")
def _(bad):
    t = sb(16, 8)
    nisa.activation(dst=t, op=nl.square, data=x(16, 8), scale=x(1 if bad else 16, 1, at=1))
    return t, (v(16, 8) * v(16, 1, at=1)) ** 2


@book.breaks("activation.scale_fp32")
def _(bad):
    t = sb(16, 8)
    nisa.activation(dst=t, op=nl.square, data=x(16, 8), scale=x(16, 1, at=1, dt=BF16 if bad else F32))
    return t, (v(16, 8) * v(16, 1, at=1)) ** 2


@book.breaks("activation.bias_not_tf32")
def _(bad):
    t = sb(16, 8)
    nisa.activation(dst=t, op=nl.square, data=x(16, 8), bias=x(16, 1, at=1, dt=nl.tfloat32 if bad else BF16))
    return t, (v(16, 8) + v(16, 1, at=1)) ** 2


@book.breaks("activation.bias_gen2_vector", on="trn1", elsewhere="trn2 trn3")
def _(bad):
    t, one = sb(16, 8), sb(16, 1)
    nisa.memset(dst=one, value=1.0)
    nisa.activation(dst=t, op=nl.square, data=x(16, 8), bias=1.0 if bad else one)
    return t, (v(16, 8) + 1) ** 2


@book.breaks("act.reciprocal_no_bias_gen2", on="trn1", elsewhere="trn2 trn3")
def _(bad):
    t, one = sb(16, 8), sb(16, 1)
    nisa.memset(dst=one, value=1.0)
    nisa.memset(dst=t, value=1.0)
    nisa.activation(dst=t, op=nl.reciprocal, data=t, bias=one if bad else None)
    return t, 0.5 if bad else 1.0


@book.breaks("activation.copy_bias_trn1", on="trn1", elsewhere="trn2 trn3")
def _(bad):
    t = sb(16, 8)
    nisa.activation(dst=t, op=nl.copy if bad else nl.relu, data=x(16, 8), bias=x(16, 1, at=1))
    return t, v(16, 8) + v(16, 1, at=1)


@book.breaks("activation.reduce_op_add")
def _(bad):
    t, total = sb(16, 8), sb(16, 1)
    nisa.activation(
        dst=t, op=nl.square, data=x(16, 8), reduce_op=nl.maximum if bad else nl.add, reduce_res=total,
        reduce_cmd=reduce_cmd.reset_reduce,
    )  # fmt: skip
    return total, (v(16, 8) ** 2).sum(1, keepdims=True)


@book.breaks("activation.reduce_cmd")
def _(bad):
    t, total = sb(16, 8), sb(16, 1)
    nisa.activation(
        dst=t, op=nl.square, data=x(16, 8), reduce_op=nl.add, reduce_res=total,
        reduce_cmd=reduce_cmd.load_reduce if bad else reduce_cmd.reset_reduce,
    )  # fmt: skip
    return total, (v(16, 8) ** 2).sum(1, keepdims=True)


@book.breaks("activation.reduce_res_shape")
def _(bad):
    t, total = sb(16, 8), sb(16, 8 if bad else 1)
    nisa.activation(dst=t, op=nl.square, data=x(16, 8), reduce_op=nl.add, reduce_res=total, reduce_cmd=reduce_cmd.reset_reduce)
    return total, (v(16, 8) ** 2).sum(1, keepdims=True)


@book.breaks("vector.accumulator_idle_dirty")
def _(bad):
    t, total = sb(16, 8), sb(16, 1)
    nisa.activation(
        dst=t, op=nl.square, data=x(16, 8), reduce_op=nl.add, reduce_res=total,
        reduce_cmd=reduce_cmd.reduce if bad else reduce_cmd.reset_reduce,
    )  # fmt: skip
    return total, (v(16, 8) ** 2).sum(1, keepdims=True)


@book.breaks("activation_reduce.buffers")
def _(bad):
    t, total = sb(16, 8), sb(16, 1)
    nisa.activation_reduce(
        dst=t, op=nl.square, data=x(16, 8), reduce_op=nl.add, reduce_res=total,
        bias=hx(16, 1, at=1) if bad else x(16, 1, at=1),
    )  # fmt: skip
    return total, ((v(16, 8) + v(16, 1, at=1)) ** 2).sum(1, keepdims=True)


@book.breaks("activation_reduce.reduce_op")
def _(bad):
    t, total = sb(16, 8), sb(16, 1)
    op = nl.maximum if bad else nl.add
    nisa.activation_reduce(dst=t, op=nl.square, data=x(16, 8), reduce_op=op, reduce_res=total)
    return total, (v(16, 8) ** 2).sum(1, keepdims=True)


@book.breaks("activation_reduce.reduce_res")
def _(bad):
    t, total = sb(16, 8), sb(16, 2 if bad else 1)
    nisa.activation_reduce(dst=t, op=nl.square, data=x(16, 8), reduce_op=nl.add, reduce_res=total)
    return total, (v(16, 8) ** 2).sum(1, keepdims=True)


@book.breaks("activation_reduce.reduce_res")
def _(bad):
    t, total = sb(16, 8), nl.ndarray((16, 1), dtype=F32, buffer=nl.shared_hbm if bad else nl.sbuf)
    nisa.activation_reduce(dst=t, op=nl.square, data=x(16, 8), reduce_op=nl.add, reduce_res=total)
    return total, (v(16, 8) ** 2).sum(1, keepdims=True)


def outside(rule, op, bad_value, good_value, want):
    """A domain of the activation table: reported just outside it, silent just inside."""

    @book.breaks(rule)
    def _(bad):
        t = sb(16, 1)
        nisa.memset(dst=t, value=bad_value if bad else good_value)
        nisa.activation(dst=t, op=op, data=t)
        return t, want


outside("act.range_log", nl.log, 2.0**-65, 1.0, 0.0)
outside("act.range_log", nl.log, 2.0**65, 1.0, 0.0)
outside("act.range_sin", nl.sin, 3.15, 0.0, 0.0)
outside("act.range_sin", nl.sin, -3.15, 0.0, 0.0)
outside("act.range_arctan", nl.arctan, 1.58, 0.0, 0.0)
outside("act.range_sqrt", nl.sqrt, 0.0, 2.0**-116, 2.0**-58)
outside("act.range_sqrt", nl.sqrt, 2.0**119, 2.0**118, 2.0**59)
outside("act.range_rsqrt", nl.rsqrt, 2.0**-89, 2.0**-86, 2.0**43)
outside("act.range_reciprocal", nl.reciprocal, 2.0**-43, 2.0**-42, 2.0**42)
outside("act.range_reciprocal", nl.reciprocal, -(2.0**43), -(2.0**42), -(2.0**-42))


# --- GpSimd ----------------------------------------------------------------------------------------------------------


@book.breaks("iota.dst_sbuf")
def _(bad):
    t = (ps if bad else sb)(16, 8)
    nisa.iota(dst=t, pattern=[[1, 8]])
    return t, np.arange(8)


@book.breaks("iota.pattern_le_4d")
def _(bad):
    t = sb(16, 8)
    nisa.iota(dst=t, pattern=[[0, 1]] * (4 if bad else 3) + [[1, 8]])
    return t, np.arange(8)


@book.breaks("iota.pattern_count")
def _(bad):
    t = sb(16, 2, 4)
    nisa.iota(dst=t, pattern=[[1, 7 if bad else 8]])
    return t, np.arange(8).reshape(2, 4)


@book.breaks("iota.int32_params")
def _(bad):
    t = sb(16, 8)
    nisa.iota(dst=t, pattern=[[1, 8]], offset=x(1, 1) if bad else 3)
    return t, np.arange(3, 11)


def lower(n):
    return np.tril(v(n, n), -1) + np.triu(np.full((n, n), 9))


@book.breaks("affine_select.buffers")
def _(bad):
    t = (ps if bad else sb)(16, 16)
    nisa.affine_select(
        dst=t, pattern=[[-1, 16]], channel_multiplier=1, on_true_tile=x(16, 16), on_false_value=9.0, cmp_op=nl.greater
    )
    return t, lower(16)


@book.breaks("affine_select.pattern")
def _(bad):
    t = sb(16, 16)
    nisa.affine_select(
        dst=t, pattern=[[-1, 8 if bad else 16]], channel_multiplier=1, on_true_tile=x(16, 16), on_false_value=9.0,
        cmp_op=nl.greater,
    )  # fmt: skip
    return t, lower(16)


@book.breaks("affine_select.pattern")
def _(bad):
    t = sb(16, 16)
    nisa.affine_select(
        dst=t, pattern=[[0, 1]] * (4 if bad else 3) + [[-1, 16]], channel_multiplier=1, on_true_tile=x(16, 16),
        on_false_value=9.0, cmp_op=nl.greater,
    )  # fmt: skip
    return t, lower(16)


@book.breaks("affine_select.partition")
def _(bad):
    t = sb(16, 16)
    nisa.affine_select(
        dst=t, pattern=[[-1, 16]], channel_multiplier=1, on_true_tile=x(8 if bad else 16, 16), on_false_value=9.0,
        cmp_op=nl.greater,
    )  # fmt: skip
    return t, lower(16)


@book.breaks("affine_select.free")
def _(bad):
    t = sb(16, 16)
    nisa.affine_select(
        dst=t, pattern=[[-1, 16]], channel_multiplier=1, on_true_tile=x(16, 8 if bad else 16), on_false_value=9.0,
        cmp_op=nl.greater,
    )  # fmt: skip
    return t, lower(16)


@book.breaks("affine_select.on_false_fp32")
def _(bad):
    t = sb(16, 16)
    nisa.affine_select(
        dst=t, pattern=[[-1, 16]], channel_multiplier=1, on_true_tile=x(16, 16),
        on_false_value=x(16, 1) if bad else 9.0, cmp_op=nl.greater,
    )  # fmt: skip
    return t, lower(16)


@book.breaks("affine_select.offset")
def _(bad):
    t = sb(16, 16)
    nisa.affine_select(
        dst=t, pattern=[[-1, 16]], channel_multiplier=1, on_true_tile=x(16, 16), on_false_value=9.0,
        cmp_op=nl.greater_equal, offset=x(1, 1) if bad else -1,
    )  # fmt: skip
    return t, lower(16)


@book.breaks("affine_select.cmp_op")
def _(bad):
    t = sb(16, 16)
    nisa.affine_select(
        dst=t, pattern=[[-1, 16]], channel_multiplier=1, on_true_tile=x(16, 16), on_false_value=9.0,
        cmp_op=nl.maximum if bad else nl.greater,
    )  # fmt: skip
    return t, lower(16)


@book.rejects()
def test_rejects(case, target):
    case.reject(target)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)

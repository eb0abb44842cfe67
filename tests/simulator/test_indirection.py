"""``.indirect()``: gather and scatter along the free dimension inside compute instructions of trn3."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import ld, ps, sb, st
from references import run, same
from rulebook import Book, hx, v, x

book = Book()
NEW = "trn3"
RNG = np.random.default_rng(11)


def gathered(data, index, count, group=16):
    """Element by element: offset i of partition p is on partition i % group of p's group, in column i // group."""
    out = np.empty((len(data), count), data.dtype)
    for p in range(len(data)):
        for i in range(count):
            out[p, i] = data[p, index[p // group * group + i % group, i // group]]
    return out


def scattered(data, values, index, group=16):
    out = data.copy()
    for p in range(len(data)):
        for i in range(values.shape[1]):
            out[p, index[p // group * group + i % group, i // group]] = values[p, i]
    return out


def pick(data, index, count, dtype="float32", engine=nisa.engine.vector, buffer=nl.sbuf):
    source, at = ld(data), ld(index)
    if buffer is nl.psum:
        moved = ps(*data.shape)
        nisa.tensor_copy(dst=moved, src=source)
        source = moved
    t = sb(data.shape[0], count, dt=dtype)
    nisa.tensor_copy(dst=t, src=source.indirect(at, num_elem=count), engine=engine)
    return st(t)


def put(data, values, index, engine=nisa.engine.vector):
    target, at = ld(data), ld(index)
    nisa.tensor_copy(dst=target.indirect(at, num_elem=values.shape[1]), src=ld(values), engine=engine)
    return st(target)


def loosely(kernel, *args, target):
    return np.asarray(nki_sim.run(kernel, *args, target=target).result)


def offsets(rows, columns, most, dtype=np.uint16):
    return RNG.integers(0, most, (rows, columns)).astype(dtype)


@given(groups=some.integers(1, 8), columns=some.integers(1, 4), free=some.integers(1, 40), data=some.data())
@settings(max_examples=60, deadline=None)
def test_gather_and_scatter_element_by_element(groups, columns, free, data):
    rows = groups * 16
    count = data.draw(some.integers(1, 16 * columns))
    values = RNG.standard_normal((rows, free)).astype(np.float32)
    index = offsets(rows, columns, free)
    same(run(pick, values, index, count, target="trn3"), gathered(values, index, count))
    new = RNG.standard_normal((rows, count)).astype(np.float32)
    same(run(put, values, new, index, target="trn3"), scattered(values, new, index))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.uint32])
def test_offsets_of_every_whole_number(dtype):
    data, index = RNG.standard_normal((32, 9)).astype(np.float32), offsets(32, 2, 9, dtype)
    same(run(pick, data, index, 20, target="trn3"), gathered(data, index, 20))


@pytest.mark.parametrize("engine", [nisa.engine.vector, nisa.engine.scalar])
@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum])
def test_both_engines_read_sbuf_and_psum(engine, buffer):
    data, index = RNG.standard_normal((48, 9)).astype(np.float32), offsets(48, 1, 9)
    same(run(pick, data, index, 16, engine=engine, buffer=buffer, target="trn3"), gathered(data, index, 16))


def test_a_slice_a_step_and_fewer_partitions_than_a_group():
    def kernel(data, index):
        tile, at, t = ld(data), ld(index), sb(5, 3)
        nisa.tensor_copy(dst=t, src=tile[:, 1:20:3].indirect(at[:, 1:2], num_elem=3))
        return st(t)

    data, index = RNG.standard_normal((5, 24)).astype(np.float32), offsets(5, 2, 7)
    want = np.array([[data[p, 1 + 3 * int(index[i, 1])] for i in range(3)] for p in range(5)])
    same(run(kernel, data, index, target="trn3"), want)


def test_num_elem_is_the_size_of_the_index_when_not_given():
    def kernel(data, index):
        shapes.append(ld(data).indirect(ld(index)).shape)
        return data

    shapes = []
    run(kernel, np.ones((16, 9), np.float32), offsets(16, 3, 9), target="trn3")
    assert shapes == [(16, 48)]


DATA, OTHER, INDEX = RNG.standard_normal((16, 12)).astype(np.float32), RNG.standard_normal((16, 20)), offsets(16, 2, 12)
OTHER = OTHER.astype(np.float32)
PICKED = gathered(DATA, INDEX, 20)


def with_tensor_tensor(dst, src, other):
    nisa.tensor_tensor(dst=dst, data1=src, data2=other, op=nl.add)
    return PICKED + OTHER


def with_tensor_scalar(dst, src, _):
    nisa.tensor_scalar(dst=dst, data=src, op0=nl.multiply, operand0=3.0)
    return PICKED * np.float32(3)


def with_activation(dst, src, _):
    nisa.activation(dst=dst, op=nl.square, data=src)
    return PICKED * PICKED


def with_cumulative(dst, src, _):
    nisa.tensor_scalar_cumulative(dst=dst, src=src, op0=nl.multiply, op1=nl.add, imm0=1.0)
    return np.cumsum(PICKED, axis=1, dtype=np.float32)


def with_scalar_reduce(dst, src, _):
    nisa.tensor_scalar_reduce(dst=dst, data=src, op0=nl.add, operand0=1.0, reduce_op=nl.add, reduce_res=sb(16, 1))
    return PICKED + np.float32(1)


def with_activation_reduce(dst, src, _):
    nisa.activation_reduce(dst=dst, op=nl.copy, data=src, reduce_op=nl.add, reduce_res=sb(16, 1))
    return PICKED


@pytest.mark.parametrize("instruction", [with_tensor_tensor, with_tensor_scalar, with_activation, with_cumulative,
                                         with_scalar_reduce, with_activation_reduce])  # fmt: skip
@pytest.mark.parametrize("scatters", [False, True])
def test_instructions_that_know_it(instruction, scatters):
    wanted = []

    def kernel(data, other, index, target):
        at = ld(index)
        out = ld(target) if scatters else sb(16, 20)
        dst = out.indirect(at, num_elem=20) if scatters else out
        wanted.append(instruction(dst, ld(data).indirect(at, num_elem=20), ld(other)))
        return st(out)

    background = np.full((16, 12), 9, np.float32)
    found = run(kernel, DATA, OTHER, INDEX, background, target="trn3")
    want = scattered(background, wanted[0], INDEX) if scatters else wanted[0]
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)


def test_a_reduction_of_what_was_gathered():
    def kernel(data, index):
        t = sb(16, 1)
        nisa.tensor_reduce(dst=t, op=nl.maximum, data=ld(data).indirect(ld(index), num_elem=20), axis=(1,))
        return st(t)

    same(run(kernel, DATA, INDEX, target="trn3"), PICKED.max(1, keepdims=True))


def test_an_exponential_of_what_was_gathered():
    def kernel(data, index):
        t = sb(16, 20)
        nisa.exponential(dst=t, src=ld(data).indirect(ld(index), num_elem=20), max_value=0.0)
        return st(t)

    np.testing.assert_allclose(run(kernel, DATA, INDEX, target="trn3"), np.exp(PICKED), rtol=1e-6)


def test_a_predicate_that_is_gathered():
    def kernel(data, other, index, mask):
        t = ld(other)
        nisa.tensor_copy_predicated(dst=t, src=1.5, predicate=ld(mask).indirect(ld(index), num_elem=20))
        return st(t)

    mask = (DATA > 0).astype(np.uint8)
    same(run(kernel, DATA, OTHER, INDEX, mask, target="trn3"), np.where(gathered(mask, INDEX, 20), np.float32(1.5), OTHER))


def test_the_last_of_equal_offsets_is_written_last():
    values = np.arange(16 * 16, dtype=np.float32).reshape(16, 16)
    index = np.zeros((16, 1), np.uint16)
    found = run(put, np.full((16, 4), -1, np.float32), values, index, target="trn3")
    assert (found[:, 0] == values[:, 15]).all() and (found[:, 1:] == -1).all()


def test_offsets_outside_are_reported_and_read_as_nothing():
    data, index = np.ones((16, 4), np.float32), np.full((16, 1), 2, np.uint16)
    index[3] = 4
    with pytest.warns(nki_sim.NkiWarning, match="tensor.indirect_range"):
        found = loosely(pick, data, index, 16, target="trn3")
    assert np.isnan(found[:, 3]).all() and (np.delete(found, 3, axis=1) == 1).all()
    with pytest.warns(nki_sim.NkiWarning, match="16 offsets of dst outside 4 elements"):
        found = loosely(put, data, np.full((16, 16), 7, np.float32), index, target="trn3")
    assert (found[:, 2] == 7).all() and (found[:, [0, 1, 3]] == 1).all()


def test_only_what_was_scattered_counts_as_written():
    def kernel(values, index):
        t = sb(16, 8)
        nisa.tensor_copy(dst=t.indirect(ld(index), num_elem=3), src=ld(values))
        return st(t[:, 0:last])

    values, index = np.full((16, 3), 5, np.float32), np.repeat(np.array([[0], [1], [2], [0]], np.uint16), 4, axis=1).T
    index = np.arange(16, dtype=np.uint16).reshape(16, 1) % 3
    last = 3
    assert (run(kernel, values, index, target="trn3") == 5).all()
    last = 4
    with pytest.warns(nki_sim.NkiWarning, match="16 of 64 elements were never written"):
        assert np.isnan(loosely(kernel, values, index, target="trn3")[:, 3]).all()


def test_a_gather_of_what_was_never_written():
    def kernel(values, index):
        t, u = sb(16, 8), sb(16, 4)
        nisa.tensor_copy(dst=t[:, 0:4], src=ld(values))
        nisa.tensor_copy(dst=u, src=t.indirect(ld(index), num_elem=4))
        return st(u)

    values = np.full((16, 4), 5, np.float32)
    index = np.arange(16, dtype=np.uint16).reshape(16, 1) % 4
    assert (run(kernel, values, index, target="trn3") == 5).all()
    with pytest.warns(nki_sim.NkiWarning, match="were never written"):
        loosely(kernel, values, index + 1, target="trn3")


def test_replay_gathers_what_was_there():
    def kernel(data, index):
        tile, at, t = ld(data), ld(index), sb(16, 20)
        nisa.tensor_copy(dst=t, src=tile.indirect(at, num_elem=20))
        nisa.tensor_copy(dst=tile.indirect(at, num_elem=20), src=t)
        return st(tile)

    result = nki_sim.run(kernel, DATA, INDEX, target="trn3")
    replay = result.replay()
    steps = [i for i in range(len(result.program)) if result.program[i].instruction == "tensor_copy"]
    same(replay.operand(steps[0], 0, after=True), PICKED)
    same(replay.operand(steps[1], 0, after=True), DATA)
    assert [s.name for s in result.program.plan_at(steps[0]).slots] == ["dst", "src", "src_index"]


def test_psum_sums_that_another_engine_scatters_over_are_closed():
    def kernel(data, values, index):
        acc = ps(64, 64)
        nisa.nc_matmul(dst=acc, stationary=ld(data), moving=ld(data))
        nisa.tensor_copy(dst=acc.indirect(ld(index), num_elem=4), src=ld(values))
        nisa.nc_matmul(dst=acc, stationary=ld(data), moving=ld(data), accumulate=None)
        return st(acc)

    data, values = np.eye(64, dtype=np.float32), np.full((64, 4), 5, np.float32)
    index = np.arange(64, dtype=np.uint16).reshape(64, 1) % 4
    found = run(kernel, data, values, index, target="trn3")
    same(found[:, :4], np.eye(64, dtype=np.float32)[:, :4])  # overwritten: no sum was open there
    same(found[:, 4:], 2 * np.eye(64, dtype=np.float32)[:, 4:])


# -- limits -------------------------------------------------------------------------------------------------------------


def at(rows=16, columns=1, **where):
    """Offsets from 0 to 7."""
    made = sb(rows, columns, dt=nl.uint16, **where)
    nisa.tensor_copy(dst=made, src=x(rows, columns, dt=nl.uint16))
    return made


def table(rows=16, columns=1, count=8, group=16):
    return gathered(v(rows, 8, at=1), v(rows, columns).astype(int), count, group)


@book.breaks("tensor.indirect_index", on=NEW)
def _(bad):
    t = sb(16, 8)
    nisa.tensor_copy(dst=t, src=x(16, 8, at=1).indirect(x(16, 1) if bad else at(), num_elem=8))
    return t, table()


@book.breaks("tensor.indirect_index", on=NEW)
def _(bad):
    t = sb(16, 8)
    nisa.tensor_copy(dst=t, src=x(16, 8, at=1).indirect(at(32 if bad else 16), num_elem=8))
    return t, table()


@book.breaks("tensor.indirect_index", on=NEW)
def _(bad):
    source, t = x(16, 8, at=1), sb(16, 8)
    nisa.tensor_copy(dst=t, src=(source.reshape((16, 2, 4)) if bad else source).indirect(at(), num_elem=8))
    return t, table()


@book.breaks("tensor.indirect_index", on=NEW)
def _(bad):
    source, t = x(16, 8, at=1), sb(16, 8)
    nisa.tensor_copy(dst=t, src=source.indirect(at(), num_elem=0 if bad else 8))
    return t, table()


@book.breaks("tensor.indirect_gen4", on="trn1 trn2", elsewhere="trn3")
def _(bad):
    t = sb(16, 8)
    nisa.tensor_copy(dst=t, src=x(16, 8, at=1).indirect(at(), num_elem=8) if bad else x(16, 8, at=2))
    return t, table() if bad else v(16, 8, at=2)


@book.breaks("tensor.indirect_last", on=NEW)
def _(bad):
    t = sb(16, 4)
    picked = x(16, 8, at=1).indirect(at(), num_elem=8 if bad else 4)
    nisa.tensor_copy(dst=t, src=picked[:, 0:4] if bad else picked)
    return t, table(count=4)


@book.breaks("tensor.indirect_last", on=NEW)
def _(bad):
    t, index = sb(16, 8), at()
    picked = x(16, 8, at=1).indirect(index, num_elem=8)
    nisa.tensor_copy(dst=t, src=picked.indirect(index, num_elem=8) if bad else picked)
    return t, table()


@pytest.mark.parametrize("view", [
    lambda t: t.view(nl.int32), lambda t: t.reshape((16, 2, 4)), lambda t: t.permute((0, 1)), lambda t: t.slice(1, 0, 2),
    lambda t: t.select(1, 0), lambda t: t.expand_dim(1), lambda t: t[0:4],
])  # fmt: skip
def test_no_view_after_it(view):
    def kernel(data, index):
        view(ld(data).indirect(ld(index), num_elem=8))

    with pytest.raises(nki_sim.NkiValidationError, match=r"after indirect\(\)"):
        run(kernel, DATA, INDEX, target="trn3")


@book.breaks("tensor.indirect_num_elem", on=NEW)
def _(bad):
    t = sb(16, 17 if bad else 16)
    nisa.tensor_copy(dst=t, src=x(16, 8, at=1).indirect(at(), num_elem=17 if bad else 16))
    return t, None if bad else table(count=16)


@book.breaks("tensor.indirect_num_elem", on=NEW)
def _(bad):
    t = sb(21, 6 if bad else 5)
    nisa.tensor_copy(dst=t, src=x(21, 8, at=1).indirect(at(21), num_elem=6 if bad else 5))
    return t, None if bad else table(21, count=5)


@book.breaks("tensor.indirect_operands", on=NEW)
def _(bad):
    t, source = sb(16, 8), x(16, 8, at=1)
    nisa.reciprocal(dst=t, data=source.indirect(at(), num_elem=8) if bad else t_ones())
    return t, 1.0


@book.breaks("tensor.indirect_operands", on=NEW)
def _(bad):
    t, source = sb(16, 8), x(16, 8, at=1)
    nisa.dma_copy(dst=t, src=source.indirect(at(), num_elem=8) if bad else source)
    return t, v(16, 8, at=1)


def t_ones():
    made = sb(16, 8)
    nisa.memset(dst=made, value=1.0)
    return made


def picked(bad, index=None):
    """An indirect view where it is legal, and plain values where it is not."""
    source = x(16, 8, at=1)
    return source.indirect(index or at(), num_elem=8) if bad else source


@book.breaks("tensor_copy.indirect.operands", on=NEW)
def _(bad):
    t = sb(16, 8)
    nisa.tensor_copy(dst=t, src=picked(True), engine=nisa.engine.gpsimd if bad else nisa.engine.scalar)
    return t, table()


@book.breaks("tcp.indirect.operands", on=NEW)
def _(bad):
    t, mask = x(16, 8, at=2), sb(16, 8, dt=nl.uint8)
    nisa.memset(dst=mask, value=1)
    nisa.tensor_copy_predicated(dst=t, src=picked(bad), predicate=mask)
    return t, v(16, 8, at=1)


@book.breaks("tensor_tensor.indirect.operands", on=NEW)
def _(bad):
    t = sb(16, 8)
    nisa.tensor_tensor(dst=t, data1=picked(True), data2=picked(bad), op=nl.add)
    return t, table() + v(16, 8, at=1)


@book.breaks("tensor_scalar.indirect.operands", on=NEW)
def _(bad):
    t, one = sb(16, 8), x(16, 1, at=1)
    nisa.tensor_scalar(dst=t, data=picked(True), op0=nl.add,
                       operand0=x(16, 8, at=1).indirect(at(), num_elem=1) if bad else one)  # fmt: skip
    return t, table() + v(16, 1, at=1)


@book.breaks("tensor_scalar.no_indirect_addr_pattern", on=NEW)
def _(bad):
    t, source = sb(16, 8, dt=nl.int32), x(16, 8, at=1, dt=nl.int32 if bad else nl.bfloat16)
    nisa.tensor_scalar(dst=t, data=source.indirect(at(), num_elem=8), op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)
    return t, table() * 2 + 1


@book.breaks("tensor_scalar_cumulative.indirect.operands", on=NEW)
def _(bad):
    t, one = sb(16, 8), x(16, 1, at=1)
    first = x(16, 8, at=1).indirect(at(), num_elem=1) if bad else one
    nisa.tensor_scalar_cumulative(dst=t, src=picked(True), op0=nl.add, op1=nl.add, imm0=first)
    return t, np.cumsum(table() + v(16, 1, at=1), axis=1)


@book.breaks("activation.indirect.operands", on=NEW)
def _(bad):
    t, one = sb(16, 8), x(16, 1, at=1)
    bias = x(16, 8, at=1).indirect(at(), num_elem=1) if bad else one
    nisa.activation(dst=t, op=nl.copy, data=picked(True), bias=bias)
    return t, table() + v(16, 1, at=1)


@book.breaks("activation_reduce.indirect.operands", on=NEW)
def _(bad):
    t, res = sb(16, 8), sb(16, 8)
    target = res.indirect(at(), num_elem=1) if bad else res[:, 0:1]
    nisa.activation_reduce(dst=t, op=nl.copy, data=picked(True), reduce_op=nl.add, reduce_res=target)
    return t, table()


@book.breaks("exponential.indirect.operands", on=NEW)
def _(bad):
    t, res = sb(16, 8), sb(16, 8)
    target = res.indirect(at(), num_elem=1) if bad else res[:, 0:1]
    zero = sb(16, 8)
    nisa.memset(dst=zero, value=0.0)
    nisa.exponential(dst=t, src=zero.indirect(at(), num_elem=8), max_value=0.0, reduce_res=target)
    return t, 1.0


@book.breaks("tensor_scalar_reduce.indirect.operands", on=NEW)
def _(bad):
    t, res = sb(16, 8), sb(16, 8)
    target = res.indirect(at(), num_elem=1) if bad else res[:, 0:1]
    nisa.tensor_scalar_reduce(dst=t, data=picked(True), op0=nl.add, operand0=1.0, reduce_op=nl.add, reduce_res=target)
    return t, table() + 1


def also_adding(dst, src, instruction, **given):
    instruction(dst=dst, data=src, reduce_op=nl.add, reduce_res=sb(16, 1), **given)


def added(dst, src):
    one = src.dynamic.base.indirect(src.dynamic.index, num_elem=1) if src.is_indirect() else src
    nisa.tensor_reduce(dst=dst, op=nl.add, data=one, axis=(1,))


def running(dst, src):
    nisa.tensor_scalar_cumulative(dst=dst, src=src, op0=nl.add, op1=nl.maximum, imm0=0.0)


ALIKE = {
    "tensor_copy.indirect.partitions": lambda d, s: nisa.tensor_copy(dst=d, src=s),
    "tensor_tensor.indirect.partitions": lambda d, s: nisa.tensor_tensor(dst=d, data1=s, data2=t_zeros(), op=nl.add),
    "tensor_scalar.indirect.partitions": lambda d, s: nisa.tensor_scalar(dst=d, data=s, op0=nl.add, operand0=0.0),
    "activation.indirect.partitions": lambda d, s: nisa.activation(dst=d, op=nl.copy, data=s),
    "activation_reduce.indirect.partitions": lambda d, s: also_adding(d, s, nisa.activation_reduce, op=nl.copy),
    "tensor_scalar_cumulative.indirect.partitions": running,
    "tensor_scalar_reduce.indirect.partitions": lambda d, s: also_adding(d, s, nisa.tensor_scalar_reduce, op0=nl.add,
                                                                         operand0=0.0),
    "exponential.indirect.partitions": lambda d, s: nisa.exponential(dst=d, src=s, max_value=0.0),
    "tensor_reduce.indirect.partitions": added,
    "tcp.indirect.partitions": lambda d, s: nisa.tensor_copy_predicated(dst=d, src=1.0, predicate=s),
}  # fmt: skip
ONE_COLUMN = {"tensor_reduce.indirect.partitions"}


def t_zeros():
    made = sb(16, 8)
    nisa.memset(dst=made, value=0.0)
    return made


def run_at(rule, data_at, index_at, out_at):
    """The instruction with data, index and the index of dst at these partitions."""
    dt = nl.uint8 if rule.startswith("tcp.") else nl.float32

    def kernel(ones):
        source = sb(16, 8, dt=dt, address=(data_at, 0))
        nisa.memset(dst=source, value=0 if rule.startswith("tcp.") else 0.0)
        index = sb(128, 1, dt=nl.uint16, address=(0, 1024))
        nisa.memset(dst=index, value=0)
        out = sb(16, 8, address=(0, 2048))
        nisa.memset(dst=out, value=0.0)
        count = 1 if rule in ONE_COLUMN else 8
        target = out[:, 0:count] if out_at is None else out.indirect(index[out_at : out_at + 16], num_elem=count)
        ALIKE[rule](target, source.indirect(index[index_at : index_at + 16], num_elem=8))
        return st(out)

    return run(kernel, np.ones((1, 1), np.float32), target="trn3")


@pytest.mark.parametrize("rule", ALIKE)
@pytest.mark.parametrize(("places", "words"), [
    ((0, 16, None), "starts at partition 16"), ((32, 64, None), "its index at 64"), ((32, 32, 64), "the index of dst starts"),
])  # fmt: skip
def test_where_the_index_starts(rule, places, words):
    with pytest.raises(nki_sim.NkiValidationError, match=words) as caught:
        run_at(rule, *places)
    assert caught.value.diagnosis.rule.id == rule
    run_at(rule, 32, 32, 32 if places[2] else None)
    run_at(rule, 64, 64, None)


@pytest.mark.parametrize("rule", [
    "tensor_copy.indirect.scalar_scatter_psum", "tensor_scalar.indirect.scalar_scatter_psum",
    "activation.indirect.scalar_scatter_psum", "activation_reduce.indirect.scalar_scatter_psum",
])  # fmt: skip
def test_the_scalar_engine_does_not_scatter_to_psum(rule):
    name = rule.partition(".")[0]

    def kernel(data, index, buffer):
        target = nl.ndarray((16, 8), dtype=nl.float32, buffer=buffer)
        nisa.memset(dst=target, value=0.0, engine=nisa.engine.vector)
        dst, src = target.indirect(ld(index), num_elem=8), ld(data)[:, 0:8]
        if name == "tensor_copy":
            nisa.tensor_copy(dst=dst, src=src, engine=nisa.engine.scalar)
        elif name == "tensor_scalar":
            nisa.tensor_scalar(dst=dst, data=src, op0=nl.add, operand0=0.0, engine=nisa.engine.scalar)
        else:
            ALIKE[f"{name}.indirect.partitions"](dst, src)
        return st(target)

    index = np.arange(16, dtype=np.uint16).reshape(16, 1) % 8
    same(run(kernel, DATA, index, nl.sbuf, target="trn3"), DATA[:, :8])
    with pytest.raises(nki_sim.NkiValidationError, match="dst is an indirect") as caught:
        run(kernel, DATA, index, nl.psum, target="trn3")
    assert caught.value.diagnosis.rule.id == rule


# -- matmuls ------------------------------------------------------------------------------------------------------------


def whole(shape, seed):
    """Small whole numbers, which any order of summation adds exactly."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


@given(k=some.integers(1, 128), m=some.integers(1, 40), n=some.integers(1, 60), seed=some.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_matmul_of_what_was_gathered(k, m, n, seed):
    m, n = (min(m, k % 32), min(n, k % 32)) if k % 32 else (m, n)
    a, b, si, mi = whole((k, 48), seed), whole((k, 64), seed + 1), offsets(k, 2, 48), offsets(k, 2, 64)

    def kernel(a, b, si, mi):
        acc = ps(m, n)
        nisa.nc_matmul(dst=acc, stationary=ld(a, nl.bfloat16).indirect(ld(si), num_elem=m),
                       moving=ld(b, nl.bfloat16).indirect(ld(mi), num_elem=n))  # fmt: skip
        return st(acc)

    want = gathered(a, si, m, 32).T @ gathered(b, mi, n, 32)
    same(run(kernel, a, b, si, mi, target="trn3"), want)


def test_matmul_adds_where_a_sum_is_open_and_overwrites_elsewhere():
    a, b, index = whole((64, 32), 1), whole((64, 8), 2), np.arange(32, dtype=np.uint16).reshape(32, 1) % 5

    def kernel(a, b, index):
        acc = ps(32, 12)
        x, y, at = ld(a), ld(b), ld(index)
        nisa.nc_matmul(dst=acc[:, 0:8], stationary=x, moving=y)
        nisa.nc_matmul(dst=acc.indirect(at, num_elem=5), stationary=x, moving=y[:, 0:5])  # columns 0 to 4: an open sum
        nisa.nc_matmul(dst=acc[:, 8:12], stationary=x, moving=y[:, 0:4])
        return st(acc)

    product = a.T @ b
    want = np.concatenate([product[:, :5] * 2, product[:, 5:], product[:, :4]], axis=1)
    same(run(kernel, a, b, index, target="trn3"), want)

    def mixed(a, b, index):
        acc = ps(32, 12)
        x, y, at = ld(a), ld(b), ld(index)
        nisa.nc_matmul(dst=acc[:, 0:2], stationary=x, moving=y[:, 0:2])
        nisa.nc_matmul(dst=acc.indirect(at, num_elem=5), stationary=x, moving=y[:, 0:5], accumulate=None)
        return st(acc[:, 0:5])

    want = product[:, :5].copy()
    want[:, :2] *= 2
    same(run(mixed, a, b, index, target="trn3"), want)


def product(bad_name, **changes):
    """A matmul of gathered operands, as bfloat16; one argument may be another."""
    stationary, moving = x(32, 16, at=1, dt=nl.bfloat16), x(32, 8, at=2, dt=nl.bfloat16)
    index = at(32)
    given = {
        "dst": ps(8, 8), "stationary": stationary.indirect(index, num_elem=8), "moving": moving.indirect(index, num_elem=8),
    } | changes  # fmt: skip
    nisa.nc_matmul(**given)
    return given["dst"]


def wanted():
    index = v(32, 1).astype(int)
    return gathered(v(32, 16, at=1), index, 8, 32).T @ gathered(v(32, 8, at=2), index, 8, 32)


@book.breaks("nc_matmul.indirect.transpose", on=NEW)
def _(bad):
    eye = sb(32, 32, dt=nl.bfloat16)
    nl.shared_identity_matrix(32, dst=eye)
    moving = x(32, 8, at=2, dt=nl.bfloat16)
    if bad:
        nisa.nc_matmul(
            dst=ps(32, 8, dt=nl.bfloat16), stationary=eye, moving=moving.indirect(at(32), num_elem=8), is_transpose=True
        )
    return product(bad), wanted()


@book.breaks("nc_matmul.indirect.tile_position", on=NEW)
def _(bad):
    return product(bad, tile_position=(32 if bad else 0, 0), tile_size=(32, 32)), wanted()


@book.breaks("nc_matmul.indirect.dtype", on=NEW)
def _(bad):
    plain = x(32, 8, at=2, dt=nl.float32 if bad else nl.bfloat16)
    other = {"stationary": x(32, 8, at=1)} if bad else {}
    return product(bad, moving=plain.indirect(at(32), num_elem=8), **other), wanted()


def placed(data, index):
    """An indirect tile at one partition with its index at another."""
    tile = sb(32, 8, dt=nl.bfloat16, address=(data, 0))
    nisa.dma_copy(dst=tile, src=hx(32, 8, at=2, dt=nl.bfloat16))
    offsets = sb(128, 1, dt=nl.uint16, address=(0, 4096))
    nisa.dma_copy(dst=offsets[index : index + 32], src=hx(32, 1, dt=nl.uint16))
    return tile.indirect(offsets[index : index + 32], num_elem=8)


@book.breaks("nc_matmul.indirect.index_quadrant", on=NEW)
def _(bad):
    return product(bad, moving=placed(0, 16 if bad else 0)), wanted()


@book.breaks("nc_matmul.indirect.operand_same_partition", on=NEW)
def _(bad):
    return product(bad, moving=placed(32, 64 if bad else 32)), wanted()


@book.breaks("nc_matmul.indirect.dst_index_partition", on=NEW)
def _(bad):
    stationary = placed(32, 32)
    where = sb(128, 1, dt=nl.uint16, address=(0, 8192))
    first = 64 if bad else 32
    nisa.memset(dst=where, value=0)
    nisa.iota(dst=where[first : first + 8], pattern=[[0, 1]], offset=0, channel_multiplier=1)
    acc = ps(8, 8)
    moving = x(32, 8, at=2, dt=nl.bfloat16)
    nisa.nc_matmul(dst=acc.indirect(where[first : first + 8], num_elem=8), stationary=stationary, moving=moving)
    return acc, gathered(v(32, 8, at=2), v(32, 1).astype(int), 8, 32).T @ v(32, 8, at=2)


@book.rejects()
def test_breaking_a_limit(case, target):
    with pytest.raises(case.error) as caught:
        case.run(target, bad=True)
    assert caught.value.diagnosis.rule.id == case.rule
    assert caught.value.diagnosis.line


@book.accepts()
def test_just_inside(case, target, bad):
    case.run(target, bad)

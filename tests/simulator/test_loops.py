"""Loops at run time, registers and runtime scalars."""

import warnings

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import ps, sb, st
from nki_sim.errors import NkiError

ROWS = np.arange(80, dtype=np.float32).reshape(10, 8)


def number(n, dtype=np.int32):
    return np.array([[n]], dtype)


def row(x, i):
    """A row of an HBM tensor, by a runtime index."""
    return x.ap([[8, 1], [1, 8]], scalar_offset=i)


def register(tile):
    made = nisa.register_alloc()
    nisa.register_load(made, tile)
    return made


def sum_rows(x, lower, upper, step):
    out = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.zeros((1, 8), dtype=nl.float32, buffer=nl.sbuf)
    traced = []

    def body(i):
        traced.append(i)
        t = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=row(x, i))
        nisa.tensor_tensor(dst=acc, data1=acc, data2=t, op=nl.add)

    nl.fori_loop(register(nl.load(lower)), register(nl.load(upper)), body, step)
    assert len(traced) <= 1
    nl.store(out, acc)
    return out


@settings(max_examples=40, deadline=None)
@given(some.integers(0, 10), some.integers(0, 10), some.integers(1, 4))
def test_a_counted_loop_is_pythons_range(lower, upper, step):
    found = nki_sim.run(sum_rows, ROWS, number(lower), number(upper), step).result
    np.testing.assert_array_equal(found[0], ROWS[list(range(lower, upper, step))].sum(axis=0))


def test_every_round_has_its_own_steps_and_lines():
    run = nki_sim.run(sum_rows, ROWS, number(2), number(5), 1)
    copies = [s for s in run.program if s.instruction == "dma_copy" and s.text.startswith("t ")]
    assert [s.text for s in copies] == ["t ← x[2, :]", "t ← x[3, :]", "t ← x[4, :]"]
    assert len({s.line for s in copies}) == 1
    replay = run.replay()
    acc = next(a for a in run.program.allocations if a.label == "acc")
    np.testing.assert_array_equal(replay.values(acc, copies[2].index), ROWS[2:4].sum(axis=0, keepdims=True))


def test_a_loop_in_a_loop_with_scalars():
    def kernel(x):
        out = nl.ndarray((6, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        traced = []

        def outer(i):
            def inner(j):
                traced.append((i, j))
                t = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=t, src=row(x, 2 * i + j - 1 - -1))
                nisa.dma_copy(dst=row(out, i + i + j), src=t)

            nl.fori_loop(0, 2, inner)

        nl.fori_loop(0, 3, outer)
        assert len(traced) == 1
        return out

    np.testing.assert_array_equal(nki_sim.run(kernel, ROWS).result, ROWS[:6])


def test_inner_bounds_follow_the_outer_round():
    def kernel(x):
        out = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        acc = nl.zeros((1, 8), dtype=nl.float32, buffer=nl.sbuf)

        def outer(i):
            def inner(j):
                t = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=t, src=row(x, j))
                nisa.tensor_tensor(dst=acc, data1=acc, data2=t, op=nl.add)

            nl.fori_loop(0, i, inner)

        nl.fori_loop(0, 4, outer)
        nl.store(out, acc)
        return out

    expected = sum(ROWS[j] for i in range(4) for j in range(i))
    np.testing.assert_array_equal(nki_sim.run(kernel, ROWS).result[0], expected)


def test_an_inner_loop_without_a_first_round_still_knows_the_tensors_around_it():
    def kernel(x):
        out = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        acc = nl.zeros((1, 8), dtype=nl.float32, buffer=nl.sbuf)

        def outer(i):
            t = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=t, src=row(x, i))
            nl.fori_loop(0, i, lambda j: nisa.tensor_tensor(dst=acc, data1=acc, data2=t, op=nl.add) and None)

        nl.fori_loop(0, 3, outer)
        nl.store(out, acc)
        return out

    np.testing.assert_array_equal(nki_sim.run(kernel, ROWS).result[0], ROWS[1] + 2 * ROWS[2])


@pytest.mark.parametrize("count", [0, 1, 5])
def test_while_the_register_is_not_zero(count):
    def kernel(value, left):
        out = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        v, n = nl.load(value), nl.load(left)
        acc = nl.zeros((1, 1), dtype=nl.float32, buffer=nl.sbuf)

        def body(r):
            nisa.tensor_tensor(dst=acc, data1=acc, data2=v, op=nl.add)
            nisa.tensor_scalar(dst=n, data=n, op0=nl.subtract, operand0=1.0)
            nisa.register_load(r, n)
            return r

        nl.while_loop(register(n), body)
        nl.store(out, acc)
        return out

    assert nki_sim.run(kernel, number(2.5, np.float32), number(count)).result[0, 0] == 2.5 * count


def test_a_sum_in_psum_goes_on_from_round_to_round():
    w, x = np.random.default_rng(3).integers(-3, 4, (2, 128, 96)).astype(np.float32)

    def kernel(w, x):
        out = nl.ndarray((96, 96), dtype=nl.float32, buffer=nl.shared_hbm)
        a, b = nl.load(w), nl.load(x)
        acc = nl.ndarray((96, 96), dtype=nl.float32, buffer=nl.psum)
        nl.fori_loop(0, 3, lambda i: nisa.nc_matmul(dst=acc, stationary=a, moving=b) and None)
        nl.store(out, nl.copy(acc))
        return out

    np.testing.assert_array_equal(nki_sim.run(kernel, w, x).result, 3 * (w.T @ x))


def test_a_register_in_a_body_starts_anew_each_round():
    def kernel(x):
        out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
        t = nl.zeros((1, 1), dtype=nl.int32, buffer=nl.sbuf)

        def body(i):
            made = nisa.register_alloc(7)
            nisa.register_store(t, made)
            nisa.register_move(made, 9)

        nl.fori_loop(0, 3, body)
        nl.store(out, t)
        return out

    assert nki_sim.run(kernel, ROWS).result[0, 0] == 7


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_scalars_wrap_at_their_width(dtype):
    def kernel(a):
        out = nl.ndarray((1, 1), dtype=nl.int64 if dtype is np.int64 else nl.int32, buffer=nl.shared_hbm)
        s = nisa.scalar_load(a)
        nisa.scalar_store(out, -(3 - s * s + 1))
        return out

    value = np.array([[100000]], dtype)
    expected = -(3 - value * value + 1)
    assert nki_sim.run(kernel, value).result == expected


def test_printing_in_a_body_happens_every_round(capsys):
    def kernel(x):
        out = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        t = nl.load(x[0:1])
        nl.fori_loop(0, 3, lambda i: nl.device_print("t", t))
        nl.store(out, t)
        return out

    nki_sim.run(kernel, ROWS)
    assert capsys.readouterr().out.count("t ") >= 3


def test_a_failure_in_a_later_round_names_the_line_of_the_body():
    def kernel(x):
        def body(i):
            t = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=t, src=row(x, i))  # fails at row 10

        nl.fori_loop(8, 12, body)

    with pytest.raises(NkiError) as caught:
        nki_sim.run(kernel, ROWS)
    assert "runtime index 10" in str(caught.value) and "# fails at row 10" in str(caught.value)


def test_the_form_before_fori_loop_runs_and_is_reported():
    def kernel(x, n):
        out = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        acc = nl.zeros((1, 8), dtype=nl.float32, buffer=nl.sbuf)
        for i in nl.dynamic_range(2, register(nl.load(n)), 3):
            t = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=t, src=row(x, i))
            nisa.tensor_tensor(dst=acc, data1=acc, data2=t, op=nl.add)
        nl.store(out, acc)
        return out

    with pytest.warns(nki_sim.NkiWarning, match="dynamic_range"):
        run = nki_sim.run(kernel, ROWS, number(9))
    np.testing.assert_array_equal(run.result[0], ROWS[2] + ROWS[5] + ROWS[8])
    assert [f.rule.id for f in run.findings] == ["lang.dynamic_frontend"]


def halved(x, n):
    """``while reg:``, the form before nl.while_loop: one is added as often as n can be halved."""
    acc, left = nl.zeros((1, 8), dtype=nl.float32, buffer=nl.sbuf), nl.load(n)
    rounds = nisa.register_alloc()
    nisa.register_load(rounds, left)
    while rounds:
        nisa.tensor_scalar(dst=acc, data=acc, op0=nl.add, operand0=1.0)
        nisa.tensor_scalar(dst=left, data=left, op0=nl.right_shift, operand0=1)
        nisa.register_load(rounds, left)
    return st(acc)


def test_while_with_a_register_runs_and_is_reported():
    kernel = nki_sim.jit(halved)
    for count, rounds in ((9, 4), (0, 0), (255, 8)):
        with pytest.warns(nki_sim.NkiWarning, match="while with a register") as caught:
            result = kernel(ROWS, number(count))
        assert len(caught) == 1
        assert caught[0].message.line == halved.__code__.co_firstlineno + 5
        np.testing.assert_array_equal(result, np.full((1, 8), rounds, np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = nki_sim.run(kernel, ROWS, number(9))
        with pytest.raises(NkiError, match="an estimate knows shapes, not data"):
            nki_sim.estimate(kernel, ROWS, number(9))
    assert [f.rule.id for f in run.findings] == ["lang.dynamic_frontend"]
    with pytest.raises(NkiError, match="while with a register"):
        nki_sim.run(kernel, ROWS, number(9), strict=True)


def test_a_register_takes_the_value_of_a_tensor_and_that_is_reported():
    def kernel(x, n):
        def body(rounds):
            nisa.tensor_scalar(dst=acc, data=acc, op0=nl.add, operand0=1.0)

        acc = nl.zeros((1, 8), dtype=nl.float32, buffer=nl.sbuf)
        count = nisa.register_alloc(nl.load(n))
        nl.fori_loop(0, count, body)
        return st(acc)

    with pytest.warns(nki_sim.NkiWarning, match=r"register_alloc\.tensor_prefill") as caught:
        run = nki_sim.run(kernel, ROWS, number(5))
    np.testing.assert_array_equal(run.result, np.full((1, 8), 5, np.float32))
    assert len(caught) == 1 and caught[0].message.line == kernel.__code__.co_firstlineno + 5
    assert run.counts["register_load"] == 1
    assert [f.rule.id for f in run.findings] == ["register_alloc.tensor_prefill"]
    with pytest.raises(NkiError, match=r"register_alloc\.tensor_prefill"):
        nki_sim.run(kernel, ROWS, number(5), strict=True)
    with pytest.raises(NkiError, match=r"register_load\.src"), pytest.warns(nki_sim.NkiWarning):
        nki_sim.run(lambda x: nisa.register_alloc(many()), ROWS)


def test_a_register_is_no_other_condition():
    def negated(register):
        while not register:
            pass

    def compound(register):
        while register and True:
            pass

    for use in (negated, compound, lambda register: 1 if register else 0, lambda register: [0][register]):
        with pytest.raises(TypeError, match="is not known while the kernel is built"):
            nki_sim.run(lambda x, use=use: use(nisa.register_alloc(1)), ROWS)


def test_while_with_a_register_is_no_part_of_another_loop():
    def inner(register):
        while register:
            pass

    with pytest.raises(NkiError, match="not used in the body of another loop"):
        nki_sim.run(lambda x: nl.fori_loop(0, nisa.register_alloc(2), inner), ROWS)

    def in_order(x):
        with nl.no_reorder():
            inner(nisa.register_alloc(1))

    with pytest.raises(NkiError, match=r"inside of nl\.no_reorder"):
        nki_sim.run(in_order, ROWS)


# -- constants ---------------------------------------------------------------------------------------------------------


def add_constant(x, constant):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(x), nl.load(nl.shared_constant(constant))))
    return out


@pytest.mark.parametrize("kind", ["array", "file"])
def test_a_constant_is_there_from_the_start(kind, tmp_path):
    values = np.asfortranarray(np.random.default_rng(5).random((10, 8), np.float32))
    np.save(tmp_path / "values.npy", values)
    run = nki_sim.run(lambda x: add_constant(x, values if kind == "array" else str(tmp_path / "values.npy")), ROWS)
    np.testing.assert_array_equal(run.result, ROWS + values)
    before = values.copy()
    values[...] = 0  # the run keeps its own
    constant = next(a for a in run.program.allocations if a.role == "constant")
    np.testing.assert_array_equal(run.replay().values(constant, 0), before)


@pytest.mark.parametrize(
    ("constant", "rule"),
    [
        ([1, 2], "shared_constant.source"),
        ("no such file.npy", "shared_constant.source"),
        (np.array([{}], dtype=object), None),
        (np.ones((8, 8), np.int64), "shared_constant.dtypes"),
        (np.ones((8, 8), bool), "shared_constant.dtypes"),
    ],
)
def test_what_is_no_constant(constant, rule):
    with pytest.raises(NkiError) as caught:
        nki_sim.run(lambda x: add_constant(x, constant), ROWS)
    assert rule is None or caught.value.diagnosis.rule.id == rule


def test_a_file_of_objects_is_not_unpickled(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(NkiError, match=r"shared_constant\.source"):
        nki_sim.run(lambda x: add_constant(x, tmp_path / "objects.npy"), ROWS)


# -- what is refused ---------------------------------------------------------------------------------------------------


def one():
    made = sb(1, 1, dt=nl.int32)
    nisa.memset(made, 1)
    return made


def many():
    made = sb(10, 8, dt=nl.int32)
    nisa.memset(made, 1)
    return made


def loop_with_tile(use):
    kept = []

    def body(i):
        kept.append(sb(1, 8))
        nisa.memset(kept[0], 1.0)

    nl.fori_loop(0, 2, body)
    use(kept[0])


def in_order():
    with nl.no_reorder():
        nl.fori_loop(0, 2, lambda i: None)


def compared():
    s = nisa.scalar_load(one())
    nl.zeros((1, 8), dtype=nl.float32, buffer=nl.sbuf).ap([[8, 1], [1, 1]], scalar_offset=s < 3)


def loaded_from_psum():
    p = ps(1, 1)
    nisa.memset(p, 1.0)
    nisa.register_load(nisa.register_alloc(), p)


REFUSED = [
    ("register.no_python_value", TypeError, lambda: bool(nisa.register_alloc(1))),
    ("register.no_python_value", TypeError, lambda: range(nisa.register_alloc(1))),
    ("register.no_python_value", TypeError, lambda: int(nisa.scalar_load(one()))),
    ("register.no_python_value", TypeError, lambda: nl.fori_loop(0, 2, lambda i: 3 if i else None)),
    ("lang.dynamic_var_not_python", TypeError, lambda: nisa.register_alloc(1) + 1),
    ("lang.dynamic_var_not_python", TypeError, lambda: nisa.register_alloc(1) == 1),
    ("scalar.dtypes", TypeError, lambda: nisa.scalar_load(one()) + 1.5),
    ("scalar.comparison", TypeError, lambda: (nisa.scalar_load(one()) < 2) + 1),
    ("ap.scalar_offset", TypeError, compared),
    ("register_alloc.arg", TypeError, lambda: nisa.register_alloc(1.5)),
    ("register_move.dst", TypeError, lambda: nisa.register_move(3, 4)),
    ("register_move.src", TypeError, lambda: nisa.register_move(nisa.register_alloc(), one())),
    ("register_load.dst", TypeError, lambda: nisa.register_load(3, one())),
    ("register_load.src", None, lambda: nisa.register_load(nisa.register_alloc(), many())),
    ("register.no_psum", None, loaded_from_psum),
    ("register_store.src", TypeError, lambda: nisa.register_store(one(), 3)),
    ("register_store.dst", None, lambda: nisa.register_store(many(), nisa.register_alloc(1))),
    ("scalar_load.src", None, lambda: nisa.scalar_load(many())),
    ("scalar_store.value", TypeError, lambda: nisa.scalar_store(one(), 3)),
    ("scalar_store.dst", None, lambda: nisa.scalar_store(many(), nisa.scalar_load(one()))),
    ("scalar_store.dst", TypeError, lambda: nisa.scalar_store(one(), nisa.register_alloc(1))),
    ("lang.fori_loop_step", AssertionError, lambda: nl.fori_loop(0, 2, lambda i: None, 0)),
    ("lang.fori_loop_step", AssertionError, lambda: nl.fori_loop(0, 2, lambda i: None, nisa.register_alloc(1))),
    ("lang.fori_loop_bounds", TypeError, lambda: nl.fori_loop(0, one(), lambda i: None)),
    ("lang.fori_loop_bounds", TypeError, lambda: nl.fori_loop(0, 2.0, lambda i: None)),
    ("lang.fori_loop_no_return", None, lambda: nl.fori_loop(0, 2, lambda i: 3)),
    ("lang.while_loop_body", TypeError, lambda: nl.while_loop(3, lambda r: r)),
    ("lang.while_loop_body", TypeError, lambda: nl.while_loop(nisa.register_alloc(1), lambda r: None)),
    ("lang.no_reorder_no_dynamic", None, in_order),
    ("lang.loop_body_tensor_scope", None, lambda: loop_with_tile(lambda t: nisa.memset(t, 2.0))),
    ("kernel.operand_type", TypeError, lambda: nisa.memset(nisa.register_alloc(1), 2.0)),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "kind", "act"), REFUSED, ids=[f"{r}-{i}" for i, (r, *_) in enumerate(REFUSED)])
def test_refused_with_its_rule(rule, kind, act):
    def kernel(x):
        act()

    with pytest.raises(NkiError) as caught:
        nki_sim.run(kernel, ROWS)
    assert caught.value.diagnosis.rule.id == rule
    assert kind is None or isinstance(caught.value, kind)
    assert caught.value.diagnosis.sites


def test_reading_a_register_that_was_never_written_is_reported():
    def kernel(x):
        t = sb(1, 1, dt=nl.int32)
        nisa.register_store(t, nisa.register_alloc())
        out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
        nl.store(out, t)
        return out

    with pytest.warns(nki_sim.NkiWarning, match="never written"):
        run = nki_sim.run(kernel, ROWS)
    assert [f.rule.id for f in run.findings] == ["register.uninitialised"]


def test_registers_are_told_with_what_they_hold():
    text = nki_sim.run(sum_rows, ROWS, number(1), number(3), 1).program.listing()
    assert "register_load  register (3) ← tile" in text

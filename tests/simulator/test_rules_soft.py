"""Rules about names, registers, loops and order: those that report, and those that no single instruction breaks."""

import importlib.util

import nki.isa as nisa
import nki.language as nl
import nki.typing as nt
import nki_sim
import numpy as np
import pytest
from kernels import hb, ld, ps, sb
from nki_sim.errors import NkiImportError
from references import run
from rulebook import Book, hx, v

book = Book()
ONE = np.ones((16, 8), np.float32)
NUMBER = np.array([[3]], np.int32)


def findings(kernel, *args, target="trn2"):
    """The ids of what is reported."""
    with pytest.warns(nki_sim.NkiWarning):
        return {d.rule.id for d in nki_sim.run(kernel, *args, target=target).findings}


@book.breaks("ndarray.name_unique")
def _(bad):
    nl.ndarray((16, 8), dtype=nl.float32, buffer=nl.sbuf, name="a")
    t = nl.ndarray((16, 8), dtype=nl.float32, buffer=nl.sbuf, name="a" if bad else "b")
    nisa.dma_copy(dst=t, src=hx(16, 8))
    return t, v(16, 8)


@book.breaks("hw.engine_regs_64")
def _(bad):
    kept = [nisa.register_alloc(i) for i in range(65 if bad else 64)]
    t = sb(1, 1, dt=nl.int32)
    nisa.register_store(t, kept[63])
    return t, 63


def test_registers_that_are_let_go_do_not_count():
    def kernel(data):
        for i in range(200):
            nisa.register_alloc(i)
        return data

    run(kernel, ONE)


@book.breaks("ap.vector_offset_stride")
def _(bad):
    table, index, t = hx(16, 8), sb(4, 1, dt=nl.int32), sb(4, 8)
    nisa.iota(dst=index, pattern=[[0, 1]], offset=2, channel_multiplier=3)
    nisa.dma_copy(dst=t, src=table.ap([[16 if bad else 8, 4], [1, 8]], vector_offset=index))
    return t, v(16, 8)[2:12:3]


@book.breaks("tensor.reinterpret_plus_vector_select")
def _(bad):
    table, index, t = hx(16, 8), sb(4, 1, dt=nl.int32), sb(4, 8, dt=nl.int32)
    nisa.iota(dst=index, pattern=[[0, 1]], offset=2, channel_multiplier=3)
    if bad:
        rows = table.vector_select(0, index).view(nl.int32)
    else:
        rows = table.view(nl.int32).vector_select(0, index)
    nisa.dma_copy(dst=t, src=rows)
    return t.view(nl.float32), v(16, 8)[2:12:3]


@book.breaks("dtype.e8m0_scale_only", on="trn3", elsewhere="trn1 trn2")
def _(bad):
    scales, t = sb(16, 8, dt=nl.float8_e8m0fnu), sb(16, 8)
    nisa.memset(dst=scales, value=1.0)
    plain = sb(16, 8)
    nisa.tensor_copy(dst=plain, src=scales)
    nisa.tensor_scalar(dst=t, data=scales if bad else plain, op0=nl.multiply, operand0=2.0)
    return t, 2.0


# -- loops ---------------------------------------------------------------------------------------------------------------


def counted(body, *, frozen=None):
    """A kernel whose loop runs to a number that is known on the device only."""

    def kernel(number):
        out, upper = hb(1, 1, dt=nl.int32), nisa.register_alloc()
        nisa.register_load(upper, ld(number))
        body(out, upper)
        return out

    return kernel


def test_the_number_of_a_fori_loop_is_read_only():
    def body(out, upper):
        kept = nisa.register_alloc(0)

        def step(i):
            nisa.register_move(i if wrong else kept, 7)
            nisa.register_store(out, i)

        nl.fori_loop(0, upper, step)

    wrong = False
    assert run(counted(body), NUMBER) == 2
    wrong = True
    assert findings(counted(body), NUMBER) == {"lang.fori_loop_var_readonly"}


def test_the_number_of_a_dynamic_range_is_not_written():
    def body(out, upper):
        other = nisa.register_alloc(0)
        for i in nl.dynamic_range(upper):
            if load:
                nisa.register_load(i if wrong else other, ld_one())
            else:
                nisa.register_move(i if wrong else other, 7)
            nisa.register_store(out, i)

    def ld_one():
        t = sb(1, 1, dt=nl.int32)
        nisa.memset(dst=t, value=1)
        return t

    for load in (False, True):  # noqa: B007 - the body reads it
        wrong = False
        assert findings(counted(body), NUMBER) == {"lang.dynamic_frontend"}
        wrong = True
        with (
            pytest.warns(nki_sim.NkiWarning),
            pytest.raises(AssertionError, match="register of an nl") as caught,
        ):
            nki_sim.run(counted(body), NUMBER)
        assert caught.value.diagnosis.rule.id == "lang.dynamic_range_var_frozen"


def test_a_dynamic_range_in_the_body_of_a_loop():
    def body(out, upper):
        def step(i):
            for _ in nl.dynamic_range(upper):
                nisa.register_store(out, i)

        nl.fori_loop(0, upper, step)

    with pytest.raises(nki_sim.NkiValidationError, match="inside of a loop's body") as caught:
        nki_sim.run(counted(body), NUMBER)
    assert caught.value.diagnosis.rule.id == "lang.nested_dynamic_range"


def order(where, kind=nisa.dependency.runtime):
    def kernel(data):
        t, out = sb(16, 8), hb(16, 8)
        before = nisa.memset(dst=t, value=1.0)
        inside = []

        def body(_):
            first = nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
            inside.append(first)
            second = nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
            if where == "same":
                second.depends_on(first, kind=kind)
            if where == "enclosing":
                second.depends_on(before, kind=kind)

        nl.fori_loop(0, 3, body)
        after = nisa.dma_copy(dst=out, src=t)
        if where == "out of":
            after.depends_on(inside[0], kind=kind)
        return out

    return kernel


@pytest.mark.parametrize("where", ["same", "enclosing"])
def test_dependencies_within_a_loop_and_from_around_it(where):
    assert (run(order(where), ONE) == 7).all()


def test_no_dependency_out_of_a_loop():
    with pytest.raises(nki_sim.NkiValidationError, match="in the body of a loop that dma_copy is not in") as caught:
        run(order("out of"), ONE)
    assert caught.value.diagnosis.rule.id == "sched.depends_on_nesting"
    assert (run(order("out of", nisa.dependency.schedule), ONE) == 7).all()


# -- around kernels --------------------------------------------------------------------------------------------------------


def test_an_argument_of_another_shape_than_its_annotation():
    def kernel(data: nt.tensor[16, 8]):
        return data

    run(kernel, ONE)
    assert findings(kernel, ONE[:4]) == {"kernel.nt_tensor_annotation"}

    def loose(data: nt.tensor, n: "nt.tensor[1]" = 3):
        return data

    run(loose, ONE)


def test_the_old_compiler_is_not_imported_in_a_kernel():
    if importlib.util.find_spec("neuronxcc") is not None:
        pytest.skip("a neuronxcc is installed")

    def kernel(data):
        import neuronxcc.nki  # noqa: F401

        return data

    with pytest.raises(NkiImportError, match="import nki, nki") as caught:
        run(kernel, ONE)
    assert caught.value.diagnosis.rule.id == "kernel.legacy_namespace"
    with pytest.raises(ModuleNotFoundError, match="neuronxcc"):
        import neuronxcc  # noqa: F401


@pytest.mark.parametrize(("setting", "banks"), [("1", 7), ("true", 7), ("", 8)])
def test_a_bank_is_kept_for_transposes(monkeypatch, setting, banks):
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", setting)

    def kernel(data):
        kept = [ps(128, 512) for _ in range(count)]
        for t in kept:
            nisa.memset(dst=t, value=0.0)
        for t in kept:
            nisa.tensor_copy(dst=sb(128, 512), src=t)
        return data

    count = banks
    run(kernel, ONE)
    count = banks + 1
    with pytest.raises(nki_sim.NkiValidationError) as caught:
        run(kernel, ONE)
    assert caught.value.diagnosis.rule.id == "hw.psum.capacity_enforced"


@book.rejects()
def test_breaking_a_limit(case, target):
    with pytest.raises(case.error) as caught:
        case.run(target, bad=True)
    assert caught.value.diagnosis.rule.id == case.rule


@book.accepts()
def test_just_inside(case, target, bad):
    case.run(target, bad)

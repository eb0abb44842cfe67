"""What callers get wrong: each either works as documented or says so, and the caller's arrays stay as they were."""

import collections
import dataclasses

import ml_dtypes
import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from kernels import hb, ld, ps, sb, st
from nki_sim import NkiError, NkiValidationError, NkiWarning
from nki_sim.errors import NkiNameError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@nki.jit
def double(x):
    t = ld(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2)
    return st(t)


@nki.jit
def increment(x):
    t = ld(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1)
    nisa.dma_copy(dst=x, src=t)


def refuses(call, rule, error=NkiValidationError):
    """The text of the error; the rule is ``rule``."""
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, NkiError), repr(caught.value)
    assert caught.value.diagnosis.rule.id == rule, str(caught.value)
    return str(caught.value)


# --- arrays ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.complex64, object, np.longdouble, "U3", "datetime64[s]"])
def test_dtypes_that_the_hardware_does_not_have(dtype):
    x = np.zeros((2, 2), dtype)
    text = refuses(lambda: double(x), "dtype.supported_list", TypeError)
    assert "argument x" in text
    if dtype is np.float64:
        assert "float32" in text


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3, np.int8, np.uint16, np.int32])
def test_dtypes_that_it_has(dtype):
    x = np.array([[1, 2], [3, 4]], dtype)
    got = double(x)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got.astype(np.float32), 2 * x.astype(np.float32))


def test_booleans_come_back_as_booleans():
    def kernel(x):
        return st(ld(x))

    x = np.array([[True, False], [False, True]])
    got = nki_sim.run(kernel, x).result
    assert got.dtype == np.bool_
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("shape", [(), (0,), (4, 0), (0, 4)])
def test_empty_and_zero_dimensional_arrays(shape):
    assert "argument x has shape" in refuses(lambda: double(np.zeros(shape, np.float32)), "tensor.shape_positive")


@pytest.mark.parametrize(
    "x",
    [np.asfortranarray(X), X[::-1], X[:, ::-1], X[:, ::2], X.T, np.broadcast_to(X[:1], (3, 4)), X.astype(">f4")],
    ids=["fortran", "rows backwards", "columns backwards", "strided", "transposed", "broadcast", "big endian"],
)
def test_any_layout_of_the_callers_array(x):
    np.testing.assert_array_equal(double(x), 2 * np.asarray(x, np.float32))


@pytest.mark.parametrize("make", [np.asfortranarray, lambda a: a.copy()[::-1], lambda a: np.repeat(a, 2, 1)[:, ::2],
                                  lambda a: a.astype(">f4")])  # fmt: skip
def test_a_kernel_writes_its_input_in_any_layout(make):
    x = make(X.copy())
    want = x + 1
    increment(x)
    np.testing.assert_array_equal(x, want)


def test_a_read_only_array_can_be_read_and_not_written():
    x = X.copy()
    x.flags.writeable = False
    np.testing.assert_array_equal(double(x), 2 * X)
    text = refuses(lambda: increment(x), "kernel.read_only_argument")
    assert "argument x" in text and "line" in text
    np.testing.assert_array_equal(x, X)


def test_what_a_kernel_does_not_write_stays():
    x = X.copy()
    got = double(x)
    got[...] = -1
    np.testing.assert_array_equal(x, X)


def test_an_input_that_is_returned_is_a_copy():
    def kernel(x):
        return x

    x = X.copy()
    got = nki_sim.run(kernel, x).result
    np.testing.assert_array_equal(got, X)
    got[...] = -1
    np.testing.assert_array_equal(x, X)


def test_an_error_halfway_leaves_the_inputs_as_they_were():
    def kernel(x):
        t = ld(x)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1)
        nisa.dma_copy(dst=x, src=t)
        raise RuntimeError("halfway")

    x = X.copy()
    with pytest.raises(RuntimeError, match="halfway"):
        nki_sim.run(kernel, x)
    np.testing.assert_array_equal(x, X)
    increment(x)
    np.testing.assert_array_equal(x, X + 1)


def test_after_an_error_the_next_kernel_runs():
    refuses(lambda: double(np.zeros((200, 4), np.float32)), "hw.partition_dim_le_128")
    np.testing.assert_array_equal(double(X), 2 * X)


def test_the_same_array_twice_is_one_tensor():
    def kernel(a, b):
        assert a is b
        t = ld(a)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1)
        nisa.dma_copy(dst=a, src=t)
        return st(ld(b))

    x = X.copy()
    np.testing.assert_array_equal(nki_sim.run(kernel, x, x).result, X + 1)
    np.testing.assert_array_equal(x, X + 1)


def test_nan_and_infinity_go_through():
    x = np.array([[np.nan, np.inf, -np.inf, 0.0]], np.float32)
    np.testing.assert_array_equal(double(x), 2 * x)


def test_arrays_in_tuples_dicts_and_named_tuples():
    Pair = collections.namedtuple("Pair", "left right")

    def kernel(pair, more, *rest, **named):
        t = ld(pair.left)
        for other in (pair.right, more["a"], more["b"][0], *rest, named["last"]):
            nisa.tensor_tensor(dst=t, data1=t, data2=ld(other), op=nl.add)
        return st(t)

    got = nki_sim.run(kernel, Pair(X, X), {"a": X, "b": [X, 3]}, X, X, last=X).result
    np.testing.assert_array_equal(got, 7 * X)


def test_results_in_named_tuples():
    Pair = collections.namedtuple("Pair", "left right")

    def kernel(nested):
        [[x, y]] = nested
        return Pair(st(ld(x)), st(ld(y)))

    got = nki_sim.run(kernel, [[X, X + 1]]).result
    np.testing.assert_array_equal(got.left, X)
    np.testing.assert_array_equal(got.right, X + 1)


def test_anything_with_array_or_dlpack():
    class Wrapped:
        def __array__(self, dtype=None, copy=None):
            return X.copy()

    class Exported:
        def __dlpack__(self, **how):
            return X.copy().__dlpack__(**how)

        def __dlpack_device__(self):
            return X.__dlpack_device__()

    np.testing.assert_array_equal(double(Wrapped()), 2 * X)
    np.testing.assert_array_equal(double(Exported()), 2 * X)


def test_scalars_are_constants():
    @dataclasses.dataclass
    class Config:
        factor: float

    def kernel(x, a, b, config):
        t = ld(x)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=a, op1=nl.add, operand1=b)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=config.factor)
        return st(t)

    got = nki_sim.run(kernel, X, np.float32(2), np.int64(3), Config(0.5)).result
    np.testing.assert_array_equal(got, (2 * X + 3) * np.float32(0.5))


# --- calls -----------------------------------------------------------------------------------------------------------


def test_a_call_that_does_not_fit_the_signature():
    assert "double(x)" in refuses(lambda: double(), "kernel.no_args_error", TypeError)
    assert "double(x)" in refuses(lambda: double(X, X), "kernel.arguments", TypeError)
    refuses(lambda: double(X, y=1), "kernel.arguments", TypeError)


def test_a_list_where_a_tensor_is_meant():
    def kernel(x):
        return st(ld(x))

    with pytest.raises((NkiError, AttributeError), match=r"shape|tile"):
        nki_sim.run(kernel, [[1.0, 2.0]])


def test_options_of_jit_that_are_gone():
    text = refuses(lambda: nki.jit(platform_target="trn1"), "kernel.platform_target_removed", TypeError)
    assert "platform_target" in text and "NEURON_PLATFORM_TARGET_OVERRIDE" in text


def test_the_mode_of_jit_is_ignored_with_a_warning():
    with pytest.warns(DeprecationWarning, match="mode"):
        made = nki.jit(mode="trace")(lambda x: st(ld(x)))
    assert isinstance(made, nki.Kernel)
    np.testing.assert_array_equal(made(X), X)


def test_jit_with_configurations():
    made = nki.jit(compile_config=nki.compiler.CompileConfig())(lambda x: st(ld(x)))
    np.testing.assert_array_equal(made(X), X)
    with pytest.raises(TypeError, match="compile_config is a dict") as caught:
        nki.jit(compile_config={})(lambda x: x)
    assert caught.value.diagnosis.rule.id == "kernel.config_type"


@pytest.mark.parametrize("option", ["compile_config", "specialization_config"])
def test_a_kernel_in_a_kernel_with_another_configuration(option):
    other = {
        "compile_config": nki.compiler.CompileConfig(dead_code_elim=False),
        "specialization_config": nki.compiler.SpecializationConfig(allow_nested_config_override=True),
    }[option]
    inner = nki.jit(lambda x: st(ld(x)), **{option: other})
    same = nki.jit(lambda x: inner(x), **{option: other})
    np.testing.assert_array_equal(same(X), X)
    outer = nki.jit(lambda x: inner(x))
    refuses(lambda: outer(X), "kernel.nested_config")
    loose = nki.compiler.SpecializationConfig(allow_nested_config_override=True)
    tolerant = nki.jit(lambda x: inner(x), specialization_config=loose)
    if option == "compile_config":
        with pytest.warns(nki_sim.NkiWarning, match="another compile_config"):
            np.testing.assert_array_equal(tolerant(X), X)


@pytest.mark.parametrize("n", [0, 3, -1, 1.0, "1", True, (1, 1), None])
def test_a_wrong_number_of_logical_cores(n):
    refuses(lambda: double[n], "kernel.lnc_values")


def test_one_logical_core_and_two():
    np.testing.assert_array_equal(double[1](X), 2 * X)
    np.testing.assert_array_equal(double[(1,)](X), 2 * X)
    with pytest.warns(nki_sim.NkiWarning, match="with the same values"):  # both write all of the output
        np.testing.assert_array_equal(double[2](X), 2 * X)


def test_two_logical_cores_do_not_exist_on_trn1(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    refuses(lambda: double[2](X), "kernel.lnc_values")


@pytest.mark.parametrize(("name", "target"), [("trn1", "trn1"), ("inf2", "trn1"), ("gen3", "trn2"), ("trn3", "trn3"),
                                              ("GEN4", "trn3"), ("", "trn2")])  # fmt: skip
def test_the_target_comes_from_the_environment(monkeypatch, name, target):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", name)
    assert nki_sim.run(double, X).core.target == target
    assert nki_sim.run(double, X, target="trn3").core.target == "trn3"


def test_an_unknown_target():
    with pytest.raises(ValueError, match="unknown target 'trn9'; known targets are trn1"):
        nki_sim.run(double, X, target="trn9")


# --- results ---------------------------------------------------------------------------------------------------------


def returning(value):
    def kernel(x):
        return value(ld(x))

    return lambda: nki_sim.run(kernel, X)


def test_a_tile_on_chip_is_no_result():
    text = refuses(returning(lambda t: t), "kernel.output_shared_hbm")
    assert "sbuf float32 [3 × 4]" in text and "nl.shared_hbm" in text
    refuses(returning(lambda t: (st(t), t)), "kernel.output_shared_hbm")
    refuses(returning(lambda t: ps(3, 4)), "kernel.output_shared_hbm")
    refuses(returning(lambda t: nl.ndarray((3, 4), dtype=nl.float32, buffer=nl.hbm)), "kernel.output_shared_hbm")


@pytest.mark.parametrize("value", [3, 2.5, "text", np.zeros(3)], ids=str)
def test_a_python_value_is_no_result(value):
    assert type(value).__name__ in refuses(returning(lambda t: value), "kernel.output_kind", TypeError)


def test_a_kernel_without_effect():
    with pytest.warns(NkiWarning, match="returns nothing and writes none of its inputs") as caught:
        run = nki_sim.run(lambda x: None, X)
    assert run.result is None and run.outputs == ()
    assert caught[0].message.diagnosis.rule.id == "kernel.no_effect"
    with pytest.raises(NkiValidationError, match="returns nothing"):
        nki_sim.run(lambda x: None, X, strict=True)


def test_a_kernel_that_writes_an_input_and_returns_nothing_is_fine():
    x = X.copy()
    run = nki_sim.run(increment, x, strict=True)
    assert run.result is None
    np.testing.assert_array_equal(x, X + 1)


def test_several_results_keep_their_structure():
    def kernel(x):
        t = ld(x)
        return st(t), [st(t), st(t)]

    a, rest = nki_sim.run(kernel, X).result
    for got in (a, *rest):
        np.testing.assert_array_equal(got, X)
    assert isinstance(rest, list)


def test_an_output_written_in_part():
    def kernel(x):
        out = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.shared_hbm, name="answer")
        nisa.dma_copy(dst=out[0:3, :], src=ld(x))
        return out

    with pytest.warns(NkiWarning, match="12 of 16 elements of output answer written"):
        got = nki_sim.run(kernel, X).result
    np.testing.assert_array_equal(got[:3], X)
    assert np.isnan(got[3]).all()


def test_simulate_gives_arrays():
    np.testing.assert_array_equal(nki.simulate(double)(X), 2 * X)
    np.testing.assert_array_equal(nki.simulate(lambda x: st(ld(x)))(X), X)


def test_a_kernel_called_inside_a_kernel_is_inlined():
    def kernel(x):
        inner = double(x)
        return st(ld(inner))

    np.testing.assert_array_equal(nki_sim.run(kernel, X).result, 2 * X)


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        (nisa, "multiply", "nisa.tensor_scalar"),
        (nisa, "max", "nisa.tensor_reduce"),
        (nisa, "exp", "nisa.activation(dst=…, op=nl.exp, data=…)"),
        (nisa, "softmax", "nl.softmax"),
        (nisa, "tensor_cpy", "did you mean nki.isa.tensor_copy?"),
        (nl, "arange", "nl.ds"),
        (nl, "par_dim", "dimension 0"),
        (nl, "dot", "nisa.nc_matmul"),
        (nl, "soft_max", "did you mean nki.language.softmax?"),
        (nki, "benchmark", "nki.simulate"),
        (nl, "qqqq", "see help(nki.language)"),
    ],
)
def test_a_name_that_the_api_does_not_have(module, name, instead):
    with pytest.raises(NkiNameError) as caught:
        getattr(module, name)
    assert instead in str(caught.value)
    assert not hasattr(module, name)


def test_a_wrong_name_in_a_kernel_points_at_its_line():
    def kernel(x):
        t = ld(x)
        return nisa.multiply(t, 2.0)

    with pytest.raises(NkiNameError) as caught:
        nki_sim.run(kernel, X)
    assert caught.value.diagnosis.line == kernel.__code__.co_firstlineno + 2


def test_a_type_error_of_the_kernels_own_stays_what_it_is():
    def kernel(x):
        return st(ld(x)[:, 0 : len(3)])

    with pytest.raises(TypeError, match="object of type 'int' has no len") as caught:
        nki_sim.run(kernel, X)
    assert not isinstance(caught.value, NkiError)


# --- outside a kernel --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda: nl.ndarray((2, 2), dtype=nl.float32),
        lambda: nl.zeros((2, 2), dtype=nl.float32),
        lambda: nisa.memset(dst=None, value=0),
        lambda: nl.program_id(0),
    ],
)
def test_calls_outside_a_kernel(call):
    text = refuses(call, "kernel.outside", NkiError)
    assert "@nki.jit" in text


def test_constants_can_be_read_outside_a_kernel():
    assert nl.tile_size.pmax == 128
    assert nisa.get_nc_version() is nisa.nc_version.gen3
    assert (nl.float32, nl.bfloat16) == ("float32", "bfloat16")


def test_a_tensor_of_an_earlier_run():
    kept = []

    def first(x):
        kept.append(ld(x))
        return st(kept[0])

    def second(x):
        t = sb(3, 4)
        nisa.tensor_copy(dst=t, src=kept[0])
        return st(t)

    nki_sim.run(first, X)
    text = refuses(lambda: nki_sim.run(second, X), "kernel.operand_type")
    assert "another kernel run" in text


# --- numbers for enumeration members -----------------------------------------------------------------------------------


def test_the_number_of_a_member_is_taken_with_a_warning():
    def kernel(x):
        t = sb(3, 4)
        nisa.dma_copy(dst=t, src=x, dge_mode=3)
        return st(t)

    with pytest.warns(NkiWarning, match="dge_mode is the number 3") as caught:
        np.testing.assert_array_equal(nki_sim.run(kernel, X).result, X)
    assert "nisa.dge_mode.none" in str(caught[0].message)


# --- malformed parameters ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("issue", "rule"),
    [
        (lambda t, p: nisa.nc_matmul(dst=p, stationary=t, moving=t, tile_position=(0, 0), tile_size=(64,)), "tile.both"),
        (lambda t, p: nisa.nc_matmul(dst=p, stationary=t, moving=t, tile_position=64, tile_size=(64, 64)), "tile.both"),
        (lambda t, p: nisa.tensor_reduce(dst=t, op=nl.add, data=t, axis="x"), "tensor_reduce.axis"),
        (lambda t, p: nisa.tensor_reduce(dst=t, op=nl.add, data=t, axis=1.0), "tensor_reduce.axis"),
        (lambda t, p: nisa.tensor_reduce(dst=t, op=nl.add, data=t, axis=()), "tensor_reduce.axis"),
        (lambda t, p: nisa.iota(dst=t, pattern=[1, 4]), "iota.pattern"),
        (lambda t, p: nisa.iota(dst=t, pattern=[]), "iota.pattern"),
        (lambda t, p: nisa.nc_stream_shuffle(dst=t, src=t, shuffle_mask=None), "nc_stream_shuffle.mask"),
        (lambda t, p: nisa.nc_stream_shuffle(dst=t, src=t, shuffle_mask=["0"] * 32), "nc_stream_shuffle.mask"),
        (lambda t, p: nisa.dma_transpose(dst=t, src=t, axes=1), "dma_transpose.axes"),
        (lambda t, p: nl.sum(t, axis="x"), "nl.reduce_axes"),
        (lambda t, p: nl.sum(t, axis=1.0), "nl.reduce_axes"),
        (lambda t, p: nl.ndarray(4, dtype=nl.float32), "tensor.shape"),
        (lambda t, p: nl.ndarray("44", dtype=nl.float32), "tensor.shape"),
        (lambda t, p: nl.full((4, 4), "x", dtype=nl.float32), "kernel.operand"),
        (lambda t, p: nl.load(None), "nl.load"),
        (lambda t, p: nl.copy(3), "nl.copy"),
        (lambda t, p: nl.exp("x"), "kernel.operand"),
        (lambda t, p: nl.where(nl.zeros_like(t), "x", 0.0), "kernel.operand"),
        (lambda t, p: nl.matmul(t, None, transpose_x=True), "kernel.operand"),
        (lambda t, p: nl.broadcast_to(None, (4, 4)), "nl.broadcast_to"),
        (lambda t, p: nl.load(t, dtype="float33"), "nl.load_hbm"),
        (lambda t, p: nl.copy(t, dtype="float33"), "dtype.supported"),
        (lambda t, p: nl.shared_identity_matrix(0), "shared_identity"),
        (lambda t, p: t.depends_on(p), ""),
    ],
)
def test_malformed_parameters_are_named_at_their_line(issue, rule):
    def kernel(x):
        issue(sb(4, 4), ps(4, 4))
        return hb(1, 1)

    with pytest.raises((NkiError, AttributeError)) as caught:
        nki_sim.run(kernel, X)
    if rule:
        assert caught.value.diagnosis.rule.id.startswith(rule) or rule in caught.value.diagnosis.rule.id
        assert caught.value.diagnosis.line is not None


def test_instructions_are_ordered_by_hand():
    def kernel(x):
        t = ld(x)
        first = nisa.memset(dst=t[:, 0:1], value=1.0)
        second = nisa.memset(dst=t[:, 1:2], value=2.0).depends_on(first)
        assert isinstance(second, nisa.memset)
        with pytest.raises(TypeError, match="depends_on takes instructions"):
            second.depends_on(t)
        return st(t)

    got = nki_sim.run(kernel, X).result
    assert (got[:, 0] == 1).all() and (got[:, 1] == 2).all()


def test_a_schedule_orders_named_instructions():
    def kernel(x):
        a, b = ld(x), sb(*x.shape)
        nisa.memset(b, 1.0, name="fill", engine=nisa.engine.gpsimd)
        nisa.tensor_scalar(dst=a, data=a, op0=nl.multiply, operand0=2.0, name="scale")
        nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add, name="add")
        return st(a)

    made = nki.jit(kernel).with_schedule([("scale", "fill"), ("add", ["scale", "fill"])])
    run = nki_sim.run(made, X)
    np.testing.assert_array_equal(run.result, 2 * X + 1)
    assert (1, 2) in run.timeline().edges and run.timeline().start[2] >= run.timeline().done[1]
    refuses(lambda: nki.jit(kernel).with_schedule([("scale", "fil")])(X), "sched.with_schedule")
    refuses(lambda: nki.jit(kernel).with_schedule(["scale"]), "sched.with_schedule")


def test_an_unknown_name_in_a_from_import_is_explained():
    with pytest.raises(ImportError, match=r"nisa\.tensor_scalar"):
        from nki.isa import multiply  # noqa: F401


@pytest.mark.parametrize("cores", [1, 2])
def test_what_is_no_operator_is_said_at_the_users_line(cores):
    @nki.jit
    def kernel(x):
        t = nl.load(x)
        nisa.tensor_tensor(dst=t, data1=t, data2=t, op="add")
        return t

    with pytest.raises(NkiError, match="op must be an object") as raised:
        nki_sim.run(kernel[cores], np.ones((128, 8), np.float32), target="trn2")
    assert raised.value.diagnosis.site.function == "kernel"


def test_what_is_no_operator_of_a_collective_is_said_at_the_users_line():
    @nki.jit
    def kernel(x):
        mine, total = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name=name) for name in ("mine", "total"))
        nisa.dma_copy(dst=mine, src=x)
        ncc.all_reduce(srcs=[mine], dsts=[total], replica_group=ncc.ReplicaGroup([[0, 1]]), op="add")
        return total

    with pytest.raises(NkiError, match="op must be an object") as raised:
        nki_sim.run_ranks(kernel, [(np.ones((128, 8), np.float32),)] * 2, ranks=2)
    assert raised.value.diagnosis.site.function == "kernel"

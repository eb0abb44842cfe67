"""``torch_neuronx.nki_op`` and ``wrap_nki``."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason='PyTorch is not installed: pip install "nki-nb[torch]"')

from nki_sim import NkiWarning
from nki_sim.errors import NkiCapacityError
from nki_sim.torch import compile as backend
from torch_kernels import add, add_kernel, both, both_kernel, hoarding_kernel, increment, scaled, step
from torch_neuronx import nki_op, wrap_nki


@pytest.fixture
def x():
    torch.manual_seed(4)
    return torch.rand(30, 18, device="neuron")


def test_is_called_by_name_and_as_one_of_pytorchs(x):
    torch.testing.assert_close(add(x, x), 2 * x)
    torch.testing.assert_close(torch.ops.nki_nb_tests.add(x, x), 2 * x)
    more, twice = both(x)
    assert more.is_neuron and twice.dtype == torch.bfloat16


def test_writes_what_it_says(x):
    before = x.clone()
    assert increment(x) is None
    torch.testing.assert_close(x, before + 1)
    torch.ops.nki_nb_tests.increment(x[::2])
    torch.testing.assert_close(x[::2], before[::2] + 2)
    assert "Tensor(a0!) x" in str(torch.ops.nki_nb_tests.increment.default._schema)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_takes_lists_texts_and_defaults_and_may_write_and_return(compiled, x):
    torch._dynamo.reset()
    backend.register()
    called = torch.compile(lambda *args: step(*args), backend="neuron", fullgraph=True) if compiled else step
    written = x.clone()
    torch.testing.assert_close(called(written, [x, x[:, :1] + x], 2.0, "any"), 3 * x + 2 * x[:, :1])
    torch.testing.assert_close(written, x + 1)


def test_gradients_go_through_and_may_call_operators(x):
    w = x.clone().requires_grad_()
    made = scaled(add(w, x), 3.0)
    assert made.grad_fn is not None
    made.exp().sum().backward()
    torch.testing.assert_close(w.grad, 3 * (3 * (x + x)).exp())


def test_register_autograd_gives_back_what_it_decorates():
    @nki_op("nki_nb_tests::kept", mutates_args={})
    def kept(x: torch.Tensor) -> torch.Tensor:
        return add_kernel(x, x)

    @kept.register_autograd
    def backward(ctx, grad):
        return 2 * grad

    assert backward(None, 3) == 6


@pytest.mark.parametrize("device", ["neuron", "cpu"])
def test_opcheck_passes(device, x):
    x = x.to(device)
    for op, args in (
        (add, (x, x + 1)),
        (increment, (x.clone(),)),
        (both, (x,)),
        (scaled, (x, 3.0)),
        (step, (x.clone(), [x, x + 1], 2.0, "a")),
    ):
        found = torch.library.opcheck(op, args)
        assert set(found.values()) == {"SUCCESS"}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck's own, in PyTorch 2.14
def test_opcheck_passes_with_gradients_on_the_cpu(x):
    # on the device, opcheck says that its check of registrations is "NYI devices other than CPU/CUDA/XPU"
    w = x.cpu().requires_grad_()
    torch.library.opcheck(add, (w, w.detach().clone().requires_grad_()))
    torch.library.opcheck(scaled, (w, 3.0))
    others = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(scaled, (x.clone().requires_grad_(), 3.0), test_utils=others)


def test_meta_tensors_are_for_fake_fn_and_wrap_nki(x):
    assert scaled(x.to("meta"), 2.0).is_meta
    wrapped = wrap_nki(both_kernel)
    more, twice = wrapped(x.to("meta"))
    assert more.is_meta and more.shape == x.shape and twice.dtype == torch.bfloat16
    torch.testing.assert_close(wrapped(x), both_kernel(x))
    assert wrapped[1](x)[0].is_neuron and wrapped[(1,)](x)[1].is_neuron


def test_defining_it_again_takes_the_new_one(x):
    for factor in (2.0, 3.0):

        @nki_op("nki_nb_tests::again", mutates_args={})
        def again(x: torch.Tensor) -> torch.Tensor:
            return add_kernel(x, x, factor - 1.0)  # noqa: B023

        torch.testing.assert_close(again(x), factor * x)


def test_tiles_fit_as_the_environment_says(monkeypatch, x):
    @nki_op("nki_nb_tests::hoarded", mutates_args={})
    def hoarded(x: torch.Tensor) -> torch.Tensor:
        return hoarding_kernel(x)

    with pytest.raises(NkiCapacityError, match="NKI_SIM_FIT=compiler"):
        hoarded(x)
    monkeypatch.setenv("NKI_SIM_FIT", "compiler")
    with pytest.warns(NkiWarning, match=r"memory\.relisted"):
        torch.testing.assert_close(hoarded(x), 9 * x)

"""The ``neuron`` device: whatever PyTorch does elsewhere, it does here, with the same numbers as on the CPU."""

from __future__ import annotations

import copy
import gc
import io
import logging

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason='PyTorch is not installed: pip install "nki-nb[torch]"')

import torch_neuronx  # noqa: F401 - registers the device
from nki_sim.torch import dispatch
from torch_kernels import add, add_kernel

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch.func.jvp uses it

FACTORIES = {
    "zeros": lambda **k: torch.zeros(3, 5, **k),
    "ones": lambda **k: torch.ones(3, 5, **k),
    "full": lambda **k: torch.full((3, 5), 2.5, **k),
    "arange": lambda **k: torch.arange(7, **k),
    "linspace": lambda **k: torch.linspace(0, 1, 7, **k),
    "eye": lambda **k: torch.eye(3, 5, **k),
    "rand": lambda **k: torch.rand(3, 5, **k),
    "randn": lambda **k: torch.randn(3, 5, **k),
    "randint": lambda **k: torch.randint(0, 9, (3, 5), **k),
    "randperm": lambda **k: torch.randperm(9, **k),
    "triu_indices": lambda **k: torch.triu_indices(3, 5, **k),
    "tensor": lambda **k: torch.tensor([[1.0, 2.0], [3.0, 4.0]], **k),
    "as_tensor": lambda **k: torch.as_tensor(np.arange(5), **k),
    "bfloat16": lambda **k: torch.rand(3, 5, dtype=torch.bfloat16, **k),
    "float8": lambda **k: torch.rand(3, 5, **k).to(torch.float8_e4m3fn),
}
OPERATIONS = {
    "arithmetic": lambda x: (1 - x) * x / 3 + x.exp() - x.sqrt(),
    "matmul": lambda x: x @ x.t(),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "softmax": lambda x: torch.softmax(x, -1),
    "max": lambda x: x.max(0).indices,
    "sort": lambda x: x.sort(1).values,
    "topk": lambda x: torch.topk(x, 2).values,
    "where": lambda x: torch.where(x > 0.5, x, 0.0),
    "mask": lambda x: x[x > 0.5],
    "pick": lambda x: x[torch.tensor([2, 0])],
    "column": lambda x: x[:, None, 1],
    "gather": lambda x: x.gather(1, torch.zeros(4, 1, dtype=torch.int64, device=x.device)),
    "cat": lambda x: torch.cat([x, x.flip(0)]),
    "split": lambda x: torch.stack([part.sum() for part in x.split(2)]),
    "out": lambda x: torch.add(x, x, out=torch.empty(0, device=x.device)),
    "resize": lambda x: x.clone().resize_(2, 3),
    "permuted": lambda x: x.view(2, 2, 6).permute(2, 0, 1).reshape(6, 4),
    "bits": lambda x: x.view(torch.int32),
    "fft": lambda x: (torch.fft.fft(x).conj() * 2).imag,
    "std": lambda x: x.std(1),
    "convolution": lambda x: torch.nn.functional.conv2d(x[None, None], torch.ones(2, 1, 3, 3, device=x.device)),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    "vmap": lambda x: torch.vmap(lambda row: row * row.sum())(x),
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (x,))[1],
}


@pytest.fixture
def x():
    torch.manual_seed(1)
    return torch.rand(4, 6, device="neuron")


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES)
def test_creation_is_as_on_the_cpu_under_one_seed(make):
    torch.manual_seed(3)
    there = make(device="neuron")
    torch.manual_seed(3)
    here = make()
    assert there.device == torch.device("neuron", 0) and type(there) is torch.Tensor
    assert there.dtype == here.dtype and torch.equal(there.cpu().float(), here.float())


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_operations_have_the_numbers_of_the_cpu(operation, x):
    there = operation(x)
    assert there.device.type == "neuron"
    torch.testing.assert_close(there.cpu(), operation(x.cpu()))


def test_goes_there_and_back(x):
    here = x.cpu()
    assert here.device.type == "cpu" and x.to("neuron") is x and x.to("neuron:0") is x
    assert here.to("neuron").is_neuron and here.neuron().device == x.device
    assert here.to("neuron", torch.bfloat16).dtype == torch.bfloat16
    assert torch.zeros(4, 6).copy_(x).equal(here) and torch.zeros(4, 6, device="neuron").copy_(here).equal(x)
    assert x.to("meta").is_meta and x.tolist() == here.tolist() and float(x[1, 2]) == here[1, 2].item()


def test_views_share_memory(x):
    view = x[1:3].t()
    view.zero_()
    assert x[1:3].sum() == 0 and view._base is x and view.untyped_storage().data_ptr() == x.data_ptr()
    x[0, 0] = 5
    assert x.view(-1)[0] == 5 and x.detach()[0, 0] == 5
    del x
    assert view.t()[0, 0] == 0


def test_prints_with_its_device(x):
    assert repr(torch.tensor([1, 2], device="neuron")) == "tensor([1, 2], device='neuron:0')"
    assert "device='neuron:0', grad_fn=<SumBackward0>)" in repr((x.requires_grad_() * 2).sum())


def test_assert_close_compares_devices_too(x):
    torch.testing.assert_close(x, x.clone())
    torch.testing.assert_close(x, x.cpu(), check_device=False)
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(x, x + 1)
    with pytest.raises(AssertionError, match="'device' do not match"):
        torch.testing.assert_close(x, x.cpu())


def test_gradients_are_those_of_the_cpu(x):
    def loss(w):
        return (torch.sigmoid(w.exp() @ w.t())[0] ** 2).sum()

    there, here = x.clone().requires_grad_(), x.cpu().requires_grad_()
    loss(there).backward()
    loss(here).backward()
    assert there.grad.device.type == "neuron" and torch.equal(there.grad.cpu(), here.grad)
    assert torch.autograd.gradcheck(lambda a: torch.softmax(a @ a.t(), -1), x.double().requires_grad_())
    torch.utils.checkpoint.checkpoint(loss, there, use_reentrant=False).backward()
    assert torch.equal(there.grad.cpu(), 2 * here.grad)


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}], ids=str)
def test_modules_train_there(options):
    def trained(device):
        torch.manual_seed(5)
        norm, tied = torch.nn.LayerNorm(6), torch.nn.Linear(6, 6)
        model = torch.nn.Sequential(torch.nn.Linear(6, 6), norm, torch.nn.GELU(), tied)
        model[0].weight = tied.weight
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, **options)
        model.to(device)
        assert model[0].weight is tied.weight
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(torch.eye(6, device=device)), torch.arange(6, device=device)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        return model

    there = trained("neuron")
    assert all(p.device.type == "neuron" for p in there.parameters())
    for a, b in zip(there.to("cpu").parameters(), trained("cpu").parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_is_copied_saved_and_loaded(x):
    assert copy.deepcopy(x).equal(x) and copy.deepcopy(x).data_ptr() != x.data_ptr()
    assert copy.deepcopy(torch.nn.Linear(2, 2).to("neuron")).weight.is_neuron
    file = io.BytesIO()
    torch.save({"x": x}, file)
    for place, device in ((None, "neuron"), ("cpu", "cpu"), ("neuron", "neuron")):
        file.seek(0)
        loaded = torch.load(file, map_location=place)["x"]
        assert loaded.device.type == device and torch.equal(loaded.cpu(), x.cpu())


def test_device_module():
    assert torch.neuron.is_available() and torch.neuron.device_count() == 1 and torch.neuron.current_device() == 0
    torch.neuron.synchronize()
    state = torch.neuron.get_rng_state()
    first = torch.rand(3, device="neuron")
    torch.neuron.set_rng_state(state)
    assert torch.rand(3, device="neuron").equal(first)
    with torch.device("neuron"):
        assert torch.ones(2).is_neuron and torch.nn.Linear(2, 2).weight.is_neuron
    with pytest.raises(RuntimeError, match="one device"):
        torch.neuron.set_device(1)


def test_operations_on_the_cpu_are_said_once_if_asked(x, monkeypatch, caplog):
    monkeypatch.setenv(dispatch.SAYS_SO, "1")
    monkeypatch.setattr(dispatch, "_said", set())
    with caplog.at_level(logging.WARNING):
        x.cos()
        x.cos()
    said = [record.message for record in caplog.records]
    assert said == ["aten.cos.out: run by PyTorch's CPU kernel, not by the NeuronCore"]


PRECISIONS = {
    "matmul": (lambda x: x @ x, torch.bfloat16),
    "linear": (lambda x: torch.nn.Linear(6, 2, device=x.device)(x), torch.bfloat16),
    "lower, then full": (lambda x: torch.softmax(x @ x, 1), torch.float32),
    "full": (lambda x: x.to(torch.bfloat16).exp(), torch.float32),
    "widest": (lambda x: torch.cat([x.to(torch.bfloat16), x]), torch.float32),
    "as it comes": (lambda x: x.to(torch.bfloat16) * 2, torch.bfloat16),
    "integers": (lambda x: torch.arange(3, device=x.device).sum(), torch.int64),
    "float64": (lambda x: x.double() @ x.double(), torch.float64),
}


@pytest.mark.parametrize(("operation", "wanted"), PRECISIONS.values(), ids=PRECISIONS)
def test_autocast_gives_the_precisions_of_gpus(operation, wanted):
    x = torch.rand(6, 6, device="neuron")
    with torch.autocast("neuron", dtype=torch.bfloat16):
        assert operation(x).dtype == wanted


def test_autocast_leaves_operators_alone_and_gradients_in_their_precision():
    x = torch.rand(6, 6, device="neuron", requires_grad=True)
    with torch.autocast("neuron", dtype=torch.bfloat16):
        assert add(x, x).dtype == add_kernel(x, x).dtype == torch.float32
        made = (add(x, x) @ x).exp().sum()
        with torch.autocast("neuron", enabled=False):
            assert (x @ x).dtype == torch.float32
    made.backward()
    assert x.grad.dtype == torch.float32
    here = x.detach().cpu().requires_grad_()
    (2 * here.bfloat16() @ here.bfloat16()).float().exp().sum().backward()
    torch.testing.assert_close(x.grad.cpu(), here.grad, rtol=0.05, atol=0.5)


def test_memory_lives_as_long_as_autograd_needs_it():
    for _ in range(20):
        there = torch.rand(100, 100, device="neuron", requires_grad=True)
        here = there.detach().cpu().requires_grad_()
        losses = []
        for x in (there, here):
            y = (x * 2)[10:].t().exp()
            losses.append((y.sigmoid() * y).sum())
            del y
        gc.collect()
        others = [torch.full((100, 100), 7.0, device=device) for device in ("neuron", "cpu") for _ in range(10)]
        sum(loss.cpu() for loss in losses).backward()
        torch.testing.assert_close(there.grad.cpu(), here.grad)
        assert all(other.mean() == 7 for other in others)


def test_memory_is_given_back():
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100):
        torch.zeros(1024, 1024, device="neuron").exp_()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024

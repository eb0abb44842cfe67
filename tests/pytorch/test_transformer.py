"""A small transformer of NKI kernels trains on the simulator as its reference does in PyTorch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason='PyTorch is not installed: pip install "nki-nb[torch]"')

import nki_sim
import transformer


def made(maths):
    torch.manual_seed(0)
    return transformer.Transformer(maths)


@pytest.fixture(scope="module")
def reference():
    model = made(transformer.Reference)
    return model, transformer.train(model, "cpu")


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_trains_as_the_reference_does(compiled, reference, monkeypatch):
    torch._dynamo.reset()
    model = made(transformer.Kernels).to("neuron")
    called = torch.compile(model, backend="neuron", fullgraph=True) if compiled else model
    losses = transformer.train(called, "neuron")
    wanted, wanted_losses = reference
    assert losses[-1] < losses[0] / 2
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted_losses))
    for a, b in zip(model.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(a.cpu(), b)


@pytest.mark.parametrize("name", ["norm", "mlp", "attention"])
def test_gradients_of_each_part(name):
    shapes = {"norm": [(5, 8), (1, 8)], "mlp": [(5, 8), (8, 12), (12, 8)], "attention": [(2, 5, 4)] * 3}[name]
    torch.manual_seed(1)
    here = [torch.randn(shape, requires_grad=True) for shape in shapes]
    there = [value.detach().to("neuron").requires_grad_() for value in here]
    for maths, values in ((transformer.Reference, here), (transformer.Kernels, there)):
        mask = torch.zeros(5, 5, device=values[0].device).fill_(transformer.FAR).triu(1)
        rest = (mask, 0.5) if name == "attention" else ()
        getattr(maths, name)(*values, *rest).square().sum().backward()
    for a, b in zip(there, here, strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=1e-5, atol=1e-4)


def test_a_step_can_be_profiled():
    model = made(transformer.Kernels).to("neuron")
    told = nki_sim.profile_step(lambda: transformer.train(model, "neuron", steps=1))
    counts = {kernel: sum(c.count for c in told.calls if c.kernel == kernel) for kernel in {c.kernel for c in told.calls}}
    assert counts == {
        "norm_kernel": 5, "norm_backward_kernel": 5, "attention_kernel": 2, "attention_backward_kernel": 2,
        "mlp_kernel": 2, "mlp_backward_kernel": 2, "matmul_kernel": 15,
    }  # fmt: skip
    assert told.result[0] > 0 and told.total_time > 33 * 15_000

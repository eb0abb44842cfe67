"""What the documentation's page on NKI kernels from torch-neuronx shows, in one script: nothing in it is about a simulator."""

import nki
import nki.isa as nisa
import nki.language as nl
import torch
from torch_neuronx import nki_op, wrap_nki


@nki.jit
def scaled_sum_kernel(left, right, scale):
    out = nl.ndarray(left.shape, dtype=left.dtype, buffer=nl.shared_hbm)
    for start in range(0, left.shape[0], nl.tile_size.pmax):
        rows = slice(start, min(start + nl.tile_size.pmax, left.shape[0]))
        a, b = nl.load(left[rows]), nl.load(right[rows])
        made = nl.ndarray(a.shape, dtype=left.dtype, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(dst=made, data=b, op0=nl.multiply, operand0=scale, op1=nl.add, operand1=a)
        nl.store(out[rows], made)
    return out


@nki.jit
def halve_kernel(x):
    for start in range(0, x.shape[0], nl.tile_size.pmax):
        rows = slice(start, min(start + nl.tile_size.pmax, x.shape[0]))
        nl.store(x[rows], nl.multiply(nl.load(x[rows]), 0.5))


@nki.jit
def sine_kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.sin(nl.load(x)))
    return out


@nki.jit
def cosine_kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.cos(nl.load(x)))
    return out


@nki_op("how_to::scaled_sum", mutates_args={}, fake_fn=lambda left, right, scale: torch.empty_like(left))
def scaled_sum(left: torch.Tensor, right: torch.Tensor, scale: float) -> torch.Tensor:
    return scaled_sum_kernel(left, right, scale)


@nki_op("how_to::total", mutates_args={})
def total(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return scaled_sum_kernel(left, right, 1.0)


@total.register_autograd
def total_backward(ctx, grad_output):
    return grad_output, grad_output


@nki_op("how_to::halve", mutates_args={"x"})
def halve(x: torch.Tensor) -> None:
    halve_kernel(x)


@nki_op("how_to::cosine", mutates_args={})
def cosine(x: torch.Tensor) -> torch.Tensor:
    return cosine_kernel(x)


@nki_op("how_to::sine", mutates_args={})
def sine(x: torch.Tensor) -> torch.Tensor:
    return sine_kernel(x)


def keep_input(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def sine_backward(ctx, grad_output):
    return grad_output * cosine(*ctx.saved_tensors)


sine.register_autograd(sine_backward, setup_context=keep_input)


class Wave(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(100, width))

    def forward(self, x):
        return total(sine(x + self.shift), x)


class PlainWave(Wave):
    def forward(self, x):
        return torch.sin(x + self.shift) + x


def main():
    torch.manual_seed(0)
    a, b = torch.rand(200, 64, device="neuron"), torch.rand(200, 64, device="neuron")
    torch.testing.assert_close(scaled_sum_kernel(a, b, 2.0), a + 2.0 * b)
    torch.testing.assert_close(scaled_sum(a, b, 3.0), torch.ops.how_to.scaled_sum(a, b, 3.0))

    before = a.clone()
    halve(a)
    torch.compile(lambda x: halve(x), backend="neuron", fullgraph=True)(a)
    torch.testing.assert_close(a, before / 4)

    x = torch.rand(100, 32, device="neuron")
    model, reference = Wave(32).to("neuron"), PlainWave(32)
    compiled = torch.compile(model, backend="neuron", fullgraph=True)
    torch.testing.assert_close(model(x), compiled(x))
    for called in (model, compiled):
        model.zero_grad()
        reference.zero_grad()
        called(x).square().sum().backward()
        reference(x.cpu()).square().sum().backward()
        torch.testing.assert_close(model.shift.grad.cpu(), reference.shift.grad)

    shape_only = torch.empty(200, 64, device="meta")
    assert scaled_sum(shape_only, shape_only, 1.0).shape == wrap_nki(sine_kernel)(shape_only[:100]).repeat(2, 1).shape
    print("eager, compiled and the CPU agree on", torch.neuron.get_device_name())


if __name__ == "__main__":
    main()

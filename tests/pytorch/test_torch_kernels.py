"""Kernels called with PyTorch's tensors: on the device or, as in the notebook, on the CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason='PyTorch is not installed: pip install "nki-nb[torch]"')

import nki
import nki.language as nl
import nki_sim
import torch_neuronx  # noqa: F401
from nki_sim.cache import KERNELS
from torch_kernels import add_kernel, both_kernel, copy_kernel, increment_kernel

TWINS = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "bfloat16",
    "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu",
)  # fmt: skip


@pytest.fixture
def x():
    torch.manual_seed(2)
    return torch.rand(40, 24, device="neuron")


def test_results_are_on_the_device_and_have_no_gradient(x):
    made = add_kernel(x, x, 2.0)
    torch.testing.assert_close(made, 3 * x)
    assert made.grad_fn is None and not made.requires_grad
    more, twice = both_kernel(torch.nn.Parameter(x))
    assert more.is_neuron and not more.requires_grad and twice.dtype == torch.bfloat16
    torch.testing.assert_close(more, x + 1)


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("device", ["neuron", "cpu"])
def test_every_data_type_goes_through_bit_by_bit(name, device):
    dtype = getattr(torch, name)
    raw = torch.randint(0, 256, (6, 64), dtype=torch.uint8)
    given = (raw > 127 if name == "bool" else raw.view(dtype)).to(device)
    for _ in range(2):  # specialised, then replayed
        made = copy_kernel(given)
        assert made.dtype == dtype and made.device.type == device
        assert torch.equal(made.view(torch.uint8).cpu(), given.view(torch.uint8).cpu())


LAYOUTS = {
    "transposed": lambda x: x.t(),
    "steps": lambda x: x[1::3, ::2],
    "turned": lambda x: x.view(5, 8, 24).permute(2, 0, 1)[3],
    "expanded": lambda x: x[:1].expand(7, 24),
    "part": lambda x: x[3:9, 5:20],
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_any_layout_is_read_right(layout, x):
    for _ in range(2):
        torch.testing.assert_close(add_kernel(layout(x), layout(x)), 2 * layout(x))


@pytest.mark.parametrize(
    "layout", [v for k, v in LAYOUTS.items() if k != "expanded"], ids=[k for k in LAYOUTS if k != "expanded"]
)
@pytest.mark.parametrize("device", ["neuron", "cpu"])
def test_writes_are_seen_through_every_view(layout, device, x):
    for _ in range(2):
        given = x.to(device, copy=True)
        wanted = given.clone()
        layout(wanted).add_(1)
        increment_kernel(layout(given))
        torch.testing.assert_close(given, wanted)


def test_a_write_outdates_what_autograd_had_saved(x):
    w = torch.ones_like(x, requires_grad=True)
    loss = (w * x).sum()
    increment_kernel(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_second_call_replays_and_another_constant_specialises(x):
    KERNELS.clear()
    for scale, kept in ((1.0, 1), (1.0, 1), (2.0, 2), (1.0, 2)):
        torch.testing.assert_close(add_kernel(x, x, scale), x * (1 + scale))
        assert len(KERNELS) == kept
    add_kernel(x[:5], x[:5])
    assert len(KERNELS) == 3


def test_simulate_and_run_give_back_on_the_arguments_device(x):
    assert nki.simulate(add_kernel)(x.cpu(), x.cpu()).device.type == "cpu"
    assert nki.simulate(add_kernel)(x, x).is_neuron
    assert nki_sim.run(add_kernel, x, x).result.equal(2 * x)


def test_in_inference_mode_and_without_gradients(x):
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            y = x * 2
            increment_kernel(y)
            torch.testing.assert_close(add_kernel(y, y), 4 * x + 2)


def test_arguments_may_be_lists():
    @nki.jit
    def total(parts):
        out = nl.ndarray(parts[0].shape, dtype=parts[0].dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.add(nl.load(parts[0]), nl.load(parts[1])))
        return out

    a, b = torch.rand(2, 9, 5, device="neuron")
    for _ in range(2):
        torch.testing.assert_close(total([a, b.t().contiguous().t()]), a + b)


class Own(torch.Tensor):
    """Somebody's kind of tensor."""


def test_subclasses_are_tensors(x):
    made = add_kernel(x.cpu().to(torch.bfloat16).as_subclass(Own), x.cpu().to(torch.bfloat16))
    assert made.dtype == torch.bfloat16


def test_large_tensors(x):
    @nki.jit
    def tiled(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in range(0, x.shape[0], 128):
            nl.store(out[i : i + 128], nl.multiply(nl.load(x[i : i + 128]), 2.0))
        return out

    large = torch.rand(2048, 2048, device="neuron").to(torch.bfloat16)
    assert torch.equal(tiled(large), large * 2)

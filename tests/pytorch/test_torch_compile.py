"""``torch.compile(backend="neuron", fullgraph=True)``."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason='PyTorch is not installed: pip install "nki-nb[torch]"')

from nki_sim.torch import compile as backend
from torch_kernels import add, add_kernel, both_kernel, increment, increment_kernel, scaled
from torch_neuronx import wrap_nki

wrapped, on_one = wrap_nki(add_kernel), add_kernel[1]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    backend.register()


@pytest.fixture
def x():
    torch.manual_seed(6)
    return torch.rand(32, 20, device="neuron")


def in_place(x):
    y = x * 2
    increment_kernel(y)
    increment(y)
    increment_kernel(x)
    increment_kernel(y[:16])
    return y + x


PROGRAMS = {
    "kernel": (lambda x: add_kernel(x * 2, x, scale=2.0) + 1, 3),
    "operator": (lambda x: add(x * 2, x) + 1, 3),
    "by name": (lambda x: torch.ops.nki_nb_tests.add(x * 2, x) + 1, 3),
    "several": (lambda x: add_kernel(add(x, x), both_kernel(x)[0]), 4),
    "two results": (lambda x: both_kernel(x)[0] + both_kernel(x)[1].float(), 6),
    "wrapped": (lambda x: wrapped(x, x), 1),
    "one core": (lambda x: on_one(x, x), 1),
    "one core, inside": (lambda x: add_kernel[1](x, x), 1),
    "in place": (in_place, 7),
}


@pytest.mark.parametrize(("program", "nodes"), PROGRAMS.values(), ids=PROGRAMS)
def test_each_call_is_one_node_and_the_numbers_are_those_of_eager(program, nodes, x):
    graphs = []

    def recording(graph, inputs):
        graphs.append(graph)
        return backend.neuron(graph, inputs)

    given = [x.clone(), x.clone()]
    for which in ("neuron", recording):
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(program, backend=which, fullgraph=True)(given[0]), program(given[1]))
        torch.testing.assert_close(*given)
    (graph,) = graphs
    assert len([n for n in graph.graph.nodes if n.op not in ("placeholder", "output")]) == nodes


def test_gradients(x):
    def loss(w):
        return scaled(add(w, x), 3.0).exp().sum()

    compiled, eager = x.clone().requires_grad_(), x.clone().requires_grad_()
    torch.compile(loss, backend="neuron", fullgraph=True)(compiled).backward()
    loss(eager).backward()
    torch.testing.assert_close(compiled.grad, eager.grad)


def test_a_kernel_called_by_itself_has_no_gradient_here_either(x):
    made = torch.compile(lambda w: add_kernel(w, w), backend="neuron", fullgraph=True)(x.requires_grad_())
    assert made.grad_fn is None


def test_modules(x):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.rand(32, 20))

        def forward(self, x):
            return scaled(add(self.weight, x), 2.0) * add_kernel(x, x)

    model = Model().to("neuron")
    torch.testing.assert_close(torch.compile(model, backend="neuron", fullgraph=True)(x), 2 * (model.weight + x) * 2 * x)


def test_compiles_again_for_new_shapes_and_values_only(x):
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return backend.neuron(graph, inputs)

    compiled = torch.compile(lambda x, scale: add_kernel(x, x, scale), backend=counting, fullgraph=True)
    calls = [((32, 1.0), 1), ((32, 1.0), 1), ((16, 1.0), 2), ((8, 1.0), 3), ((8, 2.0), 4), ((8, 3.0), 5),
             ((8, 3.0), 5), ((32, 1.0), 5), ((16, 1.0), 5)]  # fmt: skip
    for (rows, scale), wanted in calls:
        torch.testing.assert_close(compiled(x[:rows], scale), x[:rows] * (1 + scale))
        assert len(graphs) == wanted


def test_a_broken_limit_is_said_in_full_at_its_line():
    large = torch.rand(256, 4, device="neuron")
    with pytest.raises(RuntimeError) as caught:
        torch.compile(lambda x: add_kernel(x, x), backend="neuron", fullgraph=True)(large)
    said = str(caught.value)
    assert "partition dimension 256 exceeds maximum 128" in said
    line = add_kernel.function.__code__.co_firstlineno + 3
    assert f"torch_kernels.py, line {line}, in add_kernel\n" in said and "fix     load in tiles of 128 rows" in said


def test_other_backends_take_operators(x):
    torch.testing.assert_close(torch.compile(lambda x: add(x, x), backend="aot_eager", fullgraph=True)(x), 2 * x)

"""What a user of PyTorch does wrong, and what is said: PyTorch's words or the documentation's, the cause, the remedy."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch", reason='PyTorch is not installed: pip install "nki-nb[torch]"')

import nki_sim.torch.compile  # noqa: F401 - else Dynamo does not know kernels, and says so in its own words
from nki_sim import NkiError, NkiValidationError
from torch_kernels import add, add_kernel, both, copy_kernel, cores_kernel, small_kernel
from torch_neuronx import nki_op, wrap_nki


def tensor(*shape, **options):
    return torch.rand(*(shape or (8, 8)), device="neuron", **options)


def not_annotated(x):
    return x


def no_result(x: torch.Tensor):
    return x


def nothing_written(x: torch.Tensor) -> None: ...


def to_operator(function, mutates=()):
    return nki_op("nki_nb_tests::wrong", mutates_args=mutates)(function)


def meta():
    return tensor().to("meta")


SAID = {
    "1-D": (lambda: add_kernel(tensor(8), tensor(8)), "tensor.onchip_ge_2d", NkiValidationError,
            "SBUF and PSUM tensors must have at least 2 dimensions", "a row the shape (1, n)"),
    "meta": (lambda: add_kernel(meta(), meta()), "torch.meta_tensor", TypeError, "on the meta device", "wrap_nki(kernel)"),
    "meta, operator": (lambda: add(meta(), meta()), "torch.meta_tensor", TypeError, "on the meta device", "fake_fn="),
    "backward": (lambda: add_kernel(tensor(requires_grad=True), tensor()).sum().backward(), "torch.backward_of_a_kernel",
                 RuntimeError, "element 0 of tensors does not require grad and does not have a grad_fn", "@nki_op("),
    "parameter": (lambda: to_operator(not_annotated), "torch.nki_op_schema", ValueError,
                  "Parameter x must have a type annotation", "x: torch.Tensor"),
    "result": (lambda: to_operator(no_result), "torch.nki_op_schema", ValueError, "No return type annotation",
               "-> torch.Tensor"),
    "written": (lambda: to_operator(nothing_written, {"z"}), "torch.nki_op_schema", ValueError,
                "{'z'} in mutates_args were not found", "mutates_args"),
    "two devices": (lambda: add_kernel(tensor(), tensor().cpu()), "torch.one_device", RuntimeError, "cpu and neuron:0",
                    'x.to("neuron")'),
    "float64": (lambda: copy_kernel(tensor().double()), "dtype.supported_list", TypeError, "argument x: float64", "x.float()"),
    "no twin": (lambda: copy_kernel(tensor().to(torch.float8_e4m3fnuz)), "dtype.supported_list", TypeError,
                "float8_e4m3fnuz", "float8_e4m3fn"),
    "no twin, output": (lambda: small_kernel(tensor()), "torch.dtype_of_output", TypeError, "an output is float8_e4m3",
                        "float8_e4m3fn"),
    "no twin, traced": (lambda: wrap_nki(small_kernel)(meta()), "torch.dtype_of_output", TypeError, "an output is float8_e4m3",
                        "float8_e4m3fn"),
    "no dimensions": (lambda: copy_kernel(torch.tensor(1.0, device="neuron")), "tensor.shape_positive", NkiValidationError,
                      "argument x has shape ()", "shape (1,)"),
    "empty": (lambda: copy_kernel(tensor(0, 4)), "tensor.shape_positive", NkiValidationError, "argument x has shape (0, 4)",
              "skip the empty case"),
    "recorded": (lambda: torch.compile(lambda x: add_kernel(x, x), backend="aot_eager", fullgraph=True)(tensor()),
                 "torch.kernel_in_a_graph", RuntimeError, "called while PyTorch records a graph", "make it an operator"),
    "open shapes": (lambda: torch.compile(lambda x: add_kernel(x, x), backend="neuron", dynamic=True)(tensor()),
                    "torch.no_dynamic_shapes", RuntimeError, "called with dynamic=True", "leave dynamic=True out"),
    "two devices, PyTorch": (lambda: tensor() @ tensor().cpu(), "torch.one_device", RuntimeError, "neuron:0 and cpu",
                             'module.to("neuron")'),
    "another device": (lambda: tensor().to("neuron:1"), "torch.device_index", RuntimeError, "no neuron:1", 'write "neuron"'),
    "vmap": (lambda: torch.vmap(lambda row: add_kernel(row[None], row[None]))(tensor()), "torch.kernel_in_a_graph",
             RuntimeError, "called inside torch.vmap", "make it an operator"),
    "func.grad": (lambda: torch.func.grad(lambda x: add_kernel(x, x).sum())(tensor()), "torch.kernel_in_a_graph",
                  RuntimeError, "a transform of torch.func", "register_autograd"),
    "sparse": (lambda: tensor().to_sparse(), "torch.dense", NotImplementedError, "layout torch.sparse_coo", "x.to_dense()"),
    "lstm": (lambda: torch.nn.LSTM(8, 2).to("neuron")(tensor()), "torch.cpu_kernel", NotImplementedError, "no CPU kernel",
             "module.cpu()"),
}  # fmt: skip
"""A call, the rule that it breaks, the class of the exception, words of the cause, words of the remedy."""


@pytest.mark.parametrize(("wrong", "rule", "kind", "cause", "remedy"), SAID.values(), ids=SAID)
def test_says_what_why_and_what_to_do(wrong, rule, kind, cause, remedy):
    with pytest.raises(kind) as caught:
        wrong()
    said = str(caught.value)
    assert cause in said and remedy in said
    assert re.search(rf"^ *rule +{re.escape(rule)}$", said, re.M)
    inside = caught.value if isinstance(caught.value, NkiError) else caught.value.inner_exception
    assert isinstance(inside, NkiError) and inside.diagnosis.rule.id == rule


def test_an_operator_without_a_backward_is_refused_by_pytorch_in_the_documented_words():
    x = tensor(requires_grad=True)
    with pytest.raises(RuntimeError) as caught:
        both(x)[0].sum().backward()
    wanted = "Trying to backward through nki_nb_tests.both.default but no autograd formula was registered"
    assert wanted in str(caught.value) and "register_autograd" in str(caught.value)


def test_logical_cores_are_those_of_the_environment(monkeypatch):
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    assert cores_kernel(tensor()).tolist() == [[2]]
    for call in (add_kernel[1], torch.compile(add_kernel[1], backend="neuron", fullgraph=True)):
        with pytest.raises((NkiError, RuntimeError), match="NEURON_LOGICAL_NC_CONFIG=2") as caught:
            call(tensor(), tensor())
        assert "kernel.lnc_matches_runtime" in str(caught.value)


def test_backward_elsewhere_says_what_pytorch_says():
    with pytest.raises(RuntimeError, match="does not require grad") as caught:
        torch.ones(2).sum().backward()
    assert not isinstance(caught.value, NkiError)

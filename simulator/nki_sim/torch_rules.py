"""Rules of the PyTorch side. Here, where PyTorch is not needed, ``help`` and the list of all rules find them."""

from __future__ import annotations

from nki_sim.errors import Rule, page

_HOW_TO = page("torch/guides/how-to-work-with-nki.html", below="")
MIXED_DEVICES = Rule(
    "torch.one_device",
    "tensors of one call are on one device; a tensor without dimensions may be on the CPU",
    fix='x.to("neuron") for what is on the CPU, or module.to("neuron")',
)
ONE_DEVICE = Rule("torch.device_index", "the simulator has one device, neuron:0", fix='write "neuron"')
NO_TWIN = Rule(
    "torch.dtype_of_output",
    "outputs have a data type that PyTorch has too",
    fix="write the output as float8_e4m3fn, bfloat16 or float32",
)
SCHEMA = Rule(
    "torch.nki_op_schema",
    "an operator's schema comes from annotations: every parameter has one, and the result",
    fix="def op(x: torch.Tensor, scale: float) -> torch.Tensor; -> None where mutates_args names what is written",
    page=_HOW_TO,
)
DYNAMIC = Rule(
    "torch.no_dynamic_shapes",
    "torch.compile(backend='neuron') compiles for fixed shapes",
    why="a kernel is specialised for the shapes of its arguments",
    fix="leave dynamic=True out: a new shape compiles again",
    page=_HOW_TO,
)
NO_GRADIENT = Rule(
    "torch.backward_of_a_kernel",
    "the result of a kernel that is called by itself has no gradient",
    why="PyTorch sees that it was called, not what it computes",
    fix="make the kernel an operator, @nki_op('name::kernel', mutates_args={}), and give it a backward with register_autograd",
    page=_HOW_TO,
)
META = Rule(
    "torch.meta_tensor",
    "a kernel that is called by itself takes tensors with data, on the neuron device",
    why="a tensor on the meta device has a shape and no data",
    fix="call torch_neuronx.wrap_nki(kernel), which takes meta tensors too, or give nki_op a fake_fn=",
    page=_HOW_TO,
)
RECORDED = Rule(
    "torch.kernel_in_a_graph",
    "a kernel called by itself is recorded by torch.compile(backend='neuron') only",
    why="other recorders and transforms know PyTorch's operations alone, and would leave the kernel out",
    fix="make it an operator: @nki_op('name::kernel', mutates_args={}), with register_autograd for gradients",
)
DENSE = Rule("torch.dense", "tensors of the device are dense", fix="x.to_dense(), or stay on the CPU")
NO_CPU_KERNEL = Rule(
    "torch.cpu_kernel",
    "operations other than NKI kernels are run by PyTorch's CPU kernels",
    fix="compute this part on the CPU: x.cpu(), module.cpu()",
)

"""Kernels and operators that several tests call."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import torch
from torch_neuronx import nki_op


@nki.jit
def add_kernel(a, b, scale=1.0):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(a), nl.multiply(nl.load(b), scale)))
    return out


@nki.jit
def hoarding_kernel(x):
    """Nine times x, all of them loaded, into tiles that do not fit beside each other, before they are added."""
    (rows, columns), tiles = x.shape, []
    for _ in range(9):
        tiles.append(nl.ndarray((rows, 8192), dtype=x.dtype, buffer=nl.sbuf))
        nisa.dma_copy(dst=tiles[-1][:, 0:columns], src=x)
    total = nl.zeros((rows, columns), dtype=x.dtype, buffer=nl.sbuf)
    for tile in tiles:
        nisa.tensor_tensor(dst=total, data1=total, data2=tile[:, 0:columns], op=nl.add)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=total)
    return out


@nki.jit
def copy_kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out


@nki.jit
def increment_kernel(x):
    nl.store(x, nl.add(nl.load(x), 1.0))


@nki.jit
def both_kernel(x):
    more = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    twice = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
    nl.store(more, nl.add(nl.load(x), 1.0))
    nl.store(twice, nl.multiply(nl.load(x), 2.0))
    return more, twice


@nki.jit
def small_kernel(x):
    out = nl.ndarray(x.shape, dtype=nl.float8_e4m3, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(nl.load(x), dtype=nl.float8_e4m3))
    return out


@nki.jit
def cores_kernel(x):
    out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    if nl.program_id(0) == 0:
        count = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(count, value=nl.num_programs(0))
        nl.store(out, count)
    return out


@nki_op("nki_nb_tests::add", mutates_args={})
def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return add_kernel(a, b)


@add.register_autograd
def add_backward(ctx, grad):
    return grad, grad


@nki_op("nki_nb_tests::scaled", mutates_args={}, fake_fn=lambda x, scale: torch.empty_like(x))
def scaled(x: torch.Tensor, scale: float) -> torch.Tensor:
    return add_kernel(x, x, scale - 1.0)


def keep_scale(ctx, inputs, output):
    ctx.scale = inputs[1]


def scaled_backward(ctx, grad):
    return scaled(grad, ctx.scale), None


scaled.register_autograd(scaled_backward, setup_context=keep_scale)


@nki_op("nki_nb_tests::increment", mutates_args={"x"})
def increment(x: torch.Tensor) -> None:
    increment_kernel(x)


@nki_op("nki_nb_tests::both", mutates_args={})
def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return both_kernel(x)


@nki_op("nki_nb_tests::step", mutates_args={"x"})
def step(x: torch.Tensor, parts: list[torch.Tensor], scale: float, name: str, last: bool = False) -> torch.Tensor:
    increment_kernel(x)
    return add_kernel(parts[0], parts[-1], scale)

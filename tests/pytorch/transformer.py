"""A transformer whose norms, attention, projections and MLPs are NKI kernels with backward passes, and the same in PyTorch."""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
import torch
from torch_neuronx import nki_op

EPSILON = 1e-6
FAR = -1e9
"""Added to scores that may not be seen."""


def new(like: Any, shape: tuple[int, ...]) -> Any:
    return nl.ndarray(shape, dtype=like.dtype, buffer=nl.shared_hbm)


def turned(tile: Any) -> Any:
    return nl.copy(nl.transpose(tile))


def product(left: Any, right: Any) -> Any:
    """left.T @ right, in SBUF."""
    return nl.copy(nl.matmul(left, right, transpose_x=True))


def by_row(tile: Any, column: Any, op: Any = nl.multiply) -> Any:
    """An operation of each row with its number in a column."""
    made = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=made, data=tile, op0=op, operand0=column)
    return made


def inverse_rms(tile: Any) -> Any:
    return nl.rsqrt(nl.add(nl.mean(nl.square(tile), axis=1, keepdims=True), EPSILON))


def attended(q: Any, k: Any, mask: Any, scale: float) -> Any:
    """The softmax of one head's scores."""
    scores = nl.multiply(product(turned(q), turned(k)), scale)
    return nl.softmax(nl.add(scores, mask), axis=1)


@nki.jit
def matmul_kernel(left, right):
    out = new(left, (left.shape[1], right.shape[1]))
    nl.store(out, product(nl.load(left), nl.load(right)))
    return out


@nki.jit
def norm_kernel(x, weight):
    out = new(x, x.shape)
    tile = nl.load(x)
    rows = by_row(tile, inverse_rms(tile))
    nl.store(out, nl.multiply(rows, nl.broadcast_to(nl.load(weight), x.shape)))
    return out


@nki.jit
def norm_backward_kernel(grad, x, weight):
    to_x, to_weight = new(x, x.shape), new(x, weight.shape)
    tile, given = nl.load(x), nl.load(grad)
    inverse = inverse_rms(tile)
    rows = by_row(tile, inverse)
    ones = nl.full((x.shape[0], 1), 1.0, dtype=nl.float32)
    nl.store(to_weight, product(ones, nl.multiply(given, rows)))
    scaled = nl.multiply(given, nl.broadcast_to(nl.load(weight), x.shape))
    shared = nl.mean(nl.multiply(scaled, rows), axis=1, keepdims=True)
    nl.store(to_x, by_row(nl.subtract(scaled, by_row(rows, shared)), inverse))
    return to_x, to_weight


@nki.jit
def attention_kernel(q, k, v, mask, scale):
    out = new(q, q.shape)
    hidden = nl.load(mask)
    for head in range(q.shape[0]):
        shares = attended(nl.load(q[head]), nl.load(k[head]), hidden, scale)
        nl.store(out[head], product(turned(shares), nl.load(v[head])))
    return out


@nki.jit
def attention_backward_kernel(grad, q, k, v, mask, scale):
    to_q, to_k, to_v = (new(q, q.shape) for _ in range(3))
    hidden = nl.load(mask)
    for head in range(q.shape[0]):
        queries, keys, given = nl.load(q[head]), nl.load(k[head]), nl.load(grad[head])
        shares = attended(queries, keys, hidden, scale)
        nl.store(to_v[head], product(shares, given))
        to_shares = product(turned(given), turned(nl.load(v[head])))
        common = nl.sum(nl.multiply(to_shares, shares), axis=1, keepdims=True)
        to_scores = nl.multiply(nl.multiply(shares, by_row(to_shares, common, nl.subtract)), scale)
        nl.store(to_q[head], product(turned(to_scores), keys))
        nl.store(to_k[head], product(to_scores, queries))
    return to_q, to_k, to_v


@nki.jit
def mlp_kernel(x, up, down):
    out = new(x, x.shape)
    hidden = nl.silu(product(turned(nl.load(x)), nl.load(up)))
    nl.store(out, product(turned(hidden), nl.load(down)))
    return out


@nki.jit
def mlp_backward_kernel(grad, x, up, down):
    to_x, to_up, to_down = new(x, x.shape), new(x, up.shape), new(x, down.shape)
    rows, given, upward, downward = nl.load(x), nl.load(grad), nl.load(up), nl.load(down)
    hidden = product(turned(rows), upward)
    nl.store(to_down, product(nl.silu(hidden), given))
    to_hidden = nl.multiply(product(turned(given), turned(downward)), nl.silu_dx(hidden))
    nl.store(to_up, product(rows, to_hidden))
    nl.store(to_x, product(turned(to_hidden), turned(upward)))
    return to_x, to_up, to_down


@nki_op("nki_nb_tests::matmul", mutates_args={})
def matmul(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return matmul_kernel(left, right)


@nki_op("nki_nb_tests::norm", mutates_args={})
def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return norm_kernel(x, weight)


@nki_op("nki_nb_tests::norm_backward", mutates_args={})
def norm_backward(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return norm_backward_kernel(grad, x, weight)


@nki_op("nki_nb_tests::attention", mutates_args={})
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    return attention_kernel(q, k, v, mask, scale)


@nki_op("nki_nb_tests::attention_backward", mutates_args={})
def attention_backward(
    grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return attention_backward_kernel(grad, q, k, v, mask, scale)


@nki_op("nki_nb_tests::mlp", mutates_args={})
def mlp(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return mlp_kernel(x, up, down)


@nki_op("nki_nb_tests::mlp_backward", mutates_args={})
def mlp_backward(
    grad: torch.Tensor, x: torch.Tensor, up: torch.Tensor, down: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return mlp_backward_kernel(grad, x, up, down)


def keep(ctx: Any, inputs: Any, output: Any) -> None:
    """Save the tensors among an operator's inputs for its backward pass, and the last number."""
    ctx.save_for_backward(*(value for value in inputs if isinstance(value, torch.Tensor)))
    ctx.scale = inputs[-1]


def matmul_gradients(ctx: Any, grad: Any) -> Any:
    left, right = ctx.saved_tensors
    return matmul(right.t(), grad.t()), matmul(left.t(), grad)


matmul.register_autograd(matmul_gradients, setup_context=keep)
norm.register_autograd(lambda ctx, grad: norm_backward(grad, *ctx.saved_tensors), setup_context=keep)
mlp.register_autograd(lambda ctx, grad: mlp_backward(grad, *ctx.saved_tensors), setup_context=keep)
attention.register_autograd(
    lambda ctx, grad: (*attention_backward(grad, *ctx.saved_tensors, ctx.scale), None, None), setup_context=keep
)


class Kernels:
    """The model's mathematics by NKI kernels."""

    @staticmethod
    def linear(x: Any, weight: Any) -> Any:
        return matmul(x.t(), weight)

    norm, attention, mlp = norm, attention, mlp


class Reference:
    """The model's mathematics by PyTorch."""

    @staticmethod
    def linear(x: Any, weight: Any) -> Any:
        return x @ weight

    @staticmethod
    def norm(x: Any, weight: Any) -> Any:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * weight

    @staticmethod
    def attention(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
        return torch.softmax(q @ k.mT * scale + mask, -1) @ v

    @staticmethod
    def mlp(x: Any, up: Any, down: Any) -> Any:
        return torch.nn.functional.silu(x @ up) @ down


class Layer(torch.nn.Module):
    """Attention and MLP, each with its norm and its shortcut."""

    def __init__(self, width: int, heads: int, maths: Any):
        super().__init__()
        self.width, self.heads, self.maths = width, heads, maths
        self.before, self.between = (torch.nn.Parameter(torch.ones(1, width)) for _ in range(2))
        self.qkv = torch.nn.Parameter(torch.randn(width, 3 * width) / width**0.5)
        self.out = torch.nn.Parameter(torch.randn(width, width) / width**0.5)
        self.up = torch.nn.Parameter(torch.randn(width, 2 * width) / width**0.5)
        self.down = torch.nn.Parameter(torch.randn(2 * width, width) / (2 * width) ** 0.5)

    def forward(self, x: Any, mask: Any) -> Any:
        """One layer on rows of ``mask.shape[0]`` tokens, batch after batch."""
        tokens, size = mask.shape[0], self.width // self.heads
        parts = self.maths.linear(self.maths.norm(x, self.before), self.qkv)
        q, k, v = parts.view(-1, tokens, 3, self.heads, size).permute(2, 0, 3, 1, 4).reshape(3, -1, tokens, size).unbind()
        seen = self.maths.attention(q, k, v, mask, size**-0.5)
        rows = seen.view(-1, self.heads, tokens, size).transpose(1, 2).reshape(x.shape)
        x = x + self.maths.linear(rows, self.out)
        return x + self.maths.mlp(self.maths.norm(x, self.between), self.up, self.down)


class Transformer(torch.nn.Module):
    """Two layers that predict the next token."""

    def __init__(self, maths: Any, words: int = 24, width: int = 32, heads: int = 2, tokens: int = 20):
        super().__init__()
        self.maths = maths
        self.embedding = torch.nn.Embedding(words, width)
        self.layers = torch.nn.ModuleList(Layer(width, heads, maths) for _ in range(2))
        self.last = torch.nn.Parameter(torch.ones(1, width))
        self.head = torch.nn.Parameter(torch.randn(width, words) / width**0.5)
        self.register_buffer("mask", torch.full((tokens, tokens), FAR).triu(1))

    def forward(self, tokens: Any) -> Any:
        """The logits of each next token, one row each."""
        x = self.embedding(tokens).flatten(0, 1)
        for layer in self.layers:
            x = layer(x, self.mask)
        return self.maths.linear(self.maths.norm(x, self.last), self.head)


def train(model: Any, device: str, steps: int = 4) -> list[float]:
    """Losses of a few steps on made-up text; the model's weights are what the seed makes them."""
    data = torch.randint(0, 24, (3, 21), generator=torch.Generator().manual_seed(7)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(model(data[:, :-1]), data[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

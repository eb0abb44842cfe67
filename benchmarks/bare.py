"""The same work in plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def matmul(lhs_t: Any, rhs: Any) -> Any:
    return lhs_t.T @ rhs


def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = (q.T @ k) * np.float32(q.shape[0] ** -0.5) + mask
    return softmax(scores) @ v


def causal_mask(length: int) -> Any:
    """0 where a query may see a key, -inf above the diagonal."""
    return np.triu(np.full((length, length), -np.inf, np.float32), 1)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def rmsnorm(x: Any, weight: Any) -> Any:
    return x / np.sqrt(np.mean(np.square(x), axis=1, keepdims=True) + np.float32(1e-6)) * weight


def layernorm(x: Any, weight: Any, bias: Any) -> Any:
    mean, variance = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
    return (x - mean) / np.sqrt(variance + np.float32(1e-6)) * weight + bias


def whole_tiles(x: Any, rounds: int) -> Any:
    a, b, c, total = x.copy(), x.copy(), x.copy(), np.empty_like(x)
    half = np.float32(0.5)
    for _ in range(rounds):
        np.copyto(a, x)
        np.matmul(a.T, b, out=total)
        np.add(a, total, out=b)
        np.multiply(b, half, out=c)
        np.tanh(c, out=b)
    return b


def fresh_slices(x: Any, rounds: int) -> Any:
    a, b, c, total = x.copy(), x.copy(), x.copy(), np.empty_like(x)
    half = np.float32(0.5)
    for _ in range(rounds):
        np.copyto(a[:, 0:32], x[:, 0:32])
        np.matmul(a[:, 0:32].T, b[:, 0:32], out=total[:, 0:32])
        np.add(a[:, 0:32], total[:, 0:32], out=b[:, 0:32])
        np.multiply(b[:, 0:32], half, out=c[:, 0:32])
        np.tanh(c[:, 0:32], out=b[:, 0:32])
    return b[:, 0:32]

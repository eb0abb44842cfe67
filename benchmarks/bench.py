"""How much slower than NumPy: the simulator against the bare NumPy of the same work, on one machine in one run.

    python benchmarks/bench.py            # the table
    python benchmarks/bench.py --quick    # fewer repetitions

Every figure is a ratio of medians taken alternately, so that a machine that slows down slows both. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import nki_sim
import numpy as np

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402


@nki.jit
def matmul(lhsT, rhs):  # noqa: N803 - the field's name for a transposed left operand
    k, m = lhsT.shape
    _, n = rhs.shape
    out = nl.ndarray((m, n), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for i in range(m // 128):
        for j in range(n // 512):
            acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for step in range(k // 128):
                a = nl.ndarray((128, 128), dtype=lhsT.dtype, buffer=nl.sbuf)
                b = nl.ndarray((128, 512), dtype=rhs.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=a, src=lhsT[step * 128 : (step + 1) * 128, i * 128 : (i + 1) * 128])
                nisa.dma_copy(dst=b, src=rhs[step * 128 : (step + 1) * 128, j * 512 : (j + 1) * 512])
                nisa.nc_matmul(dst=acc, stationary=a, moving=b, accumulate=(step > 0))
            tile = nl.ndarray((128, 512), dtype=out.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=tile, src=acc)
            nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128, j * 512 : (j + 1) * 512], src=tile)
    return out


@nki.jit
def softmax(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(x.shape[0] // 128):
        nl.store(out[i * 128 : (i + 1) * 128, :], nl.softmax(nl.load(x[i * 128 : (i + 1) * 128, :]), axis=1))
    return out


@nki.jit
def rmsnorm(x, w):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    weight = nl.broadcast_to(nl.load(w), (128, x.shape[1]))
    for i in range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        nl.store(out[i * 128 : (i + 1) * 128, :], nl.rms_norm(tile, weight, axis=1, n=x.shape[1]))
    return out


@nki.jit
def attention(q, k, v):
    """softmax(q k^T / sqrt(d)) v, one head: q and k come as [d, sequence], v as [sequence, d]."""
    d, length = q.shape
    out = nl.ndarray((length, d), dtype=q.dtype, buffer=nl.shared_hbm)
    eye = nl.ndarray((128, 128), dtype=q.dtype, buffer=nl.sbuf)
    nl.shared_identity_matrix(128, dst=eye)
    keys = nl.load(k)
    values = [nl.load(v[j * 128 : (j + 1) * 128, :]) for j in range(length // 128)]
    for i in range(length // 128):
        query = nl.load(q[:, i * 128 : (i + 1) * 128])
        scores = nl.ndarray((128, length), dtype=nl.float32, buffer=nl.sbuf)
        for j in range(length // 512):
            part = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=part, stationary=query, moving=keys[:, j * 512 : (j + 1) * 512])
            nisa.tensor_copy(dst=scores[:, j * 512 : (j + 1) * 512], src=part)
        lowest, total, inverse = (nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf) for _ in range(3))
        nisa.tensor_reduce(dst=lowest, op=nl.maximum, data=scores, axis=(1,), negate=True)
        nisa.tensor_scalar(dst=lowest, data=lowest, op0=nl.multiply, operand0=d**-0.5)
        nisa.activation(dst=scores, op=nl.exp, data=scores, bias=lowest, scale=d**-0.5, reduce_op=nl.add, reduce_res=total,
                        reduce_cmd=nisa.reduce_cmd.reset_reduce)  # fmt: skip
        nisa.reciprocal(dst=inverse, data=total)
        acc = nl.ndarray((128, d), dtype=nl.float32, buffer=nl.psum)
        for j in range(length // 128):
            turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(dst=turned, stationary=scores[:, j * 128 : (j + 1) * 128], moving=eye)
            weights = nl.ndarray((128, 128), dtype=q.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=weights, src=turned)
            nisa.nc_matmul(dst=acc, stationary=weights, moving=values[j], accumulate=(j > 0))
        tile = nl.ndarray((128, d), dtype=q.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=tile, data=acc, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128, :], src=tile)
    return out


@nki.jit
def many(x):
    """100 000 instructions on small tiles."""
    a, b = nl.load(x), nl.load(x)
    for _ in range(33_333):
        nisa.tensor_scalar(dst=b, data=a, op0=nl.multiply, operand0=0.5)
        nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.subtract)
        nisa.tensor_copy(dst=b, src=a)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, a)
    return out


def numpy_attention(q: Any, k: Any, v: Any) -> Any:
    return numpy_softmax((q.T @ k) * np.float32(q.shape[0] ** -0.5)) @ v


def numpy_many(x: Any) -> Any:
    a, b = x.copy(), x.copy()
    for _ in range(33_333):
        np.multiply(a, np.float32(0.5), out=b)
        np.subtract(a, b, out=a)
        np.copyto(b, a)
    return a


def numpy_matmul(a: Any, b: Any) -> Any:
    return (a.astype(np.float32).T @ b.astype(np.float32)).astype(a.dtype)


def numpy_softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def numpy_rmsnorm(x: Any, w: Any) -> Any:
    return x / np.sqrt(np.mean(np.square(x), axis=1, keepdims=True) + 1e-6) * w


def tile_loop(a: Any, b: Any) -> Any:
    """The matmul kernel's own tiling in bare NumPy: what no simulator of that kernel can beat tile by tile."""
    out = np.empty((a.shape[1], b.shape[1]), np.float32)
    for i in range(0, out.shape[0], 128):
        for j in range(0, out.shape[1], 512):
            acc = np.zeros((128, 512), np.float32)
            for s in range(0, a.shape[0], 128):
                acc += a[s : s + 128, i : i + 128].copy().T @ b[s : s + 128, j : j + 512].copy()
            out[i : i + 128, j : j + 512] = acc
    return out


@dataclass
class Pair:
    """One line of the table."""

    name: str
    ours: Callable[[], Any]
    bare: Callable[[], Any]


def measure(pair: Pair, repeat: int) -> tuple[float, float]:
    """Median seconds of both, taken alternately."""
    times: tuple[list[float], list[float]] = ([], [])
    pair.ours(), pair.bare()
    for _ in range(repeat):
        for kept, work in zip(times, (pair.ours, pair.bare), strict=True):
            began = time.perf_counter()
            work()
            kept.append(time.perf_counter() - began)
    return statistics.median(times[0]), statistics.median(times[1])


def pairs() -> list[Pair]:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 1024, 1024)).astype(np.float32)
    low = [v.astype(ml_dtypes.bfloat16) for v in (a, b)]
    w = rng.standard_normal((1, 1024)).astype(np.float32)
    q, k, v = rng.standard_normal((3, 2048, 128)).astype(np.float32)
    heads, small = (np.ascontiguousarray(q.T), np.ascontiguousarray(k.T), v), rng.standard_normal((32, 64)).astype(np.float32)
    return [
        Pair("matmul 1024³ fp32", lambda: nki_sim.run(matmul, a, b), lambda: numpy_matmul(a, b)),
        Pair("matmul 1024³ fp32, against its tile loop in NumPy", lambda: nki_sim.run(matmul, a, b), lambda: tile_loop(a, b)),
        Pair("matmul 1024³ bf16", lambda: nki_sim.run(matmul, *low), lambda: numpy_matmul(*low)),
        Pair("softmax 1024×1024", lambda: nki_sim.run(softmax, a), lambda: numpy_softmax(a)),
        Pair("rmsnorm 1024×1024", lambda: nki_sim.run(rmsnorm, a, w), lambda: numpy_rmsnorm(a, w)),
        Pair(
            "attention forward, sequence 2048, d 128", lambda: nki_sim.run(attention, *heads), lambda: numpy_attention(*heads)
        ),
        Pair("100 000 instructions on 32×64 tiles", lambda: nki_sim.run(many, small), lambda: numpy_many(small)),
    ]


def overhead(repeat: int, count: int = 5000) -> list[tuple[str, float]]:
    """Microseconds per instruction above the bare NumPy call, checked and recorded: on whole tiles, and on fresh slices."""
    x = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
    found: dict[str, list[float]] = {"whole tiles": [], "three fresh slices": []}

    @nki.jit
    def kernel(x):
        t, u, o = nl.load(x), nl.load(x), nl.load(x)
        for name in found:
            began = time.perf_counter()
            if name == "whole tiles":
                for _ in range(count):
                    nisa.tensor_tensor(dst=o, data1=t, data2=u, op=nl.add)
            else:
                for _ in range(count):
                    nisa.tensor_tensor(dst=o[:, 0:32], data1=t[:, 0:32], data2=u[:, 32:64], op=nl.add)
            found[name].append((time.perf_counter() - began) / count)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, o)
        return out

    bare: dict[str, list[float]] = {name: [] for name in found}
    t, u, o = x.copy(), x.copy(), x.copy()
    for _ in range(repeat):
        nki_sim.run(kernel, x)
        began = time.perf_counter()
        for _ in range(count):
            np.add(t, u, out=o)
        bare["whole tiles"].append((time.perf_counter() - began) / count)
        began = time.perf_counter()
        for _ in range(count):
            np.add(t[:, 0:32], u[:, 32:64], out=o[:, 0:32])
        bare["three fresh slices"].append((time.perf_counter() - began) / count)
    median = statistics.median
    return [(name, (median(found[name]) - median(bare[name])) * 1e6) for name in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    repeat = 5 if parser.parse_args().quick else 21
    print(f"{'work':<52}{'simulator':>12}{'NumPy':>12}{'ratio':>8}")
    for pair in pairs():
        ours, bare = measure(pair, repeat)
        print(f"{pair.name:<52}{ours * 1e3:>9.1f} ms{bare * 1e3:>9.1f} ms{ours / bare:>8.2f}")
    for name, extra in overhead(repeat):
        print(f"{'overhead per instruction, ' + name:<52}{extra:>9.1f} µs")


if __name__ == "__main__":
    main()

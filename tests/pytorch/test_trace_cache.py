"""Under PyTorch, specialised kernels are kept for other processes unless ``NKI_ENABLE_TRACE_CACHE=0``."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

SCRIPT = """
import torch
import nki, nki.language as nl, nki.isa as nisa

@nki.jit
def tripled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
    nl.store(out, tile)
    return out

x = torch.ones(128, 64, dtype=torch.bfloat16).to("neuron")
print(tripled(x).cpu().float().sum().item())
"""
HEAD = "import torch_neuronx\n"


def test_the_second_process_has_a_hit(script: Any) -> None:
    first = script(HEAD + SCRIPT, NKI_TRACE_CACHE_VERBOSE="1")
    second = script(HEAD + SCRIPT, NKI_TRACE_CACHE_VERBOSE="1")
    assert first[0] == second[0] == str(3.0 * 128 * 64)
    assert first[1:] == ["NKI trace cache: MISS tripled", "NKI trace cache: KEPT tripled"]
    assert second[1:] == ["NKI trace cache: HIT tripled"]


def test_switched_off(script: Any) -> None:
    for _ in range(2):
        assert len(script(HEAD + SCRIPT, NKI_TRACE_CACHE_VERBOSE="1", NKI_ENABLE_TRACE_CACHE="0")) == 1

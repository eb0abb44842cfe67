"""The peak memory of a recorded run above its arrays: a process that runs it beside one that only holds the arrays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.found import Found

BASE_MB, PER_INSTRUCTION = 64.0, 300.0
NAMES = {
    "matmul": "matmul 2048³ bf16",
    "softmax": "softmax 4096×4096",
    "whole_tiles": "300 000 instructions",
}


def memory(repeat: int) -> list[Found]:
    found = []
    for name, title in NAMES.items():
        ours, bare = _measured(name, "run"), _measured(name, "hold")
        above, bar = ours["peak"] - bare["peak"], BASE_MB + ours["steps"] * PER_INSTRUCTION / 1e6
        medians = {"run MB": ours["peak"], "arrays MB": bare["peak"], "instructions": ours["steps"]}
        found.append(Found(f"peak memory above the arrays, {title}", above, bar, "MB", medians=medians))
    return found


def _measured(name: str, what: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.memory", name, what]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def peak_mb() -> float:
    """The most memory this process had. Not ``ru_maxrss`` on Linux: a new process starts with its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(part for part in status.read_text().splitlines() if part.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _arguments(name: str) -> tuple[Any, ...]:
    """Made without larger arrays on the way, which would hide what the run takes."""
    random = np.random.default_rng(0)
    if name == "matmul":
        rows = random.standard_normal((2, 16, 2048), np.float32).astype(ml_dtypes.bfloat16)
        return tuple(np.tile(part, (128, 1)) for part in rows)
    size = {"softmax": 4096, "whole_tiles": 32}[name]
    array = random.standard_normal((size, size), np.float32)
    return (array, 60_000) if name == "whole_tiles" else (array,)


def _main(name: str, what: str) -> None:
    args = _arguments(name)
    np.ones((512, 512), np.float32) @ np.ones((512, 512), np.float32)  # the buffers of BLAS
    if what == "run":
        import nki_sim  # here, as the other process does without

        from benchmarks import kernels

        run = nki_sim.run(getattr(kernels, name), *args)
        print(json.dumps({"peak": peak_mb(), "steps": len(run.program)}))
    else:
        result = np.ones_like(args[0])
        print(json.dumps({"peak": peak_mb(), "steps": 0, "held": result.nbytes}))


if __name__ == "__main__":
    _main(*sys.argv[1:])

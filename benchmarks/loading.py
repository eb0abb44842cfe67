"""What ``%load_ext nki_nb`` takes in a fresh IPython shell, beside the start of IPython itself."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.found import Found

LOAD = """
from time import perf_counter
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
began = perf_counter()
shell.run_line_magic("load_ext", "nki_nb")
print(perf_counter() - began)
"""


def load_ext(repeat: int) -> list[Found]:
    times = [_once() for _ in range(6)][1:]  # the first one fills the file cache and writes the bytecode
    seconds = statistics.median(times)
    return [Found("%load_ext nki_nb, cold", seconds, 0.4, "s", medians={"load s": seconds, "longest s": max(times)})]


def _once() -> float:
    return float(subprocess.run([sys.executable, "-c", LOAD], check=True, stdout=subprocess.PIPE, text=True).stdout)

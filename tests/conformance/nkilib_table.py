"""The public NKI Library's own test suite as a table: kernel, case, generation, cores, result, largest error, seconds in all
and in the simulator.

    NKILIB_ROOT=<checkout of tag 2.29> python tests/conformance/nkilib_table.py --target trn2 --out trn2.csv

runs the ``fast`` set, one process of pytest for each test file, ``--processes`` at a time, and prints each family's counts.
With ``--marks "" --entry-points``: every kernel that has a test, once, at the smallest shapes of its tests. With
``--marks "" --cases FILE``: the cases whose names, as pytest gives them, stand in that file, one on a line.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TESTS = "test/integration/nkilib"
COLUMNS = ("kernel", "case", "target", "cores", "result", "error", "seconds", "simulated", "instructions", "findings", "what")
RESULTS = ("passed", "failed", "fault", "given up")
"""What can come of a case that the suite does not skip; ``fault``: one of the suite itself."""
FAULTS = {
    r"test_qkv_cte_mx_bf16_static_dequant": "qkv() has no parameter is_input_swizzled",
    r"test_qkv_cte_mxfp8_static_dequant.*in_scale_shape[0-9]": "stream_shuffle_broadcast is imported as a module and called",
    r"test_mxfp_load_performance[\s\S]*failed for": "the scale that release 0.5 replaced; wants 0 where nobody wrote a scale",
    r"test_rmsnorm_mx_quantize_tkg[\s\S]*out_scale": "as mxfp_load: data pass with the replaced scale",
    r"test_qkv_tkg_mxfp_unit\[\S*RMS_NORM[\s\S]*failed for": "the replaced scale; which case is off depends on those before it",
    r"test_folded_load_store_dst_batch\[lnc-2_b-(16|32)_": "both cores zero all of the output, then write halves: a race",
    r"mm_bwd.*_exp-16_bs-512_k-1_int-256_[\s\S]*affinities_masked_grad": "both cores zero a gradient, then write it: a race",
    r"mm_bwd.*_exp-(1_bs-512|128_bs-256)_k-1_int-128_[\s\S]*affinities_masked_grad": "as above",
    r"Unsupported out_x4_dtype": "compares the name of an MX dtype, which NumPy's stand-in for it has not",
    r"mlp_tkg_gate_up_projection\.py, line 243[\s\S]*ap\.partition_first": "a pattern steps by a slice's columns",
    r"cte_sweep_cp_manual\[\w+-True-[12]-1-1-32768-None-None-32-31-128-(2|127)-": "a tile is written over before it is read",
    r"test_mlp_tkg_unit\[\S+_i-(384|448)_\S+_q_t-3_[\s\S]*failed for": "multiplies by 0 what nobody wrote, which is NaN here",
    r"test_moe_tkg_mx\[\S+_i-(64|90|96|180|192|360|384)_[\s\S]*failed for": "as above",
    r"test_moe_tkg_dynamic\[\S+_rr-0\.\d+_[\s\S]*failed for": "as above, of tokens that are routed nowhere",
    r"test_moe_bwmm_mx_cte_unit\[\S+-384-[\s\S]*failed for": "as above",
    r"test_moe_block_kernel_unit\[\S+_im-(192|384)_\S+_wd-float[48]\w+_x4_[\s\S]*failed for": "as above",
    r"test_moe_block_kernel_unit\[\S+_ba-128_sq-4_\S+_im-3072_\S+_x4_[\s\S]*failed for": "the replaced scale",
    r"test_mlp_tkg_unit\[\S+_i-3584_\S+_q_t-3_norm_type-1_[\s\S]*failed for": "the replaced scale: passes with the new one",
}
"""Cases that fail by themselves at tag 2.29, by their name or what they raise, and why: a name that is not there, a race, a
documented limit that the library breaks, memory read too early or too late, or a reference of an older release."""

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases asked for and write the table; 1 when a case fails that is no fault of the suite."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--target", choices=("trn2", "trn3"), default="trn2")
    parser.add_argument("--only", default="", help="test files whose path contains this")
    parser.add_argument("--marks", default="fast", help="pytest's -m")
    parser.add_argument("--names", default="", help="pytest's -k")
    parser.add_argument("--entry-points", action="store_true", help="of each test function only its smallest case")
    parser.add_argument("--cases", type=Path, help="a file of cases to run, whatever their marks and files")
    parser.add_argument("--seconds", type=int, default=120, help="after which a case is given up")
    parser.add_argument("--minutes", type=float, default=30, help="after which the rest of a test file is left out")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has what the suite needs")
    parser.add_argument("--out", type=Path, help="a .csv file for the table")
    options = parser.parse_args(arguments)
    root = Path(os.environ["NKILIB_ROOT"])
    with ThreadPoolExecutor(options.processes) as pool:
        asked = pool.map(lambda cases: list(run(root, cases, options)), selected(root, options))
        rows = [row for found in asked for row in found]
    if options.out:
        write(rows, options.out)
    print(counts(rows))
    failures = [row for row in rows if row["result"] == "failed"]
    for row in failures:
        print(f"{row['case']}: {row['what'].strip().partition(chr(10))[0][:200]}", file=sys.stderr)
    return int(bool(failures))


def selected(root: Path, options: argparse.Namespace) -> list[list[str]]:
    """What each process of pytest is given: a test file, or the cases asked for of one."""
    files = [str(path.relative_to(root)) for path in sorted((root / TESTS).rglob("test_*.py")) if options.only in str(path)]
    if not options.cases:
        return [[file] for file in files]
    cases = [line for line in options.cases.read_text().splitlines() if line.strip()]
    if unknown := [case for case in cases if not (root / case.partition("::")[0]).is_file()]:
        raise SystemExit(f"--cases: no such test file: {unknown[0]}")
    return [mine for file in files if (mine := [case for case in cases if case.partition("::")[0] == file])]


def run(root: Path, cases: Sequence[str], options: argparse.Namespace) -> Iterator[Row]:
    """The rows of one test file, whole or some cases of it."""
    with tempfile.TemporaryDirectory() as folder:
        results, names = Path(folder) / "results.jsonl", Path(folder) / "cases"
        names.write_text("\n".join(cases))
        command = [
            options.python, "-m", "pytest", "-q", "-p", "nkilib_plugin", "-p", "no:cacheprovider", "--tb=no", "-W", "ignore",
            "--test-mode", "simulation", "--output-directory", str(Path(folder) / "out"), "--force-local-cleanup",
            "--platform-target", options.target, *(("-m", options.marks) if options.marks else ()),
            *(("-k", options.names) if options.names else ()), f"@{names}",
        ]  # fmt: skip
        path = os.pathsep.join(
            [str(root / "src"), str(root / "src" / "nkilib_src"), str(HERE), os.environ.get("PYTHONPATH", "")]
        )
        extra = {"PYTHONPATH": path, "NKILIB_LOG_LEVEL": "OFF", "NKILIB_SIMULATION_RUN_ALL": "1", "OMP_NUM_THREADS": "1",
                 "NKILIB_RESULTS": str(results), "NKILIB_SMALLEST": "1" if options.entry_points else "",
                 "NKILIB_CASE_SECONDS": str(options.seconds)}  # fmt: skip
        try:
            done = subprocess.run(command, cwd=root, env={**os.environ, **extra}, capture_output=True, text=True, check=False,
                                  timeout=60 * options.minutes)  # fmt: skip
            if done.returncode not in (0, 1, 5):  # 5: no case of the file has the mark
                said = (done.stdout + done.stderr)[-1500:]
                yield {"case": cases[0], "result": "failed", "what": f"pytest ended with {done.returncode}: {said}"}
        except subprocess.TimeoutExpired:
            yield {"case": cases[0], "result": "not all", "what": f"stopped after {options.minutes} minutes"}
        for line in results.read_text().splitlines() if results.exists() else ():
            row: Row = json.loads(line)
            known = fault(row)
            row["what"] = known or row["what"]
            if row["what"].startswith("not done after"):
                row["result"] = "given up"
            if known and row["result"] == "failed":
                row["result"] = "fault"
            yield row


def fault(row: Row) -> str:
    """Why a case fails whatever runs it, if it does."""
    return next((why for pattern, why in FAULTS.items() if re.search(pattern, row["case"] + row["what"])), "")


def write(rows: Sequence[Row], path: Path) -> None:
    """The table as CSV."""
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, restval="", extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)


def family(case: str) -> str:
    """``core/attention`` of a case's path."""
    return "/".join(case.removeprefix("integration/").removeprefix(TESTS + "/").removeprefix("nkilib/").split("/")[:2])


def counts(rows: Sequence[Row]) -> str:
    """How many passed, failed and were not run, a line for each family."""
    titles = "family", *RESULTS, "skipped by the suite", "largest error", "seconds", "… in the simulator"
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name in (*sorted({family(row["case"]) for row in rows}), "all"):
        mine = [row for row in rows if name in ("all", family(row["case"]))]
        n = Counter(row["result"] for row in mine)
        error = max((row.get("error", 0.0) for row in mine if row["result"] == "passed"), default=0.0)
        seconds, simulated = (sum(row.get(key, 0.0) for row in mine) for key in ("seconds", "simulated"))
        numbers = " | ".join(str(n[result]) for result in (*RESULTS, "skipped"))
        lines.append(f"| {name} | {numbers} | {error:.1e} | {seconds:.0f} | {simulated:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

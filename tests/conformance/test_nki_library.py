"""aws-neuron/nki-library at tag 2.29, by its own tests and tolerances: one-core cases whose instructions exist.

NKILIB_ROOT names a checkout. Needs what that suite imports (torch, scipy, allpairspy, fabric2, boto3, …).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from public_kernels import checkout

ROOT = checkout("NKILIB_ROOT")
HERE = Path(__file__).parent
CORE = "test/integration/nkilib/core"
EXPERIMENTAL = "test/integration/nkilib/experimental"
TRN3 = ("--platform-target", "trn3")

SELECTIONS = {
    "tensor_view": ([f"{CORE}/utils/test_tensor_view.py"], {}),
    "cross_partition_copy": ([f"{CORE}/utils/test_cross_partition_copy.py"], {}),
    "tp_broadcast": ([f"{CORE}/utils/test_tp_broadcast.py"], {}),
    "gen_mask_tkg": ([f"{CORE}/attention/test_gen_mask_tkg.py", "-m", "fast", "-k", "lnc-1"], {}),
    "rope_hf": ([f"{CORE}/embeddings/test_rope_hf.py", "-m", "fast", "-k", "backward-0-1"], {}),
    "rmsnorm_tkg": ([f"{CORE}/subkernels/test_rmsnorm_tkg.py", "-m", "fast", "-k", "lnc-1"], {}),
    "layernorm_tkg": ([f"{CORE}/subkernels/test_layernorm_tkg.py", "-m", "fast", "-k", "lnc-1"], {}),
    "mlp_tkg": ([f"{CORE}/mlp/test_mlp_tkg.py", "-m", "fast", "-k", "vnc-1 and h-256"], {}),
    # written for two cores; on one they do the whole work
    "cumsum": ([f"{CORE}/cumsum/test_cumsum.py", "-m", "fast"], {"NKILIB_ONE_CORE": "1"}),
    "rope": ([f"{CORE}/embeddings/test_rope.py", "-m", "fast"], {"NKILIB_ONE_CORE": "1"}),
    "cascaded_max": ([f"{CORE}/max/test_cascaded_max.py", "-m", "fast", "-k", "not b-256"], {"NKILIB_ONE_CORE": "1"}),
    "topk": ([f"{CORE}/topk/test_topk.py", "-m", "fast", "-k", "lnc-1"], {}),
    "dynamic_elementwise_add": (
        [f"{EXPERIMENTAL}/dynamic_shapes/test_dynamic_elementwise_add.py"],
        {"NKILIB_ONE_CORE": "1"},
    ),
    "topk_reduce": ([f"{EXPERIMENTAL}/subkernels/test_topk_reduce.py"], {"NKILIB_ONE_CORE": "1"}),
    "find_nonzero_indices": (
        [f"{EXPERIMENTAL}/benchmark/test_find_nonzero_indices_with_count.py"],
        {"NKILIB_ONE_CORE": "1"},
    ),
    "qkv_tkg": ([f"{CORE}/qkv/test_qkv_tkg.py", "-m", "fast", "-k", "4096 and not 16384"], {"NKILIB_ONE_CORE": "1"}),
    "qkv_cte": ([f"{CORE}/qkv/test_qkv_cte.py", "-m", "fast", "-k", "512"], {"NKILIB_ONE_CORE": "1"}),
    "attention_cte": ([f"{CORE}/attention/test_attention_cte.py", "-k", "seq_pack"], {"NKILIB_ONE_CORE": "1"}),
    "attention_bwd": ([f"{CORE}/attention/test_attention_bwd.py", "-m", "fast"], {"NKILIB_ONE_CORE": "1"}),
    # MXFP8 and MXFP4, trn3
    "mlp_mxfp4": ([f"{CORE}/mlp/test_mlp_proj_mxfp4.py", *TRN3], {"NKILIB_ONE_CORE": "1"}),
    # 16384 on one core meets a wrong offset of the library in its second block of weights; after a norm, which the reference
    # does not round to bfloat16, one case or another is up to 0.6 % over its tolerance of 4 %
    "qkv_tkg_mx": (
        [f"{CORE}/qkv/test_qkv_tkg.py", *TRN3, "-k", "mxfp and NO_NORM and not 16384"],
        {"NKILIB_ONE_CORE": "1"},
    ),
    "qkv_cte_mx": (
        [f"{CORE}/qkv/test_qkv_cte.py", *TRN3, "-k", "(mxfp8_unit or neutral_mx_scales) and (124-512 or 128-512)"],
        {"NKILIB_ONE_CORE": "1"},
    ),
    "output_projection_mxfp4": (
        [f"{CORE}/output_projection/test_output_proj_cte.py", *TRN3, "-k", "mxfp4 and (s-16_ or s-128_ or s-256_ or s-320)"],
        {"NKILIB_ONE_CORE": "1"},
    ),
    "output_projection_mxfp8": (
        [f"{CORE}/output_projection/test_output_proj_cte.py", *TRN3, "-k", "static_mxfp8_unit and (s-16_ or s-128_)"],
        {"NKILIB_ONE_CORE": "1"},
    ),
}


@pytest.mark.parametrize("family", SELECTIONS)
def test_library(family, tmp_path, note):
    arguments, extra = SELECTIONS[family]
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "nkilib_plugin", "-p", "no:cacheprovider", "--tb=line",
        "--test-mode", "simulation", "--output-directory", str(tmp_path / "out"), "--force-local-cleanup", *arguments,
    ]  # fmt: skip
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "src" / "nkilib_src"), str(HERE)])
    environment = {**os.environ, "PYTHONPATH": path, "NKILIB_LOG_LEVEL": "OFF", "NKILIB_SIMULATION_RUN_ALL": "1", **extra}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    closing = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-2000:]
    note(re.sub(r" in [\d.]+s.*", "", closing))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in closing

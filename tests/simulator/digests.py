"""What kernels write to memory, as digests: ``python tests/simulator/digests.py [MODULE …]`` hides the modules first.

Every example of the reference runs on inputs of several data types, then a few kernels in low precision.
"""

import contextlib
import hashlib
import io
import json
import sys
import warnings

if __name__ == "__main__":
    for hidden in sys.argv[1:]:
        sys.modules[hidden] = None

import nki_sim
import numpy as np

nki_sim.install()

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402
from examples import ENTRIES, X, run_example  # noqa: E402
from kernels import ld, ps, sb, st  # noqa: E402
from nki_sim import NkiError, NkiWarning  # noqa: E402

BF16 = "bfloat16"
DTYPES = ("float32", BF16, "float8_e4m3", "float8_e5m2")
LOW = (BF16, "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
random = np.random.default_rng(3)
WIDE = (random.standard_normal((128, 512)) * np.exp2(random.integers(-20, 20, (128, 512)))).astype(np.float32)
WIDE[0, :6] = [np.nan, -np.nan, np.inf, -np.inf, -0.0, 1e-42]


def digest(run, *more):
    """Of what every step wrote, of the results and of more arrays, their data types included."""
    found, replay = hashlib.blake2b(digest_size=8), run.replay()
    written = (
        replay.operand(step, i, after=True) for step in range(len(run.program)) for i in run.program.plan_at(step).writes
    )
    for array in (*written, *run.outputs, *more):
        found.update(f"{nki_sim.dtypes.lookup(array.dtype).name} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def outcome(work):
    """The digest of a run, or why there is none."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore", NkiWarning)
            return digest(*work())
    except NkiError as error:
        return f"{type(error).__name__}: {error.diagnosis.rule.id}"


def matmul(lhs_t, rhs):
    acc = ps(lhs_t.shape[1], rhs.shape[1])
    nisa.nc_matmul(dst=acc, stationary=ld(lhs_t), moving=ld(rhs))
    return st(ld(nl.copy(acc, dtype=rhs.dtype)))


def softmax(x):
    return st(nl.softmax(ld(x), axis=1))


def converted(x, dtype):
    """To a data type, on and after a DMA, from there to others, and back; a tile that is written in part."""
    once = ld(x, dtype)
    for other in (*LOW, "float16", "int8", "int32"):
        nisa.tensor_copy(dst=sb(*x.shape, dt=other), src=once)
    hole = sb(*x.shape, dt=dtype)
    nisa.memset(dst=hole[0:128, 0:64], value=1.1)
    return st(ld(once, "float32")), st(hole)


def gathered(x, index):
    """Rows of HBM by indices, added to and written back to rows, also of the argument."""
    rows, at = sb(128, 512, dt=x.dtype), ld(index)
    nisa.dma_copy(dst=rows, src=x.ap(pattern=[[512, 128], [1, 512]], vector_offset=at))
    some = x.ap(pattern=[[512, 128], [1, 512]], vector_offset=at)
    nisa.dma_compute(dst=some, srcs=[some, rows], reduce_op=nl.add)
    nisa.dma_compute(dst=rows, srcs=[rows, some], reduce_op=nl.add)
    nisa.dma_copy(dst=some, src=nl.add(rows, rows))
    return st(rows)


def moved(x):
    """As bits: transposed, picked inside and outside of the tile, dropped, through a register."""
    tile = ld(x)
    turned = ps(128, 128, dt="float32" if nki_sim.context.core().gen == 2 else x.dtype)
    nisa.nc_transpose(dst=turned, data=tile[:, 0:128], engine=nisa.engine.tensor)
    picked = sb(128, 64, dt=x.dtype)
    index = ld(nl.shared_constant(np.arange(512).reshape(128, 4).astype(np.uint16) * 5))
    nisa.local_gather(dst=picked, src_buffer=tile, index=index)
    nisa.dropout(dst=picked, data=picked, prob=nl.full((128, 1), 0.3, dtype=nl.float32))
    register, cell = nisa.register_alloc(), sb(1, 1, dt=x.dtype)
    nisa.register_load(dst=register, src=tile[0:1, 9:10])
    nisa.register_store(dst=cell, src=register)
    return st(turned), st(picked), st(cell)


def multiplied(packed, scales, dst):
    """The product of packed elements with their scales."""
    acc = ps(128, 128, dt=dst)
    nisa.nc_matmul_mx(dst=acc, stationary=packed, moving=packed, stationary_scale=scales, moving_scale=scales)
    return st(acc)


def quantised(x, dtype):
    packed, scales = sb(128, 128, dt=dtype), sb(128, 128, dt="float8_e8m0fnu")
    nisa.quantize_mx(dst=packed, src=ld(x), dst_scale=scales)
    return multiplied(packed, scales, "bfloat16")


def given(bits):
    return multiplied(ld(bits.view("float4_e2m1fn_x4")), nl.full((128, 128), 126, dtype=nl.uint8), "float32")


def ran(kernel, *args, **how):
    """The run, and the arguments that are arrays, as it left them."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    return nki_sim.run(kernel, *copies, **how), *[a for a in copies if isinstance(a, np.ndarray)]


def kernels():
    """The name of each kernel's run, and the run with its arguments."""
    random = np.random.default_rng(5)
    index = random.permutation(128).astype(np.int32)[:, None]
    for dtype in LOW:
        x, small = (nki_sim.to_dtype(values, dtype) for values in (WIDE, X))
        for precise in (True, False):
            how = {"precise": precise, "target": "trn3" if dtype == "float8_e4m3fn" else "trn2"}
            yield f"converted {dtype} {precise}", lambda d=dtype, h=how: ran(converted, WIDE, d, **h)
            yield f"softmax {dtype} {precise}", lambda x=small, h=how: ran(softmax, x, **h)
            yield f"matmul {dtype} {precise}", lambda x=small, h=how: ran(matmul, x[:, :128], x, **h)
            yield f"gathered {dtype} {precise}", lambda x=x, h=how: ran(gathered, x, index, **h)
        for target in ("trn1", "trn2", "trn3"):
            yield f"moved {dtype} {target}", lambda x=x, t=target: ran(moved, x, target=t)
    for packed in ("float8_e5m2_x4", "float8_e4m3fn_x4"):
        yield f"quantised {packed}", lambda p=packed: ran(quantised, nki_sim.to_dtype(WIDE, BF16), p, target="trn3")
    bits = random.integers(0, 1 << 16, (128, 128)).astype(np.uint16)
    yield "given float4_e2m1fn_x4", lambda: ran(given, bits, target="trn3")


def everything():
    """Digests by name."""
    made = {}
    for dtype in DTYPES:
        x = nki_sim.to_dtype(X, dtype)
        made.update({f"{name} {dtype}": outcome(lambda name=name, x=x: [run_example(name, x)]) for name in ENTRIES})
    made.update({name: outcome(work) for name, work in kernels()})
    return made


if __name__ == "__main__":
    json.dump(everything(), sys.stdout)

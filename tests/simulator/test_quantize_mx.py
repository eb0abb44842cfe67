"""``nki.isa.quantize_mx``: values, scales and where they go, special values, limits."""

import ml_dtypes
import mx_reference as mx
import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from kernels import ld, sb, st
from nki_sim import mx as tables
from references import run
from rulebook import Book, hx, v, x

book = Book()
BF16, E4, E5 = nl.bfloat16, nl.float8_e4m3fn_x4, nl.float8_e5m2_x4
TARGETS = ["float8_e5m2_x4", "float8_e4m3fn_x4"]
SOURCES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
LARGEST = {"float8_e5m2_x4": 57344.0, "float8_e4m3fn_x4": 448.0}


def quantize(data, dtype, which=0, offset=0, view=nl.uint8):
    """Elements, or scales as they lie in SBUF with 77 where none were written."""
    p, f = data.shape[0], data.shape[1] // 4
    scales = sb(p, f, dt=view)
    nisa.memset(dst=scales.view(nl.uint8), value=77)
    d = sb(p, f, dt=dtype)
    nisa.quantize_mx(dst=d, src=ld(data), dst_scale=scales[offset:, :])
    return st(scales.view(nl.uint8) if which else d)


def check(data, dtype, offset=0, **how):
    packed, scales = mx.quantized(data.astype(np.float64), dtype)
    np.testing.assert_array_equal(run(quantize, data, dtype, target="trn3", **how), packed)
    got = run(quantize, data, dtype, 1, offset, target="trn3", **how)
    np.testing.assert_array_equal(got, mx.scattered(scales, offset, len(data)))


@pytest.mark.parametrize("dtype", mx.PACKED)
def test_every_element_of_the_tables(dtype):
    bits = 16 if dtype == "float4_e2m1fn_x4" else 256
    for shift in range(4):
        packed = np.array([[c << (4 if bits == 16 else 8) * shift for c in range(bits)]], mx.STORED[dtype])
        values = tables.unpack(packed, dtype)
        want = np.zeros((1, bits, 4))
        want[0, :, shift] = [mx.decoded(c, dtype) for c in range(bits)]
        np.testing.assert_array_equal(values, want)
        np.testing.assert_array_equal(np.signbit(values[..., shift])[~np.isnan(want[..., shift])],
                                      np.signbit(want[..., shift])[~np.isnan(want[..., shift])])  # fmt: skip
        finite = np.isfinite(want[..., shift])
        np.testing.assert_array_equal(tables.pack(values[finite][None], dtype), packed[finite][None])


def test_every_scale():
    got = tables.scale_values(np.arange(256, dtype=np.uint8))
    np.testing.assert_array_equal(got.astype(np.float64), [mx.scale_of(b) for b in range(256)])
    np.testing.assert_array_equal(got * tables.INVERSES, [1] * 255 + [np.nan])
    assert tables.SCALES.dtype == tables.INVERSES.dtype == np.float32


@given(data=some.data(), rows=some.sampled_from([32, 64, 96, 128]), columns=some.integers(1, 3),
       dtype=some.sampled_from(TARGETS), source=some.sampled_from(list(SOURCES)),
       offset=some.sampled_from([0, 4, 8, 12]))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_element_by_element(data, rows, columns, dtype, source, offset):
    seed, low, high = data.draw(some.integers(0, 2**32)), data.draw(some.integers(-160, 120)), data.draw(some.integers(0, 60))
    generator, shape = np.random.default_rng(seed), (rows, 4 * columns)
    values = generator.standard_normal(shape) * np.exp2(generator.integers(low, low + high + 1, shape))
    zeros = generator.random(shape) < data.draw(some.sampled_from([0, 0.2, 0.9, 0.99, 1]))
    most = float(ml_dtypes.finfo(SOURCES[source]).max)
    values = np.clip(np.where(zeros, -0.0, values), -most, most).astype(SOURCES[source])
    check(values, dtype, offset)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("dtype", TARGETS)
def test_16_bit_numbers_of_every_size(dtype, source):
    """A good sample of the finite ones, each alone in its block."""
    infinity = int(np.array(np.inf, SOURCES[source]).view(np.uint16))
    bits = np.arange(0, infinity, 11)
    signed = np.append(bits, bits + (1 << 15)).astype(np.uint16)
    blocks = np.zeros((4, 8, -(-len(signed) // 4), 4), np.uint16)
    blocks[:, 5, :, 2].flat[: len(signed)] = signed
    check(blocks.reshape(32, -1).view(SOURCES[source]), dtype)


def test_the_scale_is_twice_that_of_the_ocp_sample_so_that_rounding_stays_in_range():
    data = np.zeros((32, 8), ml_dtypes.bfloat16)
    data[0, 0], data[0, 4] = 1.9921875, 1.0
    assert run(quantize, data, E4, 1, target="trn3")[0].tolist() == [127 - 7, 127 - 7]
    assert run(quantize, data, E5, 1, target="trn3")[0].tolist() == [127 - 14, 127 - 14]
    for dtype, power in ((E4, 8), (E5, 15)):
        packed = run(quantize, data, dtype, target="trn3")[0]
        assert [mx.decoded(int(p) & 255, dtype) for p in packed] == [2.0**power, 2.0 ** (power - 1)]


@pytest.mark.parametrize("dtype", TARGETS)
def test_blocks_of_zeros_and_of_the_smallest_numbers(dtype):
    data = np.zeros((32, 8), ml_dtypes.bfloat16)
    data[0, 0], data[1, 1] = -0.0, np.array(1, np.uint16).view(ml_dtypes.bfloat16)  # 2^-133
    data[8, 4] = -1.0
    check(data, dtype)
    scales = run(quantize, data, dtype, 1, target="trn3")
    assert scales[0].tolist() == [0, 0]  # the exponent of 2^-133 is past the smallest scale
    assert scales[1, 0] == scales[2, 0] == 0 and scales[1, 1] > 0
    assert run(quantize, data, dtype, target="trn3")[0, 0] == 0x80


@pytest.mark.parametrize("dtype", TARGETS)
def test_a_nan_makes_its_block_nan_and_no_other(dtype):
    data = np.ones((32, 8), ml_dtypes.bfloat16)
    data[5, 2] = np.nan
    packed, scales = (run(quantize, data, dtype, which, target="trn3") for which in (0, 1))
    assert scales[0, 0] == 255 and (scales[1:4, 0] < 255).all() and (scales[0:4, 1] < 255).all()
    assert all(np.isnan(mx.decoded(c, dtype)) for p in packed[:8, 0] for c in mx.codes(p, dtype))
    assert not any(np.isnan(mx.decoded(c, dtype)) for p in packed[:8, 1] for c in mx.codes(p, dtype))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("dtype", TARGETS)
def test_infinity_saturates_under_the_largest_scale(dtype, source):
    data = np.ones((32, 4), SOURCES[source])
    data[0, :3] = np.inf, -np.inf, 0
    packed, scales = (run(quantize, data, dtype, which, target="trn3") for which in (0, 1))
    assert scales[:4, 0].tolist() == [254, *scales[1:4, 0]]
    first = [mx.decoded(c, dtype) for c in mx.codes(packed[0, 0], dtype)]
    assert first == [LARGEST[dtype], -LARGEST[dtype], 0, 0]


def test_views_of_all_operands():
    """Dimensions, steps and starts of views; in one quadrant, and across four."""

    def kernel(data, which):
        src, d, s = ld(data), sb(128, 6, 9, dt=E4), sb(128, 3, 20, dt=nl.uint8)
        nisa.memset(dst=s, value=77)
        nisa.memset(dst=d, value=0)
        nisa.quantize_mx(dst=d[:, 1:6:2, 2:6], src=src[:, :, 4:20], dst_scale=s[8:, :, 3:7])
        nisa.quantize_mx(dst=d[96:128, 0:1, :], src=src[96:128, 0:3, 0:12], dst_scale=s[108:112, 0, 0:9])
        return st(s if which else d)

    data = np.random.default_rng(1).standard_normal((128, 3, 24)).astype(np.float16)
    first, first_scales = mx.quantized(data[:, :, 4:20].reshape(128, 48).astype(float), E4)
    second, second_scales = mx.quantized(data[96:, 0:3, 0:12].reshape(32, 36).astype(float), E4)
    want, scales = np.zeros((128, 6, 9), np.uint32), np.full((128, 3, 20), 77, np.uint8)
    want[:, 1:6:2, 2:6], want[96:, 0] = first.reshape(128, 3, 4), second
    for q in range(4):
        scales[32 * q + 8 : 32 * q + 12, :, 3:7] = first_scales[4 * q : 4 * q + 4].reshape(4, 3, 4)
    scales[108:112, 0, 0:9] = second_scales
    np.testing.assert_array_equal(run(kernel, data, 0, target="trn3"), want)
    np.testing.assert_array_equal(run(kernel, data, 1, target="trn3"), scales)


def test_scales_as_numbers():
    data = np.random.default_rng(2).standard_normal((64, 16)).astype(np.float16)
    packed, scales = mx.quantized(data.astype(float), E5)

    def kernel(data, which):
        d, s = sb(64, 4, dt=E5), nl.zeros((64, 4), dtype=nl.float8_e8m0fnu, buffer=nl.sbuf)
        nisa.quantize_mx(dst=d, src=ld(data), dst_scale=s)
        return st(s if which else d)

    np.testing.assert_array_equal(run(kernel, data, 0, target="trn3"), packed)
    got = run(kernel, data, 1, target="trn3")
    assert got.dtype == ml_dtypes.float8_e8m0fnu
    np.testing.assert_array_equal(got.view(np.uint8)[[0, 1, 2, 3, 32, 33, 34, 35]], scales)


def test_without_narrow_floats_the_numbers_are_those_of_float32(monkeypatch):
    monkeypatch.setenv("NKI_PRECISE_FP", "0")

    def kernel(data, which):
        d, s = sb(32, 4, dt=E5), sb(4, 4, dt=nl.float8_e8m0fnu)
        nisa.quantize_mx(dst=d, src=ld(data, BF16), dst_scale=s)
        return st(s if which else d)

    data = np.random.default_rng(2).standard_normal((32, 16)).astype(np.float32)
    packed, scales = mx.quantized(data, E5)
    np.testing.assert_array_equal(run(kernel, data, 0, target="trn3"), packed)
    np.testing.assert_array_equal(np.asarray(run(kernel, data, 1, target="trn3"), np.float64), 2.0 ** (scales - 127.0))


def test_only_rows_with_scales_count_as_written():
    def kernel(data, row):
        d, s = sb(64, 4, dt=E4), sb(64, 4, dt=nl.uint8)
        nisa.quantize_mx(dst=d, src=ld(data), dst_scale=s)
        return st(s[row : row + 4, :])

    data = np.ones((64, 16), np.float16)
    assert (run(kernel, data, 32, target="trn3") == 120).all()
    with pytest.raises(nki_sim.NkiValidationError) as caught:
        run(kernel, data, 64 - 32 + 4, target="trn3")
    assert caught.value.diagnosis.rule.id == "ndarray.uninitialised"


def test_four_elements_per_cycle():
    def kernel(data):
        d, s = sb(32, 1024, dt=E4), sb(4, 1024, dt=nl.uint8)
        nisa.quantize_mx(dst=d, src=ld(data), dst_scale=s)
        nisa.quantize_mx(dst=d[:, 0:4], src=ld(data[:, 0:16]), dst_scale=s[:, 0:4])
        return st(s)

    done = nki_sim.run(kernel, np.ones((32, 4096), np.float16), target="trn3", strict=True)
    steps = [s for s in done.program if s.instruction == "quantize_mx"]
    assert [(s.engine, s.plan.cycles) for s in steps] == [("vector", 1024), ("vector", 64)]


def test_a_replay_gives_the_same_values():
    def kernel(data):
        d, s = sb(96, 6, dt=E4), sb(128, 6, dt=nl.uint8, address=(0, 512))
        nisa.memset(dst=s, value=9)
        nisa.quantize_mx(dst=d, src=ld(data), dst_scale=s[12:, :])
        return st(d), st(s)

    data = np.random.default_rng(5).standard_normal((96, 24)).astype(np.float16)
    done = nki_sim.run(kernel, data, target="trn3", strict=True)
    replay, program = done.replay(), done.program
    for result, allocation in zip(done.result, [a for a in program.allocations if a.role == "output"], strict=True):
        np.testing.assert_array_equal(replay.values(allocation, len(program)), result)
    step = next(s.index for s in program if s.instruction == "quantize_mx")
    names = [s.name for s in program.plan_at(step).slots]
    for name, row in (("dst_scale", 12), ("dst_scale_q1", 44), ("dst_scale_q2", 76)):
        after = replay.operand(step, names.index(name), after=True)
        np.testing.assert_array_equal(after, done.result[1][row : row + 4])
        assert (replay.operand(step, names.index(name)) == 9).all()
    assert replay.operand(step, names.index("dst_scale_q3")) is None


# -- limits ------------------------------------------------------------------------------------------------------------


def issue(bad=False, p=32, f=8, dt=E4, src=None, scale=None, dst=None):
    """Quantise ``x(p, f)``, with parts exchanged, and return a float32 tile of what the elements are."""
    source = x(p, f, dt=BF16) if src is None else src
    d = sb(p, f // 4, dt=dt) if dst is None else dst
    s = sb(4 if p == 32 else p, f // 4, dt=nl.uint8) if scale is None else scale
    nisa.quantize_mx(dst=d, src=source, dst_scale=s)
    return bits(d, p, f, dt)


def bits(d, p, f, dt, src=None):
    return d.view(nl.uint8), elements(v(p, f) if src is None else src, dt)


def elements(values, dt):
    packed, _ = mx.quantized(values, dt)
    return packed.view(np.uint8).reshape(values.shape)


@book.breaks("quantize_mx.gen4_only", on="trn1 trn2")
def _(bad):
    if not bad:
        return x(32, 8), v(32, 8)
    t = sb(32, 2, dt=nl.uint32)
    nisa.quantize_mx(dst=t, src=x(32, 8, dt=BF16), dst_scale=sb(4, 2, dt=nl.uint8))
    return t, 0


@book.breaks("quantize_mx.buffers", on="trn3")
def _(bad):
    return issue(src=x(32, 8, dt=BF16, buffer=nl.psum if bad else nl.sbuf))


@book.breaks("quantize_mx.buffers", on="trn3")
def _(bad):
    return issue(src=(hx if bad else x)(32, 8, dt=BF16))


@book.breaks("quantize_mx.buffers", on="trn3")
def _(bad):
    return issue(scale=nl.ndarray((4, 2), dtype=nl.uint8, buffer=nl.psum if bad else nl.sbuf))


@book.breaks("quantize_mx.src_dtype", on="trn3")
def _(bad):
    return issue(src=x(32, 8, dt=nl.float32 if bad else nl.float16))


@book.breaks("quantize_mx.dst_dtype", on="trn3")
def _(bad):
    return issue(dt=nl.float4_e2m1fn_x4 if bad else E5)


@book.breaks("quantize_mx.dst_dtype", on="trn3")
def _(bad):
    d = sb(32, 2, dt=nl.uint32)
    issue(dst=d if bad else d.view(E4))
    return d.view(nl.uint8), elements(v(32, 8), E4)


@book.breaks("quantize_mx.scale_dtype", on="trn3")
def _(bad):
    return issue(scale=sb(4, 2, dt=nl.int8 if bad else nl.float8_e8m0fnu))


@book.breaks("quantize_mx.src_p_mult_32", on="trn3")
def _(bad):
    return issue(p=48 if bad else 96)


@book.breaks("quantize_mx.src_p_mult_32", on="trn3")
def _(bad):
    return issue(p=16 if bad else 32, scale=sb(4, 2, dt=nl.uint8))


@book.breaks("quantize_mx.src_f_mult_4", on="trn3")
def _(bad):
    return issue(src=x(32, 10, dt=BF16) if bad else x(32, 2, 4, dt=BF16))


@book.breaks("quantize_mx.dst_shape", on="trn3")
def _(bad):
    d = sb(32, 3, dt=E4)
    issue(dst=d if bad else d[:, 1:3])
    return d[:, 1:3].view(nl.uint8), elements(v(32, 8), E4)


@book.breaks("quantize_mx.dst_shape", on="trn3")
def _(bad):
    d = sb(64, 2, dt=E4)
    issue(dst=d if bad else d[32:64, :])
    return d[32:64, :].view(nl.uint8), elements(v(32, 8), E4)


@book.breaks("quantize_mx.scale_shape", on="trn3")
def _(bad):
    s = sb(4, 3, dt=nl.uint8)
    return issue(scale=s if bad else s[:, 0:2])


@book.breaks("quantize_mx.scale_shape", on="trn3")
def _(bad):
    return issue(scale=sb(3 if bad else 4, 2, dt=nl.uint8))


@book.breaks("quantize_mx.scale_shape", on="trn3")
def _(bad):
    return issue(p=128, scale=sb(16 if bad else 128, 2, dt=nl.uint8))


@book.breaks("quantize_mx.scale_shape", on="trn3")
def _(bad):
    s = sb(128, 2, dt=nl.uint8)
    return issue(p=64, scale=s[:35, :] if bad else s[:36, :])


@book.breaks("quantize_mx.scale_shape", on="trn3")
def _(bad):
    s = sb(128, 2, dt=nl.uint8)
    return issue(scale=s[32:, :] if bad else s[0:, :])


@book.breaks("quantize_mx.scale_shape", on="trn3")
def _(bad):
    s = sb(128, 2, dt=nl.uint8)
    return issue(p=128, scale=s[16:, :] if bad else s[12:, :])


@book.breaks("quantize_mx.scale_shape", on="trn3")
def _(bad):
    s = sb(128, 2, dt=nl.uint8)
    return issue(scale=s[2:6, :] if bad else s[4:8, :])


@book.breaks("hw.partition_access_contiguous", on="trn3")
def _(bad):
    s = sb(8, 2, dt=nl.uint8)
    return issue(scale=s[0:8:2, :] if bad else s[4:8, :])


@book.breaks("kernel.operand_type", on="trn3", error=nki_sim.errors.NkiTypeError)
def _(bad):
    s = sb(4, 2, dt=nl.uint8)
    d = sb(32, 2, dt=E4)
    nisa.quantize_mx(dst=d, src=x(32, 8, dt=BF16), dst_scale=None if bad else s)
    return bits(d, 32, 8, E4)


@book.rejects()
def test_rejects(case, target):
    with pytest.raises(case.error) as caught:
        case.run(target, bad=True)
    assert caught.value.diagnosis.rule.id == case.rule, str(caught.value)


@book.accepts()
def test_accepts(case, target, bad):
    case.run(target, bad)

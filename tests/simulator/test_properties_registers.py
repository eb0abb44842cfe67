"""Registers and runtime scalars: programs of moves, loads, stores and arithmetic against Python's whole numbers."""

import nki.isa as nisa
import nki.language as nl
import nki_sim
import numpy as np
import properties as pr
from hypothesis import given
from hypothesis import strategies as some
from kernels import hb, ld, sb, st
from properties import BY_NAME, INTEGERS, F, cast, equal, tried

COVERS = {
    "register_load": "test_registers",
    "register_move": "test_registers",
    "register_store": "test_registers",
    "scalar_load": "test_scalars",
    "scalar_store": "test_scalars",
}
COUNT = 3
whole = some.integers(-(2**31), 2**31 - 1) | some.integers(-4, 4) | some.sampled_from([2**31 - 1, -(2**31)])


@given(data=some.data(), target=pr.targets, load_dtype=pr.dtypes, store_dtype=pr.dtypes)
@tried(120)
def test_registers(data, target, load_dtype, store_dtype):
    """A register holds a number; a store converts it as every other result: nearest even, whole numbers saturate."""
    generator = np.random.default_rng(data.draw(pr.seeds))
    source = pr.contents(generator, (3, 4), load_dtype)
    places = some.tuples(some.integers(0, 2), some.integers(0, 3))
    steps = []
    for _ in range(data.draw(some.integers(1, 8))):
        kind = data.draw(some.sampled_from(["number", "register", "load", "load far", "store", "store far"]))
        which = data.draw(some.integers(0, COUNT - 1))
        value = whole if kind == "number" else some.integers(0, COUNT - 1) if kind == "register" else places
        steps.append((kind, which, data.draw(value)))

    def element(t, place):
        p, i = place
        return t[p : p + 1, i : i + 1]

    def kernel(source):
        registers = [nisa.register_alloc(k) for k in range(COUNT)]
        near = ld(source, dt=load_dtype)
        tile, far = (
            nl.zeros((3, 4), dtype=store_dtype, buffer=nl.sbuf),
            nl.zeros((3, 4), dtype=store_dtype, buffer=nl.shared_hbm),
        )
        for kind, which, value in steps:
            if kind == "number":
                nisa.register_move(dst=registers[which], src=value)
            elif kind == "register":
                nisa.register_move(dst=registers[which], src=registers[value])
            elif kind.startswith("load"):
                nisa.register_load(dst=registers[which], src=element(near if kind == "load" else source, value))
            else:
                nisa.register_store(dst=element(tile if kind == "store" else far, value), src=registers[which])
        return st(tile), far

    def stored(value):
        if isinstance(value, int) and store_dtype in INTEGERS:
            info = np.iinfo(BY_NAME[store_dtype])
            return BY_NAME[store_dtype](min(max(value, int(info.min)), int(info.max)))
        return cast(F(value), store_dtype)

    held, tile, far = list(range(COUNT)), *(np.zeros((3, 4), BY_NAME[store_dtype]) for _ in "12")
    for kind, which, value in steps:
        if kind == "number":
            held[which] = value
        elif kind == "register":
            held[which] = held[value]
        elif kind.startswith("load"):
            held[which] = int(source[value]) if load_dtype in INTEGERS else float(source[value])
        else:
            (tile if kind == "store" else far)[value] = stored(held[which])
    got = nki_sim.run(kernel, source, target=target, strict=True).result
    equal(got[0], tile)
    equal(got[1], far)


@given(data=some.data(), target=pr.targets, dtype=some.sampled_from(["int32", "int64"]), far=some.booleans())
@tried(100)
def test_scalars(data, target, dtype, far):
    """Sums, differences and products wrap at the width of the dtype."""
    bits = int(dtype[3:])
    number = some.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) | some.integers(-9, 9)
    source = np.array([[data.draw(number) for _ in range(2)]], dtype)
    program = []
    for k in range(data.draw(some.integers(1, 6))):
        other = data.draw(some.integers(0, k + 1) | some.tuples(some.integers(-(2**31), 2**31 - 1) | some.integers(-3, 3)))
        program.append((data.draw(some.sampled_from("+-*r")), data.draw(some.integers(0, k + 1)), other))
    out_dtype = data.draw(some.sampled_from([dtype, *["uint32"] * (dtype == "int32")]))

    def combined(values, op, left, other):
        right = other[0] if isinstance(other, tuple) else values[other]
        if op == "r":
            return right - values[left]
        return values[left] + right if op == "+" else values[left] - right if op == "-" else values[left] * right

    def kernel(source):
        place = source if far else ld(source)
        values = [nisa.scalar_load(place[0:1, i : i + 1]) for i in range(2)]
        for step in program:
            values.append(combined(values, *step))
        out = hb(1, 1, dt=out_dtype) if far else sb(1, 1, dt=out_dtype)
        nisa.scalar_store(dst=out, value=values[-1])
        return out if far else st(out)

    held = [int(v) for v in source[0]]
    for step in program:
        held.append((combined(held, *step) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1))
    got = nki_sim.run(kernel, source, target=target, strict=True).result
    value = held[-1] if out_dtype == dtype else max(held[-1], 0)
    equal(got, np.array([[value]], out_dtype))

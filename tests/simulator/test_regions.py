"""Boxes of accesses: never smaller than what the access touches, exact for slices."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from nki_sim.dtypes import lookup
from nki_sim.memory import Allocation, MemoryRegion
from nki_sim.program import Slot
from nki_sim.regions import box_of
from nki_sim.tensor import contiguous_strides


def allocation(shape, dtype="float32"):
    return Allocation.of(0, MemoryRegion.shared_hbm, shape, lookup(dtype), "", None, "tile", None, 0)


def touched(shape, itemsize, slot, offset):
    """Coordinates of every element that the access touches, by walking it."""
    flat = {offset * slot.itemsize}
    for n, s in zip(slot.shape, slot.strides, strict=True):
        flat = {a + i * s * slot.itemsize for a in flat for i in range(n)}
    elements = {(a + b) // itemsize for a in flat for b in (0, slot.itemsize - 1)}
    return np.array([np.unravel_index(e, shape) for e in sorted(elements)])


shapes = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)


@given(st.data(), shapes)
def test_a_box_holds_all_that_a_pattern_touches(data, shape):
    total = math.prod(shape)
    sizes, strides, left = [], [], total - 1
    for _ in range(data.draw(st.integers(1, 4))):
        n = data.draw(st.integers(1, 4))
        s = data.draw(st.integers(0, left // max(1, n - 1))) if n > 1 else 1
        left -= (n - 1) * s if n > 1 else 0
        sizes.append(n)
        strides.append(s)
    offset = data.draw(st.integers(0, left))
    slot = Slot("x", "read", tuple(sizes), tuple(strides), "float32", 4)
    box = box_of(allocation(shape), slot, offset)
    where = touched(shape, 4, slot, offset)
    assert (where >= box.first).all() and (where <= box.last).all()
    assert all(0 <= a <= b < n for a, b, n in zip(box.first, box.last, shape, strict=True))


@given(st.data(), shapes)
def test_the_box_of_a_slice_is_the_slice(data, shape):
    first = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    last = tuple(data.draw(st.integers(a, n - 1)) for a, n in zip(first, shape, strict=True))
    strides = contiguous_strides(shape)
    sizes = tuple(b - a + 1 for a, b in zip(first, last, strict=True))
    offset = sum(a * s for a, s in zip(first, strides, strict=True))
    box = box_of(allocation(shape), Slot("x", "read", sizes, strides, "float32", 4), offset)
    assert box == (first, last)


def test_a_view_as_bytes_touches_whole_elements():
    box = box_of(allocation((4, 8)), Slot("x", "read", (2, 6), (32, 1), "uint8", 1), 32 + 3)
    assert box == ((1, 0), (2, 2))

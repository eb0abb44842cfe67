"""What is known of every element of a tensor: one small number each, such as whether it was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from nki_sim.dtypes import Array
    from nki_sim.memory import Pattern, Storage


class Marks:
    """Numbers for the elements of a tensor, all alike at first.

    Kernels mostly write and read all partitions alike: while no access tells them apart, the marks of one partition stand
    for all.

    Attributes:
        unit: the bytes that each mark stands for: those of an element, or 1 once an access had elements of another size.
        rows, row_elems: partitions (1 for HBM), and elements of each.
    """

    __slots__ = ("_marks", "itemsize", "on_chip", "row_elems", "rows", "unit")

    def __init__(self, storage: Storage, mark: Any, dtype: type[np.generic]):
        self.rows, self.row_elems = storage.rows, storage.row_elems
        self.itemsize = self.unit = storage.itemsize
        self.on_chip = storage.on_chip
        self._marks = np.full(self.row_elems, mark, dtype)

    def all(self) -> Array:
        """Every element's own, from now on, in order."""
        if self.rows > 1 and self.unit == self.itemsize and len(self._marks) == self.row_elems:
            self._marks = np.tile(self._marks, self.rows)
        return self._marks

    def of(self, pattern: Pattern, every: bool = False) -> Array:
        """A view of the marks of an access pattern's elements, with a last dimension of an element's bytes where ``unit`` is
        1; of one partition, for all, while they are alike, unless ``every`` element's own is wanted."""
        offset, shape, strides, itemsize = pattern
        marks, alike = self._marks, not every and itemsize == self.unit and self._spans_partitions(shape, strides)
        if not alike:
            marks = self.all()
        elif len(marks) == self.row_elems:
            return np.ndarray((1, *shape[1:]), marks.dtype, marks.data, offset, strides)
        if itemsize != self.itemsize and self.unit == self.itemsize:
            marks = self._marks = np.repeat(marks, self.itemsize)
            self.unit = 1
        if self.unit != itemsize:
            shape, strides = (*shape, itemsize), (*(s * itemsize for s in strides), 1)
            offset *= itemsize
        return np.ndarray(shape, marks.dtype, marks.data, offset, strides)

    def _spans_partitions(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
        """Whether an access takes the same of every partition."""
        return shape[0] == self.rows and (shape[0] == 1 or strides[0] == self.row_elems) and self.on_chip


__all__ = ["Marks"]

"""Arrays of the notebook's own kinds on the ``%%nki`` line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from session import Notebook
from sources import DOUBLE, IN_PLACE

BASE = np.arange(12 * 20, dtype=np.float32).reshape(12, 20)


class OnlyArray:
    """An array of another library that NumPy can read."""

    def __init__(self, data: Any):
        self.data = data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.data


class OnlyDlpack:
    """An array of another library that hands out its memory."""

    def __init__(self, data: Any):
        self.data = data

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.data.__dlpack_device__()


def read_only(array: Any) -> Any:
    frozen = array.copy()
    frozen.flags.writeable = False
    return frozen


KINDS: dict[str, Any] = {
    "fortran": np.asfortranarray(BASE),
    "transposed": np.ascontiguousarray(BASE.T).T,
    "negative strides": BASE[::-1, ::-1],
    "every second": np.repeat(BASE, 2, axis=1)[:, ::2],
    "read only": read_only(BASE),
    "__array__": OnlyArray(BASE),
    "__dlpack__": OnlyDlpack(BASE.copy()),
    "with NaN": np.where(BASE == 7, np.nan, BASE).astype(np.float32),
    "int32": BASE.astype(np.int32),
}


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_come_in_as_they_are(notebook: Notebook, kind: str) -> None:
    given = KINDS[kind]
    notebook.names["x"] = given
    plain = np.asarray(getattr(given, "data", given)) if isinstance(given, (OnlyArray, OnlyDlpack)) else given
    before = plain.copy()
    shown = notebook.run("%%nki d = double(x)\n" + DOUBLE)
    assert shown.error is None, shown.text
    np.testing.assert_array_equal(notebook.names["d"], before * 2)
    np.testing.assert_array_equal(plain, before)


@pytest.mark.parametrize("kind", ["fortran", "negative strides", "every second"])
def test_arrays_are_written_where_they_are(notebook: Notebook, kind: str) -> None:
    notebook.names["x"] = given = KINDS[kind].copy(order="K")
    before = given.copy()
    assert notebook.run("%%nki add_one(x)\n" + IN_PLACE).error is None
    np.testing.assert_array_equal(given, before + 1)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (read_only(BASE), "read-only"),
        (np.array([{}, {}], dtype=object), "object"),
        (np.zeros((0, 3), np.float32), "(0, 3)"),
        (np.array(3, np.float32), "()"),
        (BASE.astype(np.float64), "float64"),
        (BASE.astype(np.complex64), "complex64"),
    ],
)
def test_arrays_that_no_kernel_takes(notebook: Notebook, value: Any, said: str) -> None:
    notebook.names["x"] = value
    shown = notebook.run("%%nki add_one(x)\n" + IN_PLACE)
    assert shown.error is not None
    assert said in str(shown.error)


def test_a_failed_run_leaves_the_arrays_alone(notebook: Notebook) -> None:
    notebook.names["x"] = given = BASE.copy()
    shown = notebook.run("%%nki add_one(x)\n" + IN_PLACE + "    nl.ndarray((200, 4), dtype=x.dtype, buffer=nl.sbuf)\n")
    assert shown.error is not None
    np.testing.assert_array_equal(given, BASE)


def test_torch_tensors_come_back_as_tensors(notebook: Notebook) -> None:
    torch = pytest.importorskip("torch")
    notebook.names["x"] = torch.from_numpy(BASE.copy()).to(torch.bfloat16)
    shown = notebook.run('%%nki d = double(x) --check "x.float() * 2"\n' + DOUBLE)
    assert shown.error is None, shown.text
    assert notebook.names["d"].dtype == torch.bfloat16

"""Arrays on their way to the browser."""

from __future__ import annotations

import numpy as np
import pytest

from nki_nb.stepper.packing import KINDS, NAMED, apart, as_text, pack, pack_counts, unpack


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), (2, 3, 4)])
def test_there_and_back(kind: str, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape)).reshape(shape).astype(KINDS[kind])
    np.testing.assert_array_equal(unpack(pack(values, kind)), values)


@pytest.mark.parametrize(
    ("values", "kind"), [([], "u1"), ([0, 255], "u1"), ([256], "u2"), ([65535], "u2"), ([65536], "i4"), ([-1], "i4")]
)
def test_counts_are_packed_narrowly(values: list[int], kind: str) -> None:
    packed = pack_counts(values)
    assert packed["kind"] == kind
    assert unpack(packed).tolist() == values


def test_arrays_travel_beside_a_message_or_as_text_in_it() -> None:
    answer = {"id": 1, "answer": {"a": pack([1, 2], "u1"), "parts": [{"b": pack([3], "i4")}, {"b": None}]}}
    message, buffers = apart(answer)
    assert message["answer"]["a"]["data"] == 0 and message["answer"]["parts"][0]["b"]["data"] == 1
    assert buffers == [b"\x01\x02", b"\x03\x00\x00\x00"]
    text = as_text(answer)
    assert unpack(text["answer"]["a"]).tolist() == [1, 2]
    assert answer["answer"]["a"]["data"] == b"\x01\x02"  # type: ignore[index]


def test_nan_keeps_its_bits() -> None:
    values = np.array([0x7FC00001, 0xFFC00000], np.uint32).view(np.float32)
    assert unpack(pack(values, "f4")).view(np.uint32).tolist() == [0x7FC00001, 0xFFC00000]


def test_a_large_array_is_sent_once_and_not_to_who_holds_it() -> None:
    tile, other = np.arange(NAMED // 4), np.zeros(NAMED // 4)
    answer = {
        "src": pack(tile, "f4"),
        "dst": [{"after": pack(tile, "f4")}],
        "small": pack([1], "u1"),
        "other": pack(other, "f4"),
    }
    message, buffers = apart(answer)
    first = message["src"]["data"]
    assert first["at"] == 0 and message["dst"][0]["after"]["data"] == {"name": first["name"]}
    assert [len(b) for b in buffers] == [NAMED, 1, NAMED]
    message, buffers = apart(answer, [first["name"]])
    assert message["src"]["data"] == message["dst"][0]["after"]["data"] == {"name": first["name"]}
    assert [len(b) for b in buffers] == [1, NAMED] and message["other"]["data"]["at"] == 1

"""Instructions that gather, scatter, shuffle, scan or select: the pairs that the pictures draw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nki_sim
import numpy as np
import pytest

nki_sim.install()

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

import nki_nb  # noqa: E402
from nki_nb.stepper.feed import Feed  # noqa: E402
from nki_nb.stepper.saved import contents  # noqa: E402

Show = Callable[..., Any]
SHUFFLE = (*range(1, 32), 255)
DATA = np.random.default_rng(0).standard_normal((32, 12)).astype(np.float32)
INDEX = np.random.default_rng(1).integers(0, 12, (32, 2)).astype(np.uint16)


@nki.jit
def mover(x: Any, index: Any) -> Any:
    """Each kind of movement once, in this order."""
    tile, at = nl.load(x), nl.load(index)
    t = nl.zeros((32, 12), dtype=nl.float32)
    nisa.nc_stream_shuffle(dst=t, src=tile, shuffle_mask=SHUFFLE)
    picked = nl.ndarray((32, 20), dtype=nl.float32, buffer=nl.sbuf)
    nisa.local_gather(dst=picked, src_buffer=tile, index=at, num_elem_per_idx=1, num_valid_indices=20)
    wide = nl.copy(at, dtype=nl.uint32)
    own = nl.ndarray((32, 2), dtype=nl.float32, buffer=nl.sbuf)
    nisa.nc_n_gather(dst=own, data=tile, indices=wide)
    ones = nl.full((32, 12), 1.0, dtype=nl.float32)
    nisa.tensor_tensor_scan(dst=t, data0=ones, data1=tile, initial=0.0, op0=nl.multiply, op1=nl.add)
    nisa.affine_select(dst=t, pattern=[[-1, 12]], channel_multiplier=1, on_true_tile=tile, on_false_value=0.0,
                       cmp_op=nl.greater_equal)  # fmt: skip
    mask = nl.ndarray((32, 12), dtype=nl.uint8, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=mask, data=tile, op0=nl.greater, operand0=0.0)
    nisa.tensor_copy_predicated(dst=t, src=ones, predicate=mask)
    nisa.tensor_copy(dst=t[:, 0:5], src=tile.indirect(at, num_elem=5))
    nisa.tensor_copy(dst=t.indirect(at, num_elem=5), src=tile[:, 0:5])
    largest = nl.ndarray((32, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.max8(dst=largest, src=tile)
    where = nl.ndarray((32, 8), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.nc_find_index8(dst=where, data=tile, vals=largest)
    out = nl.ndarray((32, 12), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, t)
    return out


@pytest.fixture(scope="module")
def feed() -> Feed:
    return Feed(nki_sim.run(mover, DATA, INDEX, target="trn3"))


def moves_of(feed: Feed, instruction: str, which: int = 0) -> list[dict[str, Any]]:
    steps = [i for i in range(len(feed.run.program)) if feed.run.program[i].instruction == instruction]
    found: list[dict[str, Any]] = feed.answer({"kind": "step", "step": steps[which]})["moves"]
    return found


SNAKE = [int(INDEX[i % 16, i // 16]) for i in range(20)]


@pytest.mark.parametrize(("instruction", "which", "kind", "count", "pairs"), [
    ("nc_stream_shuffle", 0, "shuffle", 32, [[i + 1, i, ""] for i in range(8)]),
    ("local_gather", 0, "gather", 20, [[SNAKE[i], i, ""] for i in range(8)]),
    ("nc_n_gather", 0, "gather", 2, [[int(INDEX[0, i]), i, ""] for i in range(2)]),
    ("tensor_tensor_scan", 0, "scan", 12, [[i, i + 1, ""] for i in range(8)]),
    ("affine_select", 0, "select", 12, [[i, i, "" if i == 0 else "dropped"] for i in range(8)]),
    ("tensor_copy_predicated", 0, "select", 12, [[i, i, "" if DATA[0, i] > 0 else "kept"] for i in range(8)]),
    ("tensor_copy", 1, "gather", 5, [[SNAKE[i], i, ""] for i in range(5)]),
    ("tensor_copy", 2, "scatter", 5, [[i, SNAKE[i], ""] for i in range(5)]),
    ("nc_find_index8", 0, "find", 8, [[int(n), i, ""] for i, n in enumerate(np.argsort(-DATA[0], kind="stable")[:8])]),
])  # fmt: skip
def test_what_goes_where(feed: Feed, instruction: str, which: int, kind: str, count: int, pairs: list[Any]) -> None:
    (move,) = moves_of(feed, instruction, which)
    assert (move["kind"], move["count"], move["pairs"]) == (kind, count, pairs)
    assert move["words"] and move["source"] and move["target"]


def test_a_lane_that_keeps_what_it_had_and_an_index_outside() -> None:
    @nki.jit
    def kernel(x: Any, index: Any) -> Any:
        tile, at, t = nl.load(x), nl.load(index), nl.zeros((32, 12), dtype=nl.float32)
        nisa.nc_stream_shuffle(dst=t, src=tile, shuffle_mask=(255, *range(31)))
        nisa.tensor_copy(dst=t[:, 0:3], src=tile.indirect(at, num_elem=3))
        out = nl.ndarray((32, 12), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, t)
        return out

    index = INDEX.copy()
    index[1, 0] = 12
    with pytest.warns(nki_sim.NkiWarning, match="outside 12 elements"):
        feed = Feed(nki_sim.run(kernel, DATA, index, target="trn3"))
    assert moves_of(feed, "nc_stream_shuffle")[0]["pairs"][:2] == [[0, 0, "kept"], [0, 1, ""]]
    assert moves_of(feed, "tensor_copy")[0]["pairs"][1] == [12, 1, "outside"]


def test_instructions_that_move_nothing_have_no_pictures(feed: Feed) -> None:
    assert moves_of(feed, "memset") == moves_of(feed, "tensor_scalar") == moves_of(feed, "dma_copy") == []


def test_a_saved_page_has_them_too(feed: Feed) -> None:
    saved = contents(feed, 4_000_000)
    shuffle = next(d for d in saved["steps"].values() if d["instruction"] == "nc_stream_shuffle")
    assert shuffle["moves"] == moves_of(feed, "nc_stream_shuffle")


def test_the_browser_draws_them(feed: Feed, show: Show, tmp_path: Path) -> None:
    target = tmp_path / "moves.html"
    nki_nb.save_html(feed.run, target)
    page = show(target, "#step=3")
    picture = page.locator(".instruction .move")
    picture.wait_for()
    assert "shuffle: within each quadrant" in picture.inner_text()
    assert picture.locator("line.wire").count() == 8
    assert "src partition 1" in picture.inner_text() and "first 8 of 32" in picture.inner_text()

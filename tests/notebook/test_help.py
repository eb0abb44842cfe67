"""``%nki help``, ``help()`` and ``nki-nb help``: they show what is enforced, and find it."""

from __future__ import annotations

import pydoc

import nki_sim
import pytest
from nki_sim import reference
from nki_sim.isa import INSTRUCTIONS
from pages import read
from runs import HOSTILE

from nki_nb.cli import main
from nki_nb.help import EntryHelp, Hits, RuleHelp, look_up, names

nki_sim.install()


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_a_page_has_all_that_a_caller_needs(name: str) -> None:
    import nki.isa as nisa

    cls = INSTRUCTIONS[name]
    found = look_up(name)
    assert isinstance(found, EntryHelp)
    entry = found.entry
    assert entry.words and entry.engine and entry.cost and entry.page.endswith(f"nki.isa.{name}.html")
    made = {"dst"} if name == "scalar_load" else set()
    assert {o for o, _, _ in entry.operands} == {o for o, spec in cls.specs.items() if not spec.internal} - made
    for text in (str(found), pydoc.plain(pydoc.render_doc(getattr(nisa, name)))):
        for operand, access, where in entry.operands:
            assert f"{operand} " in text and f"{access} " in text and where in text
        for rule in cls.rules():
            assert f"{rule.id}: {rule.words}" in text, rule.id
    assert read(found._repr_html_()).loads == []


def test_every_rule_is_on_a_page_and_can_be_looked_up() -> None:
    shown = {rule for entry in reference.entries().values() for rule in entry.rules}
    for name, rules in reference.rules().items():
        assert set(rules) <= shown, name
        found = look_up(name)
        assert isinstance(found, RuleHelp) or found.entry.name == name  # type: ignore[attr-defined]
        assert set(rules) <= set(found.rules)
        assert all(rule.words in str(found) for rule in rules)


def test_every_page_shows_rules_that_exist() -> None:
    known = {rule for rules in reference.rules().values() for rule in rules}
    for entry in reference.entries().values():
        assert set(entry.rules) <= known, entry.name
        assert len(set(entry.rules)) == len(entry.rules)


@pytest.mark.parametrize(("asked", "name"), [
    ("nc_matmul", "nisa.nc_matmul"), ("nisa.nc_matmul", "nisa.nc_matmul"), ("nki.isa.nc_matmul", "nisa.nc_matmul"),
    ("load", "nl.load"), ("nl.load()", "nl.load"), ("permute", "NkiTensor.permute"), ("nki.jit", "nki.jit"),
    ("NkiTensor", "NkiTensor"), ("register_alloc", "nisa.register_alloc"), ("tiles", "nl.tiles"),
    ("nl.tile_size", "nl.tile_size"),
])  # fmt: skip
def test_names_with_and_without_their_module(asked: str, name: str) -> None:
    found = look_up(asked)
    assert isinstance(found, EntryHelp) and found.entry.name == name


@pytest.mark.parametrize(("asked", "first", "among"), [
    ("transpos", "nl.transpose", {"nisa.nc_transpose", "nisa.dma_transpose", "nl.load_transpose2d"}),
    ("matmull", "nl.matmul", {"nisa.nc_matmul"}),
    ("reduce partitions", "nisa.tensor_partition_reduce", set()),
    ("gather", "nisa.local_gather", {"nisa.nc_n_gather", "nl.gather_flattened", "NkiTensor.indirect"}),
])  # fmt: skip
def test_a_search_finds_what_was_meant(asked: str, first: str, among: set[str]) -> None:
    found = look_up(asked)
    assert isinstance(found, Hits)
    every = [entry.name for entry in found.entries]
    assert first in every[:3] and among <= set(every)
    assert all(name in str(found) and name in found._repr_html_() for name in every)


def test_a_mistyped_rule_finds_its_neighbours() -> None:
    found = look_up("nc_matmul.k_equl")
    assert isinstance(found, Hits) and found.rules[0].id == "nc_matmul.k_equal"
    assert isinstance(look_up("nc_matmul.double_row"), RuleHelp)


@pytest.mark.parametrize("asked", ["", "   ", "zzzqqq", "…", HOSTILE])
def test_nothing_to_say(asked: str) -> None:
    with pytest.raises(LookupError, match="for example"):
        look_up(asked)


def test_what_a_user_typed_is_escaped() -> None:
    hits = Hits(HOSTILE, (reference.entries()["nl.load"],), ())
    assert "script" not in read(hits._repr_html_()).tags


def test_a_terminal_shows_text() -> None:
    from IPython.lib.pretty import pretty

    for asked in ("nl.load", "nc_matmul.k_equal", "gathers"):
        found = look_up(asked)
        assert pretty(found) == str(found)


def test_names_are_those_that_can_be_looked_up() -> None:
    assert {"nc_matmul", "load", "nisa.nc_matmul", "NkiTensor.ap", "hw.partition_dim_le_128"} <= set(names())
    for name in names():
        assert not isinstance(look_up(name), Hits), name


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "nc_matmul"]) == 0
    assert "stationary  read    SBUF" in capsys.readouterr().out
    assert main(["help", "tile", "rows"]) == 0
    assert "about 'tile rows':" in capsys.readouterr().out
    assert main(["help", "zzzqqq"]) == 1
    assert "nothing about 'zzzqqq'" in capsys.readouterr().err

"""What all collectives have in common: lists of tensors, a list of ranks, their rules, and their cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, cast

from nki_sim import context, ops
from nki_sim.collectives.group import ReplicaGroup
from nki_sim.collectives.links import link_ns
from nki_sim.errors import Broken, Checked, Rule, page
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import DMA_REACH, Cost, OperandSpec
from nki_sim.isa.enums import engine as Engine  # noqa: N812 - as instructions name it
from nki_sim.isa.meeting import Meeting
from nki_sim.memory import MemoryRegion
from nki_sim.tensor import NkiTensor

PAGE = page("api/nki.collectives.html")
RANKS = Rule(
    "coll.ranks",
    "a collective works between the ranks of a run that has them, and the rank that calls it is in its replica group",
    why="a rank that no list names takes no part, and must not call it",
    fix="run the kernel on ranks: nki_sim.run_ranks(kernel, inputs, ranks=n), and name all of 0 to n - 1",
    page=PAGE,
)
ANSWERED = Rule(
    "coll.answered",
    "all ranks of a list come to the collective",
    why="each waits for all others; one that does not come leaves them waiting for ever",
    fix="call the collective outside of what depends on the rank, equally often and in one order on every rank",
    page=PAGE,
)
SAME_CALL = Rule(
    "coll.same_call",
    "all ranks of a list make the same call: one collective, one op and dimension, and shapes and dtypes alike",
    why="each rank takes from the others what its own call says",
    fix="make shapes and arguments independent of the rank",
    page=PAGE,
)
LISTS = Rule(
    "coll.lists",
    "srcs and dsts are lists of tensors of this kernel, equally many",
    fix="srcs=[a], dsts=[b]",
    page=PAGE,
)
SHAPES = Rule(
    "coll.shapes",
    "each dst has the dtype of its src, and the shape that the collective makes of it",
    page=PAGE,
)
IN_PLACE = Rule(
    "coll.in_place",
    "a collective's dsts are other tensors than its srcs",
    why="others may still read what this rank receives into; no document says that it works in place",
    fix="allocate another tensor for the result",
    page=PAGE,
)
PRIORITY = Rule(
    "coll.priority",
    "priority is 0 to 3 (0 highest) and exists on trn3",
    why="older DMA queues are served round robin",
    fix="leave priority out",
    page=PAGE,
)


def memory_rule(name: str) -> Rule:
    return Rule(
        f"coll.{name}.memory",
        "all tensors are in HBM, or all are in SBUF",
        why="one collective moves between memories of one kind",
        fix="copy the SBUF tile to HBM first, or load all of them: nisa.dma_copy",
        page=page(f"api/generated/nki.collectives.{name}.html"),
    )


def coalesced_rule(name: str) -> Rule:
    return Rule(
        f"coll.{name}.coalesced",
        "several tensors in one call are in HBM",
        fix="call it once for each SBUF tile",
        page=page(f"api/generated/nki.collectives.{name}.html"),
    )


def op_rule(name: str, rule: str) -> Rule:
    return Rule(
        rule,
        "op is nl.add, nl.minimum or nl.maximum",
        page=page(f"api/generated/nki.collectives.{name}.html"),
    )


class Collective(Meeting):
    """An instruction of several ranks; each public function makes one of its class.

    Operands are ``src0…``, ``dst0…`` and ``peer0…``: what the other ranks of the list bring, in the order of the list.

    Attributes:
        ranks: the ranks that work together, in order; ``place`` is this one's.
    """

    runs_on = Engine.dma
    across = "ranks"
    partly: ClassVar[bool] = False
    """Whether only a part of dst may be written."""
    unanswered = ANSWERED
    instruction: ClassVar[str]
    """Its public name."""
    lists: ClassVar[tuple[int, int, int]] = (0, 0, 0)
    """How many srcs, dsts and peers this class has."""
    declared: ClassVar[tuple[str, ...]] = ()
    """Parameters beside tensors and the group."""

    def __init__(self, srcs: Any, dsts: Any, ranks: Sequence[int], name: str | None, **given: Any):
        self.srcs, self.dsts, self.ranks, self.name = list(srcs), list(dsts), tuple(ranks), name
        self.__dict__.update(given)
        for i, tile in enumerate(self.srcs):
            self.__dict__[f"src{i}"] = tile
        for i, tile in enumerate(self.dsts):
            self.__dict__[f"dst{i}"] = tile
        for i in range(self.lists[2]):
            self.__dict__[f"peer{i}"] = None
        machine = context.machine()
        self.rank, self.place = machine.rank, self.ranks.index(machine.rank)
        if machine.ranks == 1 and machine.programs == 1:  # alone, it meets nobody
            wrong = self.take(self.rank, {self.rank: self})
            if wrong is not None:
                raise machine.error(self, *wrong)
        machine.issue(self)

    @property
    def gathered(self) -> int:
        """How many ranks work together."""
        return len(self.ranks)

    def key(self) -> Any:
        return self.ranks

    def called(self) -> str:
        return f"{type(self).__name__} of ranks {', '.join(map(str, self.ranks))}"

    def take(self, mine: int, others: Mapping[int, Any]) -> tuple[Rule, Broken] | None:
        """Take the sources of all ranks of the list, in its order."""
        wrong = self.fits(others)
        if wrong is not None:
            return wrong
        for i, tile in enumerate(tile for rank in self.ranks for tile in others[rank].srcs):
            self.__dict__[f"peer{i}"] = tile
        return None

    def fits(self, others: Mapping[int, Any]) -> tuple[Rule, Broken] | None:
        """What is wrong between the calls of all ranks."""
        for ins in others.values():
            broken = self._differs(ins)
            if broken is not None:
                return SAME_CALL, broken
        used = {id(tile.storage) for ins in others.values() for tile in ins.sent()}
        if any(id(tile.storage) in used for tile in self.dsts):
            return IN_PLACE, Broken("a dst is a src of this collective", "dst0")
        return None

    def sent(self) -> Sequence[NkiTensor]:
        """What others read, and nobody may write meanwhile."""
        return self.srcs

    def _differs(self, other: Collective) -> Broken | None:
        for name in self.declared:
            mine, its = getattr(self, name), getattr(other, name)
            if mine != its:
                return Broken(f"{name} is {_words(mine)} on rank {self.rank}, {_words(its)} on rank {other.rank}", name)
        for kind in ("srcs", "dsts"):
            for i, (mine, its) in enumerate(zip(getattr(self, kind), getattr(other, kind), strict=False)):
                if (mine.shape, mine.dtype) != (its.shape, its.dtype):
                    what = f"{kind}[{i}] is {mine.words()} on rank {self.rank}, {its.words()} on rank {other.rank}"
                    return Broken(what, f"{kind[:-1]}{i}")
        if len(self.srcs) != len(other.srcs):
            return Broken(f"{len(self.srcs)} tensors on rank {self.rank}, {len(other.srcs)} on rank {other.rank}")
        return None

    # -- cost ----------------------------------------------------------------------------------------------------------------

    def moved(self) -> tuple[float, int]:
        """Bytes that each rank sends, and hops one after the other, around the ring."""
        raise NotImplementedError

    def cost(self, core: NeuronCore) -> Cost:
        """Time on the links between chips, from documented figures: an estimate."""
        machine = context.machine()
        size, hops = self.moved()
        return Cost(queue="cc", link_ns=link_ns(core, machine.programs, self.gathered, size, hops))

    # -- rules ---------------------------------------------------------------------------------------------------------------

    def dtypes(self, core: NeuronCore) -> Broken | None:
        for i, (src, dst) in enumerate(zip(self.srcs, self.dsts, strict=True)):
            if src.dtype != dst.dtype:
                return Broken(f"src{i} is {src.dtype}, dst{i} is {dst.dtype}", f"dst{i}")
        return None

    def priorities(self, core: NeuronCore) -> Broken | None:
        priority = self.__dict__.get("priority")
        bad = priority is not None and (core.gen < 4 or isinstance(priority, bool) or priority not in (0, 1, 2, 3))
        return Broken(f"priority {priority} on {core.target}", "priority") if bad else None

    def one_memory(self, core: NeuronCore) -> Broken | None:
        places = {tile.on_chip for _, tile in self.own()}
        if len(places) == 1:
            return None
        name, tile = next((n, t) for n, t in self.own() if t.on_chip)
        return Broken(f"{name} is in {tile.buffer.name.upper()}, others are in HBM", name)

    def one_on_chip(self, core: NeuronCore) -> Broken | None:
        bad = len(self.srcs) > 1 and self.src0.on_chip
        return Broken(f"{len(self.srcs)} tensors in SBUF", "srcs") if bad else None

    def known_op(self, core: NeuronCore) -> Broken | None:
        name = ops.lookup(self.op).name
        return None if name in ("add", "minimum", "maximum") else Broken(f"op is nl.{name}", "op")

    def in_hbm(self, core: NeuronCore) -> Broken | None:
        for name, tile in self.own():
            if tile.on_chip:
                return Broken(f"{name} is in {tile.buffer.name.upper()}", name)
        return None

    def own(self) -> Iterator[tuple[str, NkiTensor]]:
        """This rank's tensors."""
        for kind, tiles in (("src", self.srcs), ("dst", self.dsts)):
            for i, tile in enumerate(tiles):
                yield f"{kind}{i}", tile

    def tiles(self) -> Iterator[tuple[str, NkiTensor]]:
        for name in self.operand_names:
            value = self.__dict__.get(name)
            if isinstance(value, NkiTensor):
                yield name, value

    src0: NkiTensor
    op: Any


def shaped(kind: type[Collective], srcs: int, dsts: int, peers: int) -> type[Collective]:
    """The class of a collective with so many operands."""
    return _shaped(cast("Any", kind), srcs, dsts, peers)


@lru_cache(maxsize=256)
def _shaped(kind: Any, srcs: int, dsts: int, peers: int) -> type[Collective]:
    made: Any = type(kind.instruction, (kind,), {"lists": (srcs, dsts, peers), "__module__": kind.__module__})
    reach = OperandSpec("read", DMA_REACH, "coll.lists")
    specs = {f"src{i}": reach for i in range(srcs)}
    access = "update" if kind.partly else "write"
    specs |= {f"dst{i}": OperandSpec(access, DMA_REACH, "coll.lists") for i in range(dsts)}
    specs |= {f"peer{i}": OperandSpec("read", (), "", internal=True) for i in range(peers)}
    made.specs, made.operand_names = specs, tuple(specs)
    made.param_names, made.decided_params = (*kind.declared, "ranks", "place"), ("place",)
    made.declare(
        lambda ins: tuple(ins.__dict__[name] for name in made.operand_names),
        lambda ins: tuple(getattr(ins, name) for name in made.param_names),
    )
    result: type[Collective] = made
    return result


def checked(*pairs: tuple[Rule, Any]) -> tuple[Checked, ...]:
    """Rules and what checks them, after those of all collectives."""
    return tuple(Checked(rule, check) for rule, check in ((PRIORITY, Collective.priorities), *pairs))


def tensors(srcs: Any, dsts: Any, subject: str, *, alike: bool = True) -> tuple[list[NkiTensor], list[NkiTensor]]:
    """Lists of tensors of this kernel.

    Raises:
        NkiTypeError: something else is given.
    """
    machine = context.machine()
    for name, given in (("srcs", srcs), ("dsts", dsts)):
        if not isinstance(given, (list, tuple)) or not given:
            raise wrong(LISTS, f"{name} is {_words(given)}", subject, name, TypeError)
        for i, tile in enumerate(given):
            if not isinstance(tile, NkiTensor) or tile.memory is not machine.memory:
                raise wrong(LISTS, f"{name}[{i}] is {_words(tile)}", subject, name, TypeError)
            if tile.buffer is MemoryRegion.psum:
                raise wrong(LISTS, f"{name}[{i}] is in PSUM", subject, name)
    if alike and len(srcs) != len(dsts):
        raise wrong(LISTS, f"{len(srcs)} srcs, {len(dsts)} dsts", subject, "dsts")
    return list(srcs), list(dsts)


def ranks_of(group: Any, subject: str) -> tuple[int, ...]:
    """The list of a replica group that this rank is in.

    Raises:
        NkiValidationError: there is none, or it names ranks that the run does not have.
    """
    machine = context.machine()
    if not isinstance(group, ReplicaGroup):
        raise wrong(RANKS, f"replica_group is {_words(group)}", subject, "replica_group", TypeError)
    ranks = group.of(machine.rank)
    if not ranks:
        raise wrong(RANKS, f"rank {machine.rank} is in no list of {group!r}", subject, "replica_group")
    if max(ranks) >= machine.ranks:
        what = f"{group!r} in a run of {machine.ranks} rank{'s' if machine.ranks > 1 else ''}"
        raise wrong(RANKS, what, subject, "replica_group")
    return ranks


def wrong(rule: Rule, what: str, subject: str, operand: str = "", error: Any = None) -> Exception:
    """The exception for a wrong argument of a collective."""
    from nki_sim.errors import NkiTypeError, NkiValidationError, fail

    kind = NkiTypeError if error is TypeError else NkiValidationError
    return fail(rule, what, target=context.core().target, subject=subject, operand=operand, error=kind)


def _words(value: Any) -> str:
    if isinstance(value, NkiTensor):
        return value.words()
    name = getattr(value, "__name__", None)
    return f"nl.{name}" if name and callable(value) else repr(value) if not isinstance(value, list) else "a list"

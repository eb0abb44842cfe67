"""``all_gather_v`` and ``all_to_all_v``: how much each rank gives stands in a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from nki_sim import context
from nki_sim.collectives.base import (
    Collective,
    checked,
    ranks_of,
    shaped,
    tensors,
    wrong,
)
from nki_sim.collectives.group import ReplicaGroup
from nki_sim.dtypes import Array
from nki_sim.errors import Broken, Rule, page
from nki_sim.hw import NeuronCore
from nki_sim.isa.base import Body
from nki_sim.tensor import NkiTensor, contiguous_strides

GATHER, EXCHANGE = (page(f"api/generated/nki.collectives.{name}.html") for name in ("all_gather_v", "all_to_all_v"))
_ONE = "one src and one dst, both in HBM"
_METADATA = (
    "metadata_tensor is uint32 and contiguous, of shape (rows, ranks) in HBM or (1, rows, ranks) in SBUF; rows is 3, "
    "or 4 with has_rdispls"
)
GATHER_ONE = Rule("coll.all_gather_v.one_tensor", f"all_gather_v takes {_ONE}", page=GATHER)
EXCHANGE_ONE = Rule("coll.all_to_all_v.one_tensor", f"all_to_all_v takes {_ONE}", page=EXCHANGE)
GATHER_METADATA = Rule("coll.all_gather_v.metadata", _METADATA, page=GATHER)
EXCHANGE_METADATA = Rule("coll.all_to_all_v.metadata", _METADATA, page=EXCHANGE)
GATHER_LIMITS = Rule(
    "coll.all_gather_v.limits",
    "all_gather_v runs on two logical cores, in lists of exactly 4 ranks, without has_rdispls",
    why="it works within a chip, which has 4 ranks of two cores",
    fix="run kernel[2] on ranks; for other lists, all_gather of the largest part",
    page=GATHER,
    gens=(3, 4),
)
RDISPLS = Rule(
    "coll.all_to_all_v.rdispls",
    "has_rdispls exists on trn3",
    why="it needs a NeuronSwitch",
    fix="leave it out: chunks come in equal slots",
    page=EXCHANGE,
    gens=(2, 3),
)
SWITCH = Rule(
    "coll.all_to_all_v.switch",
    "on trn3 all_to_all_v runs on two logical cores, over more than one device, in lists of consecutive ranks that hold all "
    "4 ranks of each device",
    fix="keep a rank that has nothing to send in the list, with send counts of 0",
    page=EXCHANGE,
    gens=(4,),
)
OTHER = Rule(
    "coll.all_to_all_v.other",
    "before trn3, a list of all_to_all_v holds ranks of the same number on different nodes",
    why="without a NeuronSwitch it goes over the network between nodes",
    fix="ReplicaGroup([[0, n], [1, n + 1], …]) for nodes of n ranks; inside a node use all_to_all",
    page=EXCHANGE,
    gens=(2, 3),
)
SIZES = Rule(
    "coll.v_runtime_sizes",
    "counts and displacements stay inside src and dst",
    why="they are checked when the collective runs",
    fix="size dst for ranks times the largest count, and keep send_displ + send_count within src",
    page=EXCHANGE,
    enforce="runtime",
)
SLOT = Rule(
    "coll.v_prepare_slot",
    "each prepare is followed by its one trigger, with no other prepare between them",
    why="the device keeps one prepared collective",
    fix="call the trigger with what the prepare returned, before the next prepare",
    page=EXCHANGE,
)
NO_SWITCH = Rule(
    "coll.v_prepare_switch",
    "prepare and trigger do not exist on trn3, which has a NeuronSwitch",
    fix="call all_to_all_v or all_gather_v",
    page=EXCHANGE,
    gens=(4,),
)
SEND_COUNTS, SEND_DISPLS, RECV_COUNTS, RECV_DISPLS = range(4)


class Variable(Collective):
    """One flat tensor, cut as the metadata of its rank says. Peers bring tensor and metadata."""

    declared = ("recv_counts_known", "has_rdispls")
    has_rdispls: bool
    recv_counts_known: bool
    broadcast: ClassVar[bool] = False
    partly = True

    def sent(self) -> Sequence[NkiTensor]:
        return self.srcs[:1]  # of the metadata others read the rows that nobody writes

    def _differs(self, other: Any) -> Broken | None:
        for name in (*self.declared, "priority"):
            mine, its = getattr(self, name), getattr(other, name)
            if mine != its:
                return Broken(f"{name} is {mine!r} on rank {self.rank}, {its!r} on rank {other.rank}", name)
        a, b = self.srcs[0], other.srcs[0]
        same = a.dtype == b.dtype
        return None if same else Broken(f"src0 is {a.dtype} on rank {self.rank}, {b.dtype} on rank {other.rank}", "src0")

    def __init__(self, srcs: Any, dsts: Any, ranks: Sequence[int], name: str | None, **given: Any):
        self.others_given = len(dsts)
        super().__init__(srcs, dsts, ranks, name, **given)

    def one_in_hbm(self, core: NeuronCore) -> Broken | None:
        if len(self.srcs) != 2 or len(self.dsts) not in (1, 2):
            return Broken(f"{len(self.srcs) - 1} srcs, {self.others_given} dsts", "srcs")
        for name, tile in (("src0", self.srcs[0]), ("dst0", self.dsts[0])):
            if tile.on_chip:
                return Broken(f"{name} is in {tile.buffer.name.upper()}", name)
        return None

    def metadata_shape(self, core: NeuronCore) -> Broken | None:
        tile, rows = self.srcs[1], 4 if self.has_rdispls else 3
        wanted = [(rows, self.gathered)] if not tile.on_chip else [(1, rows, self.gathered)]
        if tuple(tile.shape) not in wanted or tile.dtype != "uint32" or not _is_contiguous(tile):
            return Broken(f"metadata_tensor is {tile.words()} for {self.gathered} ranks", "src1")
        return None

    def moved(self) -> tuple[float, int]:
        tile, n = self.dsts[0], self.gathered
        return (n - 1) / n * tile.size * tile.info.itemsize, n - 1

    def body(self, core: NeuronCore) -> Body:
        place, n, known, displaced = self.place, self.gathered, self.recv_counts_known, self.has_rdispls
        broadcast, machine, counts_at = self.broadcast, context.machine(), len(self.dsts) - 1

        def receive(*arrays: Array) -> None:
            metadata, dst, peers = arrays[1].reshape(-1, n), arrays[2], arrays[3 + counts_at :]
            flat = dst.reshape(-1)
            slot = flat.size // n
            counts = []
            for other in range(n):
                source, asked = peers[2 * other].reshape(-1), peers[2 * other + 1].reshape(-1, n)
                column = 0 if broadcast else place
                count, first = int(asked[SEND_COUNTS, column]), int(asked[SEND_DISPLS, column])
                at = int(metadata[RECV_DISPLS, other]) if displaced else other * slot
                room = flat.size - at if displaced else slot
                what = _outside(other, count, first, source.size, room)
                if what:
                    raise machine.error(self, SIZES, Broken(what, "src1"))
                flat[at : at + count] = source[first : first + count]
                counts.append(count)
            if not np.shares_memory(flat, dst):
                dst[...] = flat.reshape(dst.shape)
            if not known:
                arrays[3].reshape(-1, n)[RECV_COUNTS] = counts

        return receive


def _outside(rank: int, count: int, first: int, size: int, room: int) -> str:
    if first + count > size:
        return f"the chunk of member {rank} is elements {first} to {first + count} of a src of {size}"
    if count > room:
        return f"the chunk of member {rank} has {count} elements, where {max(room, 0)} fit in dst"
    return ""


def _is_contiguous(tile: NkiTensor) -> bool:
    return tile.dynamic is None and tuple(tile.strides) == tuple(contiguous_strides(tile.shape))


class AllGatherV(Variable):
    """Everybody gets everybody's one chunk."""

    instruction = "all_gather_v"
    broadcast = True

    def limits(self, core: NeuronCore) -> Broken | None:
        cores = context.machine().programs
        if self.has_rdispls:
            return Broken("has_rdispls is True", "has_rdispls")
        what = f"{self.gathered} ranks of {cores} core{'s' if cores > 1 else ''}"
        return None if (self.gathered, cores) == (4, 2) else Broken(what)

    checks = checked((GATHER_ONE, Variable.one_in_hbm), (GATHER_METADATA, Variable.metadata_shape), (GATHER_LIMITS, limits))


class AllToAllV(Variable):
    """Everybody gets a chunk of his own from everybody."""

    instruction = "all_to_all_v"

    def switched(self, core: NeuronCore) -> Broken | None:
        machine, ranks = context.machine(), self.ranks
        cores = machine.programs
        if cores != 2:
            return Broken("one logical core")
        consecutive = list(ranks) == list(range(ranks[0], ranks[0] + len(ranks)))
        if not consecutive or ranks[0] % 4 or len(ranks) % 4 or len(ranks) < 8:
            return Broken(f"the list {list(ranks)}", "replica_group")
        return None

    def between_nodes(self, core: NeuronCore) -> Broken | None:
        per_node = context.machine().ranks_per_node
        nodes = {rank // per_node for rank in self.ranks}
        same = len({rank % per_node for rank in self.ranks}) == 1
        good = same and len(nodes) == len(self.ranks)
        return None if good else Broken(f"the list {list(self.ranks)} with {per_node} ranks in a node", "replica_group")

    def displacements(self, core: NeuronCore) -> Broken | None:
        return Broken("has_rdispls is True", "has_rdispls") if self.has_rdispls else None

    checks = checked(
        (EXCHANGE_ONE, Variable.one_in_hbm),
        (RDISPLS, displacements),
        (EXCHANGE_METADATA, Variable.metadata_shape),
        (SWITCH, switched),
        (OTHER, between_nodes),
    )


class Prepared:
    """A collective whose metadata was read; its trigger does it."""

    def __init__(self, kind: type[Variable], arguments: tuple[Any, ...], given: dict[str, Any]):
        self.kind, self.arguments, self.given = kind, arguments, given
        self.step = -1

    def __repr__(self) -> str:
        return f"<prepared {self.kind.instruction}>"


def _run(kind: type[Variable], srcs: Any, dsts: Any, group: Any, metadata: Any, name: str | None, **given: Any) -> Any:
    subject = f"ncc.{kind.instruction}"
    sources, targets = tensors(srcs, dsts, subject, alike=False)
    ranks = ranks_of(group, subject)
    tensors([metadata], targets, subject, alike=False)
    writes = [] if given["recv_counts_known"] else [metadata]
    made = shaped(kind, len(sources) + 1, len(targets) + len(writes), (len(sources) + 1) * len(ranks))
    return made([*sources, metadata], [*targets, *writes], ranks, name, **given)


def _prepare(kind: type[Variable], subject: str, arguments: tuple[Any, ...], given: dict[str, Any]) -> Prepared:
    machine = context.machine()
    if machine.core.gen == 4:
        raise wrong(NO_SWITCH, f"on {machine.core.target}", subject)
    if machine.prepared is not None:
        raise wrong(SLOT, f"{machine.prepared!r} was not triggered yet", subject)
    made = machine.prepared = Prepared(kind, arguments, given)
    return made


def _trigger(kind: type[Variable], prepared: Any, name: str | None) -> Any:
    subject, machine = f"ncc.{kind.instruction}_trigger", context.machine()
    if not isinstance(prepared, Prepared) or prepared.kind is not kind or machine.prepared is not prepared:
        raise wrong(SLOT, f"triggers {prepared!r}, {machine.prepared or 'nothing'} is prepared", subject, "prepare_instr")
    machine.prepared = None
    srcs, dsts, group, metadata = prepared.arguments
    return _run(kind, srcs, dsts, group, metadata, name, **prepared.given)


def all_gather_v(srcs: Any, dsts: Any, replica_group: ReplicaGroup, metadata_tensor: Any, recv_counts_known: bool = False,
                 has_rdispls: bool = False, priority: int | None = None, name: str | None = None) -> Any:  # fmt: skip
    """Every rank of a list gets one chunk of each: ``src[displ : displ + count]``, in equal slots of ``dst``.

    Args:
        srcs, dsts: one tensor each, in HBM, read as flat. replica_group: lists of 4 ranks of two logical cores.
        metadata_tensor: uint32 of shape (3, ranks) in HBM, or (1, 3, ranks) in SBUF: send count and displacement (first
            column), and the counts received, which the collective writes.
        recv_counts_known: leave those as they are. has_rdispls: False. priority: 0 to 3, on trn3.

    Example:
        four = ncc.ReplicaGroup([[0, 1, 2, 3]])
        if nl.num_programs() == 2:  # of kernel[2], in nki_sim.run_ranks
            ncc.all_gather_v(srcs=[mine], dsts=[all_of_it], replica_group=four, metadata_tensor=counts)
    """
    given = {"recv_counts_known": recv_counts_known, "has_rdispls": has_rdispls, "priority": priority}
    return _run(AllGatherV, srcs, dsts, replica_group, metadata_tensor, name, **given)


def all_to_all_v(srcs: Any, dsts: Any, replica_group: ReplicaGroup, metadata_tensor: Any, recv_counts_known: bool = False,
                 has_rdispls: bool = False, priority: int | None = None, name: str | None = None) -> Any:  # fmt: skip
    """Every rank of a list gives each other one ``src[displ : displ + count]``, which comes to equal slots of ``dst``.

    Args:
        srcs, dsts: one tensor each, in HBM, read as flat. replica_group: the lists of ranks.
        metadata_tensor: uint32 of shape (rows, ranks) in HBM, or (1, rows, ranks) in SBUF: send counts, send displacements,
            counts received (written), and with ``has_rdispls`` where in ``dst`` each chunk goes.
        recv_counts_known: leave the third row as it is. has_rdispls: on trn3. priority: 0 to 3, on trn3.

    Example:
        nodes = ncc.ReplicaGroup([[0, 64]])  # on trn2: ranks of the same number on two nodes
        if nl.num_programs() == 2:  # of kernel[2], in nki_sim.run_ranks
            ncc.all_to_all_v(srcs=[mine], dsts=[came], replica_group=nodes, metadata_tensor=counts)
    """
    given = {"recv_counts_known": recv_counts_known, "has_rdispls": has_rdispls, "priority": priority}
    return _run(AllToAllV, srcs, dsts, replica_group, metadata_tensor, name, **given)


def all_gather_v_prepare(srcs: Any, dsts: Any, replica_group: ReplicaGroup, metadata_tensor: Any,
                         recv_counts_known: bool = False, has_rdispls: bool = False, priority: int | None = None,
                         name: str | None = None) -> Prepared:  # fmt: skip
    """Read the metadata of an :func:`all_gather_v` ahead of time.

    Args:
        srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, priority: as of ``all_gather_v``.

    Returns:
        what ``all_gather_v_trigger`` takes.

    Example:
        four = ncc.ReplicaGroup([[0, 1, 2, 3]])
        if nl.num_programs() == 2:  # of kernel[2], in nki_sim.run_ranks
            ready = ncc.all_gather_v_prepare([mine], [all_of_it], four, metadata_tensor=counts)
            ncc.all_gather_v_trigger(ready)
    """
    given = {"recv_counts_known": recv_counts_known, "has_rdispls": has_rdispls, "priority": priority}
    return _prepare(AllGatherV, "ncc.all_gather_v_prepare", (srcs, dsts, replica_group, metadata_tensor), given)


def all_to_all_v_prepare(srcs: Any, dsts: Any, replica_group: ReplicaGroup, metadata_tensor: Any,
                         recv_counts_known: bool = False, has_rdispls: bool = False, priority: int | None = None,
                         name: str | None = None) -> Prepared:  # fmt: skip
    """Read the metadata of an :func:`all_to_all_v` ahead of time.

    Args:
        srcs, dsts, replica_group, metadata_tensor, recv_counts_known, has_rdispls, priority: as of ``all_to_all_v``.

    Returns:
        what ``all_to_all_v_trigger`` takes.

    Example:
        nodes = ncc.ReplicaGroup([[0, 64]])
        if nl.num_programs() == 2:  # of kernel[2], in nki_sim.run_ranks
            ready = ncc.all_to_all_v_prepare([mine], [came], nodes, metadata_tensor=counts)
            ncc.all_to_all_v_trigger(ready)
    """
    given = {"recv_counts_known": recv_counts_known, "has_rdispls": has_rdispls, "priority": priority}
    return _prepare(AllToAllV, "ncc.all_to_all_v_prepare", (srcs, dsts, replica_group, metadata_tensor), given)


def all_gather_v_trigger(prepare_instr: Any, name: str | None = None) -> Any:
    """Do what ``all_gather_v_prepare`` prepared: read its srcs, write its dsts.

    Args:
        prepare_instr: what the prepare returned; once.

    Example:
        four = ncc.ReplicaGroup([[0, 1, 2, 3]])
        if nl.num_programs() == 2:  # of kernel[2], in nki_sim.run_ranks
            ready = ncc.all_gather_v_prepare([mine], [all_of_it], four, metadata_tensor=counts)
            ncc.all_gather_v_trigger(ready)
    """
    return _trigger(AllGatherV, prepare_instr, name)


def all_to_all_v_trigger(prepare_instr: Any, name: str | None = None) -> Any:
    """Do what ``all_to_all_v_prepare`` prepared: read its srcs, write its dsts.

    Args:
        prepare_instr: what the prepare returned; once.

    Example:
        nodes = ncc.ReplicaGroup([[0, 64]])
        if nl.num_programs() == 2:  # of kernel[2], in nki_sim.run_ranks
            ready = ncc.all_to_all_v_prepare([mine], [came], nodes, metadata_tensor=counts)
            ncc.all_to_all_v_trigger(ready)
    """
    return _trigger(AllToAllV, prepare_instr, name)

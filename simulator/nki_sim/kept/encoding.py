"""A specialised kernel as JSON and raw bytes, and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from nki_sim import context, dtypes, isa
from nki_sim.cache import Entry, Output
from nki_sim.hw import NeuronCore
from nki_sim.kept.digest import Unkept
from nki_sim.kept.values import Reader, Writer, dtype_name, dtype_of
from nki_sim.machine import Machine
from nki_sim.memory import Allocation, MemoryRegion, Storage
from nki_sim.program import SCALAR, Plan, Slot
from nki_sim.psum import Accumulation
from nki_sim.replay.accesses import Access
from nki_sim.tensor import NkiTensor, span

_SLOT = [f.name for f in fields(Slot)]


# -- writing -------------------------------------------------------------------------------------------------------------


def encode(entry: Entry) -> bytes:
    """The content of an entry's file.

    Raises:
        Unkept: files do not hold what it does.
    """
    machine, writer = entry.machine, Writer()
    program = machine.program
    if any(plan.runtime or any(slot.gathers for slot in plan.slots) for plan in program.plans):
        raise Unkept("an address that data decide")
    if machine.ranks > 1 or not {plan.instruction for plan in program.plans} <= set(isa.INSTRUCTIONS):
        raise Unkept("several ranks, or what ranks do together")
    numbers = program.plan_numbers()
    first = {int(number): int(step) for number, step in zip(*np.unique(numbers, return_index=True), strict=True)}
    flat = np.concatenate([np.array(program.flat(step), np.int64) for step in range(len(program))] or [np.empty(0, np.int64)])
    head = {
        "cores": machine.programs,
        "allocations": [_allocation(a) for a in program.allocations],
        "plans": [_plan(writer, plan, first.get(i, -1)) for i, plan in enumerate(program.plans)],
        "steps": writer.array(numbers),
        "operands": writer.array(flat),
        "constants": [writer.value(value) for value in program.constants],
        "tensors": [[number, writer.array(values)] for number, values in machine.constants.items()],
        "inputs": list(entry.inputs),
        "outputs": [[o.key, list(o.shape), o.offset, list(o.strides), dtype_name(o.dtype)] for o in entry.outputs],
        "returned": _returned(entry.returned),
        "sizes": [len(block) for block in writer.blocks],
    }
    text = json.dumps(head, allow_nan=False).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *writer.blocks])


def _allocation(a: Allocation) -> list[Any]:
    return [a.region.name, list(a.shape), a.dtype.name, a.name, a.role, a.address and list(a.address), a.born, a.last,
            a.core]  # fmt: skip


def _plan(writer: Writer, plan: Plan, first: int) -> dict[str, Any]:
    return {
        "instruction": plan.instruction,
        "engine": plan.engine,
        "slots": [[writer.value(getattr(slot, name)) for name in _SLOT] for slot in plan.slots],
        "params": {name: writer.value(value) for name, value in plan.params.items()},
        "decided": {name: writer.value(value) for name, value in plan.decided.items()},
        "reads": plan.reads, "writes": plan.writes, "updates": plan.updates, "orders": plan.orders, "core": plan.core,
        "first": first,
    }  # fmt: skip


def _returned(value: Any) -> Any:
    if isinstance(value, Output):
        return {"output": [value.index, value.info.name]}
    if type(value) in (tuple, list):
        return {type(value).__name__: [_returned(item) for item in value]}
    if type(value) is dict and all(type(name) is str for name in value):
        return {"dict": [[name, _returned(item)] for name, item in value.items()]}
    if value is None:
        return None
    raise Unkept(f"returns a {type(value).__name__}")


# -- reading -------------------------------------------------------------------------------------------------------------


def decode(content: bytes, core: NeuronCore) -> Entry:
    """The entry of a file's content, ready to run.

    Raises:
        ValueError: the content is none.
    """
    try:
        return _decoded(content, core)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(f"no kernel: {error}") from error


def _decoded(content: bytes, core: NeuronCore) -> Entry:
    size = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + size])
    reader = Reader(memoryview(content)[8 + size :], head["sizes"])
    machines = _machines(core, head["cores"])
    machine = machines[0]
    machine.memory.allocations.extend(_allocated(i, made) for i, made in enumerate(head["allocations"]))
    for number, made in head["tensors"]:
        machine.constants[number] = reader.array(made)
    program = machine.program
    program.constants.extend(reader.value(made) for made in head["constants"])
    steps, flat = reader.array(head["steps"]), reader.array(head["operands"]).tolist()
    widths = [2 * len(made["slots"]) for made in head["plans"]]
    operands, at = [], 0
    for number in steps.tolist():
        operands.append(flat[at : at + widths[number]])
        program.append(number, -1, operands[-1])
        at += widths[number]
    for made in head["plans"]:
        with context.running(machines[made["core"]]):
            program.plans.append(_planned(reader, machines[made["core"]], made, operands[made["first"]]))
    outputs = tuple(_access(*made) for made in head["outputs"])
    _check_inside(machine, outputs)
    entry = Entry(machine, tuple(head["inputs"]), outputs, _read_returned(head["returned"]))
    entry.bind()
    return entry


def _machines(core: NeuronCore, cores: int) -> Sequence[Machine]:
    """What makes the bodies of each core; the record is in the first of them."""
    if cores == 1:
        return [Machine(core)]
    from nki_sim.cores import Team  # where there are several

    if cores not in core.lnc:
        raise ValueError(f"{cores} cores")
    return Team(core, cores).machines


def _allocated(number: int, made: list[Any]) -> Allocation:
    region, shape, dtype, name, role, address, born, last, core = made
    where = tuple(address) if address is not None else None
    kind = dtypes.TABLE[dtype]
    return Allocation.of(number, MemoryRegion[region], tuple(shape), kind, name, None, role, where, born, last, core=core)


def _planned(reader: Reader, machine: Machine, made: dict[str, Any], first: list[int]) -> Plan:
    """A plan whose body the instruction makes again, for operands like those that its first step has in the record."""
    slots = tuple(Slot(**dict(zip(_SLOT, map(reader.value, slot), strict=True))) for slot in made["slots"])
    params = {name: reader.value(value) for name, value in made["params"].items()}
    decided = {name: reader.value(value) for name, value in made["decided"].items()}
    kind = isa.INSTRUCTIONS[made["instruction"]]
    values = [_operand(machine, slot, *where) for slot, *where in zip(slots, first[::2], first[1::2], strict=True)]
    ins = object.__new__(kind)
    for name, value in {**dict(zip(kind.operand_names, values, strict=True)), **params, **decided}.items():
        if name not in kind.operand_names and name not in kind.param_names:
            raise ValueError(f"{kind.__name__} has no {name}")
        setattr(ins, name, value)
    for name in kind.param_names:
        if not hasattr(ins, name):
            setattr(ins, name, None)
    reads, writes, updates, orders = (tuple(made[name]) for name in ("reads", "writes", "updates", "orders"))
    return Plan(kind.__name__, made["engine"], slots, params, ins.body(machine.core), reads, writes, updates, decided,
                core=made["core"], orders=orders)  # fmt: skip


def _access(key: int, shape: list[int], offset: int, strides: list[int], dtype: str) -> Access:
    return Access(key, tuple(shape), offset, tuple(strides), dtype_of(dtype))


def _check_inside(machine: Machine, outputs: tuple[Access, ...]) -> None:
    """No operand and no result reaches beyond its tensor."""
    program = machine.program
    reach = [[span(slot.shape, slot.strides) for slot in plan.slots] for plan in program.plans]
    for step in range(len(program)):
        plan = program.plan_at(step)
        for slot, most, (where, offset) in zip(plan.slots, reach[program.plan_number(step)], program.raw(step), strict=True):
            if where >= 0:
                tensor = program.allocations[where]
                size = tensor.partitions * tensor.row_bytes // slot.itemsize
                if not (offset >= 0 and offset + most < size):
                    raise ValueError("an operand outside its tensor")
    for out in outputs:
        size = program.allocations[out.key].row_bytes
        if not (out.offset >= 0 and out.offset + span(out.shape, out.strides) + out.dtype.itemsize <= size):
            raise ValueError("a result outside its tensor")


def _operand(machine: Machine, slot: Slot, where: int, offset: int) -> Any:
    if where < 0:
        return machine.program.constants[offset] if where == SCALAR else None
    tensor = machine.memory.allocations[where]
    storage = Storage(tensor, None, 0, size=tensor.partitions * tensor.row_bytes)
    storage.pitch = storage.row_elems * storage.itemsize if storage.on_chip else 0
    if tensor.region is MemoryRegion.psum:
        storage.accumulation = Accumulation()
    return NkiTensor(storage, machine.memory, dtypes.TABLE[slot.dtype], slot.shape, slot.strides, offset)


def _read_returned(made: Any) -> Any:
    if made is None:
        return None
    ((kind, content),) = made.items()
    if kind == "output":
        return Output(content[0], dtypes.TABLE[content[1]])
    if kind == "dict":
        return {name: _read_returned(item) for name, item in content}
    items = [_read_returned(item) for item in content]
    return tuple(items) if kind == "tuple" else items

"""What an instruction is: a class whose fields are its operands, whose methods are its limits and its semantics.

Calling the class issues the instruction on the current machine and returns the instance, so ``.depends_on()`` works and
``help`` and ``inspect.signature`` are right. What depends only on shapes, dtypes, spaces and static parameters is
checked once per machine and remembered as a plan. A new instruction is one new file::

    @instruction
    class reciprocal(ComputeInstruction):
        dst: NkiTensor = write(ON_CHIP)
        data: NkiTensor = read(ON_CHIP)
        name: str | None = None

        @rule("reciprocal.shape", "dst and data agree …")
        def shape(self, core): return self.alike("dst", "data")

        def body(self, core): return lambda dst, data: …
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

from nki_sim import context
from nki_sim.errors import Broken, Checked, Rule, isa_page, page, rule
from nki_sim.hw import NeuronCore
from nki_sim.isa import indirection
from nki_sim.isa.enums import dependency, engine, reduce_cmd
from nki_sim.memory import PARTITION_LIMIT, MemoryRegion
from nki_sim.tensor import NkiTensor, coalesce
from nki_sim.unrolled import Keyed, keyed, keyed_by

if sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        """Stand-in for ``typing.dataclass_transform``, which Python 3.10 does not have."""
        return lambda decorated: decorated


SBUF = (MemoryRegion.sbuf,)
PSUM = (MemoryRegion.psum,)
ON_CHIP = (MemoryRegion.sbuf, MemoryRegion.psum)
DMA_REACH = (MemoryRegion.sbuf, MemoryRegion.private_hbm, MemoryRegion.shared_hbm)

Body = Callable[..., None]


@dataclass(frozen=True)
class OperandSpec:
    """How an instruction may use one operand: access, legal spaces, and the rule that says so."""

    access: str
    spaces: tuple[MemoryRegion, ...]
    rule: str
    scalar: bool = False
    column: bool = False
    internal: bool = False
    none: bool = False
    register: bool = False


@dataclass(frozen=True)
class Cost:
    """What an instruction takes of its engine.

    Attributes:
        cycles: until the engine can take the next instruction; 0 for DMA, whose cost is its bytes.
        table: the activation function whose table must be loaded; empty for none.
        load: cycles to load the stationary operand, in the background of the matmul before; ``columns`` is its free size.
        passes: MATMUL instructions that it becomes.
        transpose_flops: operations of the tensor engine that only move data.
        ports: what others may not use meanwhile.
        queue: of a DMA instruction, whose sequencer triggers it.
        link_ns: of a collective, ns on the links between chips.
    """

    cycles: float = 0.0
    table: str = ""
    load: float = 0.0
    columns: int = 0
    passes: int = 0
    transpose_flops: int = 0
    ports: tuple[str, ...] = ()
    queue: str = ""
    link_ns: float = 0.0


def _operand(spec: OperandSpec, default: Any) -> Any:
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={"operand": spec})
    return dataclasses.field(default=default, metadata={"operand": spec})


def read(spaces: tuple[MemoryRegion, ...], rule: str = "", *, default: Any = dataclasses.MISSING) -> Any:
    """A tile the instruction reads."""
    return _operand(OperandSpec("read", spaces, rule), default)


def write(spaces: tuple[MemoryRegion, ...], rule: str = "", *, default: Any = dataclasses.MISSING, none: bool = False) -> Any:
    """A tile the instruction writes, all of it; ``none``: required, yet None is legal."""
    return _operand(OperandSpec("write", spaces, rule, none=none), default)


def update(spaces: tuple[MemoryRegion, ...], rule: str = "", *, default: Any = dataclasses.MISSING) -> Any:
    """A tile the instruction writes in part, or adds to."""
    return _operand(OperandSpec("update", spaces, rule), default)


def column(spaces: tuple[MemoryRegion, ...], rule: str = "", *, default: Any = dataclasses.MISSING, none: bool = False) -> Any:
    """A compile-time scalar, or a (P, 1) tile with one value per partition; ``none``: required, yet None is legal."""
    return _operand(OperandSpec("read", spaces, rule, scalar=True, column=True, none=none), default)


def scalar_or_tile(spaces: tuple[MemoryRegion, ...], rule: str = "", *, default: Any = dataclasses.MISSING) -> Any:
    """A compile-time scalar or a tile."""
    return _operand(OperandSpec("read", spaces, rule, scalar=True), default)


def immediate(rule: str, *, default: Any = dataclasses.MISSING) -> Any:
    """A compile-time number that no shape check depends on; it may differ from step to step of one plan."""
    return _operand(OperandSpec("read", (), rule, scalar=True), default)


def register(rule: str, *, access: str = "read", number: bool = False) -> Any:
    """A register of a sequencer; ``number``: or a compile-time number."""
    return _operand(OperandSpec(access, (), rule, scalar=number, register=True), dataclasses.MISSING)


T = TypeVar("T", bound="type[Any]")
F = TypeVar("F", bound="Callable[..., Any]")


@dataclass_transform(eq_default=False, field_specifiers=(read, write, update, column, scalar_or_tile, immediate, register))
def instruction(cls: T) -> T:
    """Make a class an instruction: constructor from its fields, operands and rules collected."""
    made: Any = dataclass(eq=False, repr=False)(cls)
    made.__init__.__qualname__ = f"{cls.__name__}.__init__"
    made.collect()
    instruction_class: T = made
    return instruction_class


DYNAMIC_CYCLES = 600.0
"""Of an instruction whose address a register decides, at least (tensor_copy with a dynamic address, reference v2.26.1)."""
SHORT_CYCLES = 64.0
FAR_BYTES = 16
"""SBUF and PSUM give half their bandwidth when neighbours in the access pattern are farther apart (trn1 arch guide)."""


def _strides_far(tile: NkiTensor) -> bool:
    size, stride = coalesce(tile.shape[1:], tile.strides[1:])[-1] if tile.on_chip else (1, 0)
    return size > 1 and abs(stride) * tile.info.itemsize > FAR_BYTES


def partitions(tile: NkiTensor) -> int:
    """Size of the partition dimension."""
    return tile.shape[0]


def free(tile: NkiTensor) -> int:
    """Elements per partition."""
    return math.prod(tile.shape[1:])


_REGION_NAMES = {
    MemoryRegion.sbuf: "SBUF",
    MemoryRegion.psum: "PSUM",
    MemoryRegion.private_hbm: "HBM",
    MemoryRegion.shared_hbm: "HBM",
}


_REGISTER_FIX = "reg = nisa.register_alloc(); nisa.register_load(reg, <(1, 1) tile>)"


class Instruction:
    """Base of all instructions; see the module's docstring."""

    runs_on: ClassVar[engine] = engine.vector
    specs: ClassVar[dict[str, OperandSpec]] = {}
    checks: ClassVar[tuple[Checked, ...]] = ()
    operand_names: ClassVar[tuple[str, ...]] = ()
    param_names: ClassVar[tuple[str, ...]] = ()
    get_operands: ClassVar[Callable[[Any], tuple[Any, ...]]]
    get_params: ClassVar[Callable[[Any], tuple[Any, ...]]]
    keyed: ClassVar[Keyed]
    """Notes the step; both, the parameters as part of what tells plans apart, and the name."""
    depth: ClassVar[int] = 2
    """How many frames above the machine's record the caller of its constructor is, at most."""
    accumulates: ClassVar[bool] = False
    """Whether its write continues a PSUM accumulation group (the tensor engine's do)."""
    takes_scales: ClassVar[bool] = False
    """Whether an operand may be of the scales' dtype, float8_e8m0fnu."""
    writes_all: ClassVar[bool] = True
    """Whether every element of a written operand is written; if not, the body marks them itself."""
    waits: ClassVar[bool] = True
    """Whether it may run after its line: its body refuses no values."""
    decided_params: ClassVar[tuple[str, ...]] = ()
    """Attributes set before issue that distinguish plans, as parameters do."""
    decided_operands: ClassVar[tuple[str, ...]] = ()
    """Attributes set before issue that the body takes after the operands."""
    name: str | None = None
    step: int = -1
    scopes: tuple[object, ...] = ()
    """The loops at run time in whose bodies it is, outermost first."""

    # -- class side --------------------------------------------------------------------------------------------------

    @classmethod
    def collect(cls) -> None:
        """Gather operand specifications and rules from the class body: called once, when the class is made."""
        fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        cls.specs = {n: f.metadata["operand"] for n, f in fields.items() if "operand" in f.metadata}
        cls.param_names = (*(n for n in fields if n not in cls.specs and n != "name"), *cls.decided_params)
        cls.specs |= {n: OperandSpec("read", (), "", internal=True) for n in cls.decided_operands}
        cls.operand_names = tuple(cls.specs)
        cls.get_operands = staticmethod(_getter(cls.operand_names))
        cls.get_params = staticmethod(_getter(cls.param_names))
        cls.keyed = staticmethod(keyed(cls.operand_names, cls.param_names))
        cls.checks = tuple(_checks_of(cls))
        cls.depth = 3 + sum("__post_init__" in vars(level) for level in cls.__mro__)

    @classmethod
    def declare(cls, operands: Callable[[Any], tuple[Any, ...]], params: Callable[[Any], tuple[Any, ...]]) -> None:
        """Have other operands, or parameters, than the fields say."""
        cls.get_operands, cls.get_params = staticmethod(operands), staticmethod(params)
        cls.keyed = staticmethod(keyed_by(operands, params))

    @classmethod
    def rules(cls) -> list[Rule]:
        """Every rule this instruction is checked against, operand spaces included."""
        spaces = [cls.space_rule(name) for name, spec in cls.specs.items() if spec.spaces or spec.rule]
        return list(dict.fromkeys([*spaces, PARTITION_LIMIT, *(c.rule for c in cls.checks)]))

    @classmethod
    def space_rule(cls, operand: str) -> Rule:
        """The rule about where ``operand`` may live."""
        spec = cls.specs[operand]
        names = list(dict.fromkeys(_REGION_NAMES[s] for s in spec.spaces))
        if spec.register:
            words = f"{operand} is a register" + (", or a compile-time number" if spec.scalar else "")
            return Rule(spec.rule, words, fix=_REGISTER_FIX, page=isa_page(cls.__name__))
        if not names:
            fix = "write a number; what a tile holds is not known while the kernel is built"
            return Rule(spec.rule, f"{operand} is a compile-time number", fix=fix, page=isa_page(cls.__name__))
        return Rule(
            spec.rule or f"{cls.__name__}.buffers",
            f"{operand} is in {' or '.join(names)}" + (", or a scalar" if spec.scalar else ""),
            why=_SPACE_WHY.get(tuple(names), ""),
            page=isa_page(cls.__name__),
        )

    # -- instance side -----------------------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        (context.machine_or_none() or context.machine()).issue(self)

    def resolve_engine(self, core: NeuronCore) -> engine:
        """The engine that executes it."""
        return self.runs_on

    def body(self, core: NeuronCore) -> Body:
        """The semantics: a function of the operands' NumPy views (scalars as numbers), in declaration order.

        Called once per plan, after all checks; it may look at shapes, dtypes and static parameters, not at values.
        """
        raise NotImplementedError

    def speaks(self) -> bool:
        """Whether its body may have something to report about values."""
        return False

    def goes_on(self) -> bool:
        """Of one that uses what lasts in its engine, registers or states: whether it needs what an earlier one left there."""
        command = getattr(self, "reduce_cmd", reduce_cmd.reduce)
        reads_out = command is reduce_cmd.idle and getattr(self, "reduce_res", None) is not None
        return command is reduce_cmd.reduce or reads_out

    def flops(self) -> int:
        """Floating-point operations of the tensor engine."""
        return 0

    def keeps(self, operand: str) -> bool:
        """Whether a written operand's old value counts for the result."""
        return type(self).specs[operand].access == "update"

    def cycles(self, core: NeuronCore) -> float:
        """Cycles of its engine until the engine can take the next instruction; 0 for DMA, whose cost is its bytes."""
        return 0.0

    def cost(self, core: NeuronCore) -> Cost:
        """What it takes of its engine: :meth:`cycles`, and what the way its operands lie adds to them."""
        cycles = self.cycles(core)
        if any(tile.dynamic is not None and tile.dynamic.kind == "scalar" for _, tile in self.tiles()):
            cycles = max(cycles, DYNAMIC_CYCLES)
        if cycles > SHORT_CYCLES and any(_strides_far(tile) for _, tile in self.tiles()):
            cycles *= 2
        return Cost(cycles, ports=self._ports(core, cycles))

    def _ports(self, core: NeuronCore, cycles: float) -> tuple[str, ...]:
        """Shared ports: on trn1 SBUF's of Vector and GpSimd, PSUM's of Vector and Scalar (arch guide); on newer ones
        GpSimd's bus, which the Vector Engine needs when it takes more than an element per cycle."""
        name, spaces = self.resolve_engine(core).name, {tile.buffer for _, tile in self.tiles()}
        if core.gen > 2:
            fast = name == "vector" and cycles < max((free(tile) for _, tile in self.tiles()), default=0)
            return ("bus",) if name == "gpsimd" or fast else ()
        sbuf = name in ("vector", "gpsimd") and MemoryRegion.sbuf in spaces
        psum = name in ("vector", "scalar") and MemoryRegion.psum in spaces
        return ("SBUF",) * sbuf + ("PSUM",) * psum

    def depends_on(self, *producers: Instruction, kind: dependency | None = None) -> Instruction:
        """Order this instruction after ``producers``. Program order already is, so values do not change."""
        for producer in producers:
            if not isinstance(producer, Instruction):
                raise TypeError(f"depends_on takes instructions, got {type(producer).__name__}")
        context.machine().add_dependency(self, producers, kind)
        return self

    def enum_members(self) -> Broken | None:
        """Replace numbers that stand for an enum member by the member; return what to report about it.

        The documents say that raw integers are no longer accepted; the public kernel library of that very release passes
        ``dge_mode=3`` and runs on devices. So a member's number is taken and reported, any other number is an error.
        """
        reported = None
        for name in self.param_names:
            kind = type(getattr(type(self), name, None))
            value = getattr(self, name)
            if not issubclass(kind, Enum) or isinstance(value, kind):
                continue
            member = next((m for m in kind if m.value == value and not isinstance(value, bool)), None)
            fix = f"write nisa.{kind.__name__}.{(member or next(iter(kind))).name}"
            if member is None:
                return Broken(f"{name} is {value!r}, not a member of nisa.{kind.__name__}", name, fix=fix, error=TypeError)
            setattr(self, name, member)
            reported = Broken(f"{name} is the number {value}", name, fix=fix)
        return reported

    def operand_words(self, name: str) -> str:
        """The operand as diagnoses print it."""
        value = getattr(self, name, None)
        return value.words() if isinstance(value, NkiTensor) else "" if value is None else repr(value)

    def tiles(self) -> Iterator[tuple[str, NkiTensor]]:
        """The operands that are tensors, with their names."""
        for name in self.operand_names:
            value = getattr(self, name)
            if isinstance(value, NkiTensor):
                yield name, value

    # -- checks that many instructions share; each returns what is broken, or None --------------------------------------

    def alike(self, first: str, *others: str, free_too: bool = True, fix: str = "") -> Broken | None:
        """Tiles with equal partition sizes and (unless told otherwise) equal elements per partition."""
        reference = getattr(self, first)
        for name in others:
            tile = getattr(self, name)
            if not isinstance(tile, NkiTensor):
                continue
            if partitions(tile) != partitions(reference):
                sizes = ", ".join(f"{n} {partitions(t)}" for n, t in self._named(first, *others))
                return Broken(f"partition sizes differ: {sizes}", name, fix=fix or _CROSS_PARTITION_FIX)
            if free_too and free(tile) != free(reference):
                sizes = ", ".join(f"{n} {free(t)}" for n, t in self._named(first, *others))
                return Broken(f"elements per partition differ: {sizes}", name, fix=fix)
        return None

    def _named(self, *names: str) -> Iterator[tuple[str, NkiTensor]]:
        return ((n, getattr(self, n)) for n in names if isinstance(getattr(self, n), NkiTensor))

    def column_of(self, data: str, *names: str) -> Broken | None:
        """Operands that are tiles have shape (data's partitions, 1)."""
        rows = partitions(getattr(self, data))
        for name, tile in self._named(*names):
            if partitions(tile) != rows or free(tile) != 1:
                return Broken(f"{name} has shape {tile.shape}, not ({rows}, 1)", name)
        return None

    def not_both_psum(self, first: str, second: str) -> Broken | None:
        """The engine has one PSUM read port for two inputs."""
        a, b = getattr(self, first), getattr(self, second)
        if isinstance(a, NkiTensor) and isinstance(b, NkiTensor) and a.buffer is b.buffer is MemoryRegion.psum:
            fix = f"copy {second} to SBUF first: nisa.tensor_copy(dst=<sbuf tile>, src=…)"
            return Broken(f"{first} and {second} are both in PSUM", second, fix=fix)
        return None

    def one_of_engines(self, *allowed: engine) -> Broken | None:
        """The ``engine`` argument names an engine that has this instruction."""
        asked = getattr(self, "engine", engine.unknown)
        if asked is not engine.unknown and asked not in allowed:
            names = ", ".join(e.name for e in allowed)
            return Broken(f"engine {asked.name} is none of {names}", "engine", fix=f"choose {names}, or leave it out")
        return None


_SPACE_WHY = {
    ("SBUF",): "this engine's read and write ports reach SBUF only",
    ("PSUM",): "the tensor engine writes to PSUM only",
    ("SBUF", "PSUM"): "compute engines reach SBUF and PSUM; only DMA reaches HBM",
    ("SBUF", "HBM"): "DMA engines reach HBM and SBUF, not PSUM",
}
_CROSS_PARTITION_FIX = (
    "each lane works on its own partition; to combine different partitions use nisa.nc_matmul (it contracts over "
    "partitions), nisa.nc_transpose, or nl.broadcast_to for one row to all"
)


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda _: ()
    if len(names) == 1:
        get = attrgetter(names[0])
        return lambda self: (get(self),)
    return attrgetter(*names)


def _checks_of(cls: type) -> Iterator[Checked]:
    seen: set[str] = set()
    for level in cls.__mro__:
        for name, member in vars(level).items():
            declared = getattr(member, "rules", None)
            if name in seen or not isinstance(declared, list):
                continue
            seen.add(name)
            yield from (Checked(r, member) for r in declared)


_ARCH = page("guides/architecture/trainium_inferentia2_arch.html")


def _start_rule(id: str, words: str) -> Callable[[F], F]:
    why = "the 128 partitions are wired in four quadrants of 32"
    fix = "start the slice at a quadrant, or bring the rows there with nisa.dma_copy, which starts anywhere"
    return rule(f"hw.start_partition.{id}", words, why=why, fix=fix, page=_ARCH)


def _pattern_rule(id: str, words: str, fix: str) -> Callable[[F], F]:
    why = "an access pattern is encoded in the instruction: up to four (size, stride) pairs of 16 bits each"
    return rule(f"hw.ap.{id}", words, why=why, fix=fix, page=_ARCH)


def _elements_rule(id: str, words: str) -> Callable[[F], F]:
    why = "the engine's element counter is 16 bits wide, and PSUM holds 4096 fp32 per partition"
    return rule(id, words, why=why, fix="split the free dimension", page=_ARCH)


class ComputeInstruction(Instruction):
    """An instruction of a compute engine: its operands are engine accesses to SBUF and PSUM."""

    indirection_known = indirection.known
    indirection_offsets = indirection.enough_offsets

    @rule(
        "hw.partition_access_contiguous",
        "an operand occupies consecutive partitions: no step on the partition dimension",
        why="an engine streams neighbouring partitions in lockstep",
        fix="gather the rows into a tile with nisa.dma_copy, or slice the free dimension instead",
        page=page("deep-dives/nki-aps.html"),
    )
    def partition_step(self, core: NeuronCore) -> Broken | None:
        for name, tile in self.tiles():
            if partitions(tile) > 1 and tile.strides[0] != tile.row_elems:
                return Broken(f"{name} takes every {tile.strides[0] // tile.row_elems}. partition", name)
        return None

    @rule("dtype.e8m0_scale_only", "float8_e8m0fnu is the dtype of MX scales: no engine computes with it", gens=(4,),
          page=page("api/nki.api.shared.html"), enforce="warn", fix="keep scales as uint8, or move them with nisa.dma_copy",
          why="it has an exponent and nothing else")  # fmt: skip
    def scales_only(self, core: NeuronCore) -> Broken | None:
        if not self.takes_scales:
            for name, tile in self.tiles():
                if tile.dtype == "float8_e8m0fnu":
                    return Broken(f"{name} is float8_e8m0fnu", name)
        return None

    def _start(self, core: NeuronCore, low: int, high: int, allowed: tuple[int, ...]) -> Broken | None:
        for name, tile in self.tiles():
            if low <= partitions(tile) <= high and tile.start_partition not in allowed:
                starts = "/".join(map(str, allowed))
                what = f"engine access to {partitions(tile)} partitions starts at partition {tile.start_partition}"
                return Broken(f"{name}: {what}, allowed {starts}", name)
        return None

    @_start_rule("p1_32", "1 to 32 partitions start at partition 0, 32, 64 or 96")
    def start_quarter(self, core: NeuronCore) -> Broken | None:
        return self._start(core, 1, 32, (0, 32, 64, 96))

    @_start_rule("p33_64", "33 to 64 partitions start at partition 0 or 64")
    def start_half(self, core: NeuronCore) -> Broken | None:
        return self._start(core, 33, 64, (0, 64))

    @_start_rule("p65_128", "65 to 128 partitions start at partition 0")
    def start_whole(self, core: NeuronCore) -> Broken | None:
        return self._start(core, 65, 128, (0,))

    @_pattern_rule(
        "free_dims_le_4",
        "an operand's pattern has at most 4 free dimensions",
        "merge dimensions that follow each other in memory, or split the work into several instructions",
    )
    def free_dims(self, core: NeuronCore) -> Broken | None:
        for name, tile in self.tiles():
            dims = coalesce(tile.shape[1:], tile.strides[1:])
            if len(dims) > 4:
                return Broken(f"{name} needs {len(dims)} free dimensions", name)
        return None

    @_pattern_rule(
        "free_size_uint16",
        "each free dimension of a pattern has at most 65535 elements",
        "split the free dimension: x[:, j:min(j + size, n)] for j in range(0, n, size)",
    )
    def free_size(self, core: NeuronCore) -> Broken | None:
        for name, tile in self.tiles():
            if max(tile.shape[1:]) > 65535:
                return Broken(f"{name} has a free dimension of {max(tile.shape[1:])} elements", name)
        return None

    @_pattern_rule(
        "free_stride_int16",
        "each free stride of a pattern is between -32768 and 32767 elements",
        "copy the part to a compact tile with nisa.dma_copy first",
    )
    def free_stride(self, core: NeuronCore) -> Broken | None:
        for name, tile in self.tiles():
            for size, stride in coalesce(tile.shape[1:], tile.strides[1:]):
                if size > 1 and not -32768 <= stride <= 32767:
                    return Broken(f"{name} has a free stride of {stride} elements", name)
        return None

    def _too_many(self, core: NeuronCore, on: tuple[engine, ...], where: MemoryRegion, most: int) -> Broken | None:
        if self.resolve_engine(core) not in on:
            return None
        for name, tile in self.tiles():
            # repeats (stride 0) do not count: public kernels read a small PSUM tile over and over in one instruction
            distinct = math.prod(n for n, step in zip(tile.shape[1:], tile.strides[1:], strict=True) if step)
            if tile.buffer is where and distinct > most:
                return Broken(f"{name} has {distinct} elements per partition > {most}", name)
        return None

    @_elements_rule(
        "hw.vector.free_elems_le_64k_sbuf", "the Vector Engine takes at most 65536 elements per partition from SBUF"
    )
    def vector_sbuf(self, core: NeuronCore) -> Broken | None:
        return self._too_many(core, (engine.vector,), MemoryRegion.sbuf, 65536)

    @_elements_rule("hw.vector.free_elems_le_4k_psum", "the Vector Engine takes at most 4096 elements per partition from PSUM")
    def vector_psum(self, core: NeuronCore) -> Broken | None:
        return self._too_many(core, (engine.vector,), MemoryRegion.psum, 4096)

    @_elements_rule(
        "hw.scalar.free_elems_limit",
        "the Scalar Engine takes at most 65536 elements per partition from SBUF, 4096 from PSUM",
    )
    def scalar_elements(self, core: NeuronCore) -> Broken | None:
        on = (engine.scalar,)
        return self._too_many(core, on, MemoryRegion.sbuf, 65536) or self._too_many(core, on, MemoryRegion.psum, 4096)

    @rule(
        "hw.gpsimd.no_psum",
        "all operands of a GpSimd instruction are in SBUF",
        why="the GpSimd Engine has no path to PSUM",
        fix="copy PSUM to SBUF with nisa.tensor_copy on the Vector Engine first, or choose engine=nisa.engine.vector",
        page=page("guides/architecture/trainium_inferentia2_arch.html"),
    )
    def gpsimd_psum(self, core: NeuronCore) -> Broken | None:
        if self.resolve_engine(core) is engine.gpsimd:
            for name, tile in self.tiles():
                if tile.buffer is MemoryRegion.psum:
                    return Broken(f"{name} is in PSUM and the instruction runs on GpSimd", name)
        return None

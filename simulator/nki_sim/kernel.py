"""``nki.jit``, ``Kernel``, ``nki.simulate``: arguments in, one run, outputs out.

A run either ends well and gives its outputs (and writes the inputs that the kernel wrote), or raises and leaves the
caller's arrays as they were.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nki_sim import context
from nki_sim.arrays import Incoming, Restore, incoming, is_array, outgoing
from nki_sim.cache import KERNELS, Entry, Output, is_known, switches
from nki_sim.calls import explain_call
from nki_sim.config import CompileConfig, Configs, SpecializationConfig
from nki_sim.dtypes import Array, UnknownDTypeError
from nki_sim.errors import (
    Broken,
    Diagnosis,
    NkiDeprecationWarning,
    NkiError,
    NkiTypeError,
    NkiValidationError,
    Rule,
    page,
    violation,
)
from nki_sim.fingerprint import UNKNOWN, fingerprint, frozen
from nki_sim.fitting import place_all
from nki_sim.hw import LNC_VARIABLE, NeuronCore, core
from nki_sim.inputs import Inputs
from nki_sim.kept import keep, recall
from nki_sim.machine import Machine
from nki_sim.memory import MemoryRegion
from nki_sim.placement import MemoryMap, place
from nki_sim.program import Order
from nki_sim.reporting import Disturbed
from nki_sim.run import Run, RunOptions
from nki_sim.source import TRACE_ROOTS, Site
from nki_sim.tensor import NkiTensor

if TYPE_CHECKING:
    from nki_sim.cores import Team
    from nki_sim.replay.accesses import Access

_JIT = page("api/generated/nki.jit.html")
_GUIDE = page("get-started/nki-language-guide.html")

OUTPUT_BUFFER = Rule(
    "kernel.output_shared_hbm",
    "a kernel returns tensors allocated with buffer=nl.shared_hbm",
    why="only shared HBM is visible outside the kernel's instance",
    fix="out = nl.ndarray(shape, dtype=…, buffer=nl.shared_hbm); nisa.dma_copy(dst=out, src=<sbuf tile>); return out",
    page=_JIT,
)
OUTPUT_KIND = Rule(
    "kernel.output_kind",
    "a kernel returns a tensor, or a tuple or list of tensors, or nothing",
    fix="return the shared_hbm tensors; values that Python computed do not leave a kernel",
    page=_JIT,
)
OUTPUT_WRITTEN = Rule(
    "kernel.output_written",
    "every element of an output is written",
    why="what was not written holds whatever was there before",
    fix="check the loop bounds: a loop of n // tile runs zero times when n < tile, and drops the remainder otherwise",
    page=_GUIDE,
    enforce="warn",
)
NO_EFFECT = Rule(
    "kernel.no_effect",
    "a kernel returns a tensor or writes one of its inputs",
    fix="return the output tensor",
    page=_GUIDE,
    enforce="warn",
)
ANNOTATION = Rule(
    "kernel.nt_tensor_annotation",
    "an argument has the shape of its annotation nki.typing.tensor[…]",
    why="the documents do not say whether a compiler refuses another one",
    fix="annotate the shape that callers pass, or nki.typing.tensor without one",
    page=page("get-started/nki-language-guide.html"),
    enforce="warn",
)
NO_ARGUMENTS = Rule("kernel.no_args_error", "a kernel is called with its arguments", page=_JIT)
ARGUMENTS = Rule("kernel.arguments", "the call fits the kernel's signature", page=_JIT)
ARGUMENT_DTYPE = Rule("dtype.supported_list", "an argument's dtype is an NKI data type", page=page("api/nki.api.shared.html"))
ARGUMENT_SHAPE = Rule(
    "tensor.shape_positive",
    "tensor arguments have at least one dimension, and no dimension of size 0",
    fix="skip the empty case before the call; pass a scalar as a Python number or as an array of shape (1,)",
    page=_JIT,
)
LNC_VALUES = Rule(
    "kernel.lnc_values",
    "kernel[n] takes one integer, the number of logical cores: 1, or 2 on trn2 and trn3",
    fix="kernel(…) runs on one core",
    page=_JIT,
)
LNC_RUNTIME = Rule(
    "kernel.lnc_matches_runtime",
    "kernel[n] and NEURON_LOGICAL_NC_CONFIG name one number of logical cores",
    why="the device's cores are configured once, for all kernels",
    fix="unset NEURON_LOGICAL_NC_CONFIG, or call the kernel without [n]",
    page=_JIT,
    enforce="runtime",
)
LNC_OUTPUT = Rule(
    "kernel.lnc2_same_output",
    "both logical cores return the same tensors",
    why="a kernel has one result; each core writes its part of it",
    fix="allocate outputs and return them outside of what depends on nl.program_id",
    page=page("get-started/about/lnc.html"),
    gens=(3, 4),
)
SCHEDULE = Rule(
    "sched.with_schedule",
    "a schedule is a list of (consumer, producer or producers), names that instructions of the kernel were given",
    fix="give the instructions names: nisa.dma_copy(…, name='load_a')",
    page=page("guides/how-to-scheduling-apis.html"),
)
CONFIG = Rule(
    "kernel.config_type",
    "compile_config is a nki.compiler.CompileConfig, specialization_config a nki.compiler.SpecializationConfig",
    fix="@nki.jit(compile_config=nki.compiler.CompileConfig(dead_code_elim=False))",
    page=_JIT,
)
NESTED_CONFIG = Rule(
    "kernel.nested_config",
    "a kernel called inside another one has the same configuration",
    why="both become one program, which is compiled once",
    fix="leave the inner one's out, or allow it outside: SpecializationConfig(allow_nested_config_override=True)",
    page=_JIT,
)
OTHER_CONFIG = replace(NESTED_CONFIG, enforce="warn")
REMOVED_OPTION = Rule(
    "kernel.platform_target_removed",
    "nki.jit takes compile_config and specialization_config; platform_target is gone",
    fix="set NEURON_PLATFORM_TARGET_OVERRIDE, or --target on the %%nki line",
    page=_JIT,
)


def run(
    kernel: Kernel | Callable[..., Any],
    /,
    *args: Any,
    target: str | NeuronCore | None = None,
    strict: bool = False,
    precise: bool | None = None,
    keep_inputs: bool = True,
    fit: Order | None = None,
    **kwargs: Any,
) -> Run:
    """Run a kernel on the simulator and keep everything it did.

    A kernel with a parameter of the name of an option takes it through :meth:`Kernel.run`.

    Args:
        kernel: a ``nki.jit`` kernel or a plain function.
        args, kwargs: the kernel's arguments: arrays become tensors in HBM, other values are compile-time constants.
        target, strict, precise, keep_inputs, fit: see :class:`RunOptions`.

    Raises:
        NkiValidationError: the kernel breaks a limit.
    """
    options = RunOptions(target=target, strict=strict, precise=precise, keep_inputs=keep_inputs, fit=fit)
    return as_kernel(kernel).run(args, kwargs, options)


def as_kernel(function: Kernel | Callable[..., Any]) -> Kernel:
    """The kernel of a function, or the kernel itself."""
    return function if isinstance(function, Kernel) else Kernel(function)


@dataclass(frozen=True)
class Answer:
    """What a call gives that the kernel did not have to run for."""

    value: Any


Border = Callable[["Kernel", tuple[Any, ...], dict[str, Any]], "Answer | None"]


class Kernel:
    """A function made a kernel by ``nki.jit``; calling it runs it on the simulator.

    ``kernel[n]`` asks for n logical cores. Inside another kernel, a call is inlined.

    Attributes:
        borders: what looks at a call from outside first, and answers it in the kernel's place or leaves it to the kernel.
        made: all kernels of this process.
        watchers: what is told of each new one.
    """

    borders: ClassVar[list[Border]] = []
    made: ClassVar[weakref.WeakSet[Kernel]] = weakref.WeakSet()
    watchers: ClassVar[list[Callable[[Kernel], Any]]] = []

    def __init__(
        self,
        function: Callable[..., Any],
        lnc: int | None = None,
        schedule: tuple[tuple[str, tuple[str, ...]], ...] = (),
        configs: Configs = Configs(),  # noqa: B008 - it is frozen
    ):
        self.function = function
        self.lnc = lnc
        self.schedule = schedule
        self.configs = configs
        functools.update_wrapper(self, function)
        self.made.add(self)
        for watch in self.watchers:
            watch(self)

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", "kernel")

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    def __repr__(self) -> str:
        suffix = "" if self.lnc is None else f"[{self.lnc}]"
        return f"<nki kernel {self.name}{suffix}{self._signature}>"

    def __getitem__(self, lnc: Any) -> Kernel:
        """The kernel on ``lnc`` logical cores."""
        degree = lnc[0] if isinstance(lnc, tuple) and len(lnc) == 1 else lnc
        if isinstance(degree, bool) or not isinstance(degree, (int, np.integer)) or degree not in (1, 2):
            raise NkiValidationError(_diagnosis(LNC_VALUES, f"kernel[{lnc!r}]", core(), self.name))
        return Kernel(self.function, int(degree), self.schedule, self.configs)

    def with_schedule(self, edges: Sequence[tuple[str, str | Sequence[str]]]) -> Kernel:
        """The kernel with an order between named instructions: each consumer runs after its producers.

        Raises:
            NkiValidationError: an edge is not (consumer, producer or producers), all names.
        """
        pairs = []
        for edge in edges:
            consumer, producers = edge if isinstance(edge, (tuple, list)) and len(edge) == 2 else (None, None)
            names = [producers] if isinstance(producers, str) else list(producers or ())
            if not isinstance(consumer, str) or not names or not all(isinstance(n, str) for n in names):
                raise NkiValidationError(_diagnosis(SCHEDULE, f"edge {edge!r}", core(), self.name))
            pairs.append((consumer, tuple(names)))
        return Kernel(self.function, self.lnc, tuple(pairs), self.configs)

    def _apply_schedule(self, machine: Machine) -> None:
        program, core = machine.program, getattr(machine, "worker", 0)
        steps = {name: step for step, name in program.names.items() if program.plan_at(step).core == core}
        for consumer, producers in self.schedule:
            missing = [n for n in (consumer, *producers) if n not in steps]
            if missing:
                what = f"no instruction is named {', '.join(missing)}"
                raise NkiValidationError(_diagnosis(SCHEDULE, what, machine.core, self.name))
            machine.dependencies.append((steps[consumer], tuple(steps[n] for n in producers), None))

    def _check_nested(self, machine: Machine) -> None:
        """A kernel inside another one has its options, unless that one allows others."""
        option = self.configs.differing(machine.configs)
        if not option:
            return
        if machine.configs.allows_other:
            machine.found(_diagnosis(OTHER_CONFIG, f"{self.name} has another {option}", machine.core, self.name))
            return
        raise NkiValidationError(_diagnosis(NESTED_CONFIG, f"{self.name} has another {option}", machine.core, self.name))

    def cores_of(self, hw: NeuronCore) -> int:
        """On how many logical cores it runs.

        Raises:
            NkiValidationError: the generation does not have as many, or the environment says otherwise.
        """
        asked = os.environ.get(LNC_VARIABLE, "").strip()
        cores = self.lnc or (int(asked) if asked.isdecimal() else 1)
        if asked and (not asked.isdecimal() or int(asked) not in (1, 2)):
            raise NkiValidationError(_diagnosis(LNC_VALUES, f"{LNC_VARIABLE} is {asked!r}", hw, self.name))
        if cores not in hw.lnc:
            raise NkiValidationError(_diagnosis(LNC_VALUES, f"kernel[{cores}] on {hw.target}", hw, self.name))
        if asked and int(asked) != cores:
            raise NkiValidationError(_diagnosis(LNC_RUNTIME, f"kernel[{cores}] with {LNC_VARIABLE}={asked}", hw, self.name))
        return cores

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        machine = context.machine_or_none()
        if machine is not None:
            self._check_nested(machine)
            return self.function(*args, **kwargs)
        for border in self.borders:
            answer = border(self, args, kwargs)
            if answer is not None:
                return answer.value
        hw = core(None)
        bound = self._bind(args, kwargs, hw)
        key, values = (None, []) if self.cores_of(hw) > 1 and _is_interleaved() else self._key(bound, hw)
        entry = self._kept(key, hw) if key is not None else None
        if entry is not None:
            try:
                return _again(entry, [incoming(value) for value in values])
            except Disturbed:
                pass  # what is new must be said at its line
        done = self._execute(bound, hw, RunOptions(keep_inputs=False))
        if key is not None and done.repeats and done.run.precise:
            KERNELS.put(key, done.entry)
            keep(key, self.name, done.entry)
        return done.run.result

    def _kept(self, key: Any, hw: NeuronCore) -> Entry | None:
        """What this process, or one before it, has kept under a key."""
        entry = KERNELS.get(key)
        if entry is None:
            entry = recall(key, self.name, hw)
            if entry is not None:
                KERNELS.put(key, entry)
        return entry

    def _key(self, bound: inspect.BoundArguments, hw: NeuronCore) -> tuple[Any, list[Any]]:
        """What a specialised kernel is kept under (``None``: not at all), and the arrays among the arguments, each once."""
        values: list[Any] = []

        def part(value: Any) -> Any:
            if isinstance(value, (tuple, list)):
                return type(value), tuple(part(item) for item in value)
            if isinstance(value, dict):
                return dict, tuple((name, part(item)) for name, item in value.items())
            if not is_array(value):
                return frozen(value)
            if not hasattr(value, "shape") or not hasattr(value, "dtype"):
                return UNKNOWN  # shape and dtype of what has only __array__ would cost a copy
            at = next((i for i, other in enumerate(values) if other is value), len(values))
            if at == len(values):
                values.append(value)
            return "tensor", tuple(value.shape), str(value.dtype), at, _writable(value)

        parts = tuple((name, part(value)) for name, value in bound.arguments.items())
        depends = fingerprint(self.function)
        if not is_known(depends) or not _all_known(parts):
            return None, []
        key = (depends, parts, hw, self.lnc, self.schedule, self.configs, switches())
        try:
            hash(key)
        except TypeError:
            return None, []
        return key, values

    def run(self, args: Sequence[Any], kwargs: dict[str, Any], options: RunOptions = RunOptions()) -> Run:  # noqa: B008
        """Run on the simulator and keep everything it did; the options cannot clash with the kernel's parameters.

        Raises:
            NkiValidationError: the kernel breaks a limit.
        """
        hw = core(options.target)
        return self._execute(self._bind(args, kwargs, hw), hw, options).run

    def run_team(
        self,
        team: Team,
        inputs: Sequence[tuple[Sequence[Any], dict[str, Any]]],
        options: RunOptions = RunOptions(),  # noqa: B008
    ) -> Run:
        """Run on the cores of a team, with the arguments of each rank.

        Raises:
            NkiValidationError: the kernel breaks a limit.
        """
        run = self._execute_team(team, [self._bind(args, kwargs, team.core) for args, kwargs in inputs], options).run
        run.result = run.result if len(inputs) > 1 else [run.result]
        return run

    def shapes(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What a call would return, its tensors without data: all limits are checked, nothing is computed.

        Raises:
            NkiValidationError: the kernel breaks a limit, or its course depends on data.
        """
        hw = core(None)
        return self._execute(self._bind(args, kwargs, hw), hw, RunOptions(keep_inputs=False, dry=True)).returned

    def _execute(self, bound: inspect.BoundArguments, hw: NeuronCore, options: RunOptions) -> _Done:
        cores = self.cores_of(hw)
        if cores > 1:
            return self._execute_together(bound, hw, cores, options)
        machine = Machine(hw, **options.of_machine)
        machine.configs, machine.grid = self.configs, int(self.lnc is not None)
        arrays: list[tuple[NkiTensor, Incoming]] = []
        self._take_in(bound, machine, arrays)
        return self._finish([machine], arrays, options, lambda: [self._specialise(bound, hw)])

    def _execute_together(self, bound: inspect.BoundArguments, hw: NeuronCore, cores: int, options: RunOptions) -> _Done:
        """Run on logical cores that share HBM: each runs the kernel's Python, and all of them make one record."""
        from nki_sim.cores import Team  # most kernels run on one

        return self._execute_team(Team(hw, cores, options=options.of_machine), [bound], options)

    def _execute_team(self, team: Team, bounds: Sequence[inspect.BoundArguments], options: RunOptions) -> _Done:
        """Run on the cores of a team, with the arguments of each rank."""
        arrays: list[tuple[NkiTensor, Incoming]] = []
        works = []
        for machine in team.machines:
            machine.configs = self.configs
            bound = bounds[machine.worker // team.cores]
            mine = inspect.BoundArguments(bound.signature, OrderedDict(bound.arguments))
            self._take_in(mine, machine, arrays if machine.number == 0 else [])
            works.append(functools.partial(self._specialise, mine, team.core))
        return self._finish(team.machines, arrays, options, lambda: team.run(works))

    def _finish(
        self,
        machines: Sequence[Machine],
        arrays: list[tuple[NkiTensor, Incoming]],
        options: RunOptions,
        trace: Callable[[], list[Any]],
    ) -> _Done:
        """Trace the kernel on its machines, check what came out, and give it out."""
        machine, hw = machines[0], machines[0].core
        inputs = Inputs()
        for tensor, _ in arrays if options.keep_inputs and not options.dry else ():
            inputs.add(tensor.storage.allocation.id, tensor.storage.allocation.label, tensor.array)
        if machine.ranks == 1 and options.stores_precisely and not options.strict and not options.dry:
            machine.wait()
        began = time.perf_counter()
        with context.running(machine), np.errstate(all="ignore"):
            try:
                returned = trace()
                for first in range(0, len(machines), machine.programs):
                    self._check_outputs(returned[first : first + machine.programs], arrays, machines[first], options)
                for each in machines if self.schedule else ():
                    self._apply_schedule(each)
                maps = place_all(machines, options.fits)
                if machine.dependencies:
                    from nki_sim.timing import check_order  # the model of time: for who asks about it

                    check_order(machine.program, hw, machine.dependencies)
            except NkiError as error:
                machine.forget_pending()
                memory = [place(each.memory.own(), hw, enforce=False)[0] for each in machines]
                error.run = self._run_of(machines, memory, inputs, None, options)
                raise
            given = returned[:: machine.programs]
            run = self._run_of(machines, maps, inputs, None, options)
            done = _Done(run, given[0], tuple(tensor.storage.allocation.id for tensor, _ in arrays), given)
            if not options.dry:
                run.result = _results(done, arrays)
            run.seconds = time.perf_counter() - began
        return done

    def _check_outputs(
        self, returned: list[Any], arrays: list[tuple[NkiTensor, Incoming]], machine: Machine, options: RunOptions
    ) -> None:
        """What the cores of one rank return."""
        outputs, *others = [self._outputs(value, machine) for value in returned]
        self._check_same_outputs(outputs, others, machine)
        if options.watch or not options.dry:
            self._check_effect(outputs, arrays, machine)

    def _check_same_outputs(self, outputs: list[NkiTensor], others: list[list[NkiTensor]], machine: Machine) -> None:
        """Every core returns the same tensors."""
        for number, given in enumerate(others, 1):
            if [id(t.storage) for t in given] != [id(t.storage) for t in outputs]:
                names = [", ".join(t.storage.allocation.label for t in some) or "nothing" for some in (outputs, given)]
                what = f"core 0 returns {names[0]}, core {number} returns {names[1]}"
                raise NkiValidationError(_diagnosis(LNC_OUTPUT, what, machine.core, self.name))

    def _run_of(
        self, machines: Sequence[Machine], maps: list[MemoryMap], inputs: Inputs, result: Any, options: RunOptions
    ) -> Run:
        first = machines[0]
        return Run(self.name, first.core, first.programs, result, first, maps[0], inputs, precise=options.stores_precisely,
                   memories=tuple(maps), ranks=first.ranks)  # fmt: skip

    def _specialise(self, bound: inspect.BoundArguments, hw: NeuronCore) -> Any:
        """Run the kernel's Python; wrong calls of the API are said in its words."""
        try:
            return _trace(self.function, bound)
        except TypeError as error:
            explained = explain_call(error, hw.target)
            if explained is None:
                raise
            raise explained from None

    # -- arguments ---------------------------------------------------------------------------------------------------

    def _bind(self, args: Sequence[Any], kwargs: dict[str, Any], hw: NeuronCore) -> inspect.BoundArguments:
        signature = self._signature
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            rule = ARGUMENTS if args or kwargs else NO_ARGUMENTS
            fix = f"the signature is {self.name}{signature}"
            raise NkiTypeError(_diagnosis(rule, str(error), hw, self.name, fix)) from None
        bound.apply_defaults()
        return bound

    def _take_in(self, bound: inspect.BoundArguments, machine: Machine, arrays: list[tuple[NkiTensor, Incoming]]) -> None:
        seen: dict[int, NkiTensor] = {}

        def convert(name: str, value: Any) -> Any:
            if isinstance(value, (tuple, list)):
                items = [convert(f"{name}[{i}]", v) for i, v in enumerate(value)]
                same = all(new is old for new, old in zip(items, value, strict=True))
                return value if same else _like(value, items)
            if isinstance(value, dict):
                return {k: convert(f"{name}[{k!r}]", v) for k, v in value.items()}
            if not is_array(value):
                return value
            if id(value) not in seen:
                seen[id(value)] = self._tensor(name, value, machine, arrays)
            return seen[id(value)]

        for name, value in bound.arguments.items():
            self._check_annotation(name, value, machine)
            kind = bound.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {k: convert(k, v) for k, v in value.items()}
            else:
                bound.arguments[name] = convert(name, value)

    def _check_annotation(self, name: str, value: Any, machine: Machine) -> None:
        """An argument has the shape that ``nki.typing.tensor[…]`` announces; a text as annotation is not read."""
        wanted = getattr(getattr(self.function, "__annotations__", {}).get(name), "shape", None)
        given = getattr(value, "shape", None)
        if wanted and given is not None and tuple(given) != tuple(wanted):
            what = f"argument {name} has shape {tuple(given)}, annotated {tuple(wanted)}"
            machine.found(_diagnosis(ANNOTATION, what, machine.core, self.name))

    def _tensor(self, name: str, value: Any, machine: Machine, arrays: list[tuple[NkiTensor, Incoming]]) -> NkiTensor:
        hw = machine.core
        try:
            given = incoming(value)
        except UnknownDTypeError as error:
            raise NkiTypeError(_diagnosis(ARGUMENT_DTYPE, f"argument {name}: {error}", hw, self.name)) from None
        shape = given.array.shape
        if not shape or 0 in shape:
            raise NkiValidationError(_diagnosis(ARGUMENT_SHAPE, f"argument {name} has shape {shape}", hw, self.name))
        tensor = machine.take_in(given.array, given.dtype, name, given.writable)
        arrays.append((tensor, given))
        return tensor

    # -- results -----------------------------------------------------------------------------------------------------

    def _outputs(self, returned: Any, machine: Machine) -> list[NkiTensor]:
        site = Site(self.function.__code__, 0) if hasattr(self.function, "__code__") else None
        sites = (site,) if site else ()
        found: list[NkiTensor] = []

        def visit(value: Any) -> None:
            if isinstance(value, (tuple, list)):
                for item in value:
                    visit(item)
            elif isinstance(value, dict):
                for item in value.values():
                    visit(item)
            elif isinstance(value, NkiTensor):
                if value.buffer is not MemoryRegion.shared_hbm:
                    what = f"returns {value.storage.allocation.label} ({value.words()})"
                    diagnosis = violation(OUTPUT_BUFFER, Broken(what), target=machine.core.target, sites=sites,
                                          instruction=self.name)  # fmt: skip
                    raise NkiValidationError(diagnosis)
                if value.storage.allocation.role != "input":
                    value.storage.allocation.role = "output"
                found.append(value)
            elif value is not None:
                what = f"returns a {type(value).__name__}"
                diagnosis = violation(OUTPUT_KIND, Broken(what), target=machine.core.target, sites=sites,
                                      instruction=self.name)  # fmt: skip
                raise NkiTypeError(diagnosis)

        visit(returned)
        return found

    def _check_effect(self, outputs: list[NkiTensor], arrays: list[tuple[NkiTensor, Incoming]], machine: Machine) -> None:
        wrote_input = any(t.storage.host is not None and t.storage.host.written for t, _ in arrays)
        if not outputs and not wrote_input:
            self._found(machine, NO_EFFECT, "returns nothing and writes none of its inputs", ())
        for tensor in outputs:
            storage = tensor.storage
            missing = storage.unwritten()
            if missing:
                storage.poison()
                label, site = storage.allocation.label, storage.allocation.site
                what = f"{storage.count - missing} of {storage.count} elements of output {label} written"
                self._found(machine, OUTPUT_WRITTEN, what, (site,) if site else ())

    def _found(self, machine: Machine, rule: Rule, what: str, sites: tuple[Site, ...]) -> None:
        machine.found(violation(rule, Broken(what), target=machine.core.target, instruction=self.name, sites=sites))


@dataclass
class _Done:
    """A finished run, what the kernel returned (and of several ranks each), and its inputs' allocation numbers."""

    run: Run
    returned: Any
    inputs: tuple[int, ...]
    of_ranks: list[Any]

    @property
    def repeats(self) -> bool:
        """Whether it does the same for other values, and has nothing to say."""
        return self.run.machine.static and not self.run.findings

    @functools.cached_property
    def entry(self) -> Entry:
        """The run as it is kept for calls like it."""
        from nki_sim.replay.accesses import Walk, access  # what is not run again needs none of it

        outputs: list[Access] = []
        machine = self.run.machine

        def place_of(value: Any) -> Any:
            if isinstance(value, NkiTensor):
                walk = Walk(value.shape, value.strides, value.dtype)
                outputs.append(access(machine, value.storage.allocation, walk, value.offset))
                return Output(len(outputs) - 1, value.info)
            return None

        returned = _mapped(self.returned, place_of)
        machine.memory.forget_pools()
        return Entry(machine, self.inputs, tuple(outputs), returned)


def _results(done: _Done, arrays: Sequence[tuple[NkiTensor, Incoming]]) -> Any:
    """Run what has not run yet; give out what the kernel returned, and the caller's arrays what it wrote to them."""
    machine = done.run.machine
    if machine.pending is not None and machine.pending.worth_fusing and done.repeats:
        try:
            result = _again(done.entry, [given for _, given in arrays], done.run.inputs)
            machine.forget_pending()
            return result
        except Disturbed:
            pass  # what is new must be said at its line
    machine.catch_up()
    restore = arrays[0][1].restore if arrays else (lambda a: a)
    results = [_mapped(returned, lambda tensor: _give_out(tensor, restore)) for returned in done.of_ranks]
    for tensor, given in arrays:
        host = tensor.storage.host
        if host is not None and host.written:
            done.run.inputs.copy(tensor.storage.allocation.id)
            given.write_back(tensor.array)
    return results if len(results) > 1 else results[0]


def _again(entry: Entry, given: list[Incoming], inputs: Inputs | None = None) -> Any:
    """Run a kept kernel on other arrays, and give out what it returns; ``inputs`` are to stay what they were."""
    values, written = entry([one.array for one in given])
    restore = given[0].restore if given else (lambda a: a)

    def give(value: Any) -> Any:
        return restore(outgoing(values[value.index], value.info)) if isinstance(value, Output) else None

    result = _mapped(entry.returned, give)
    for which, array in written.items():
        if inputs is not None:
            inputs.copy(entry.inputs[which])
        given[which].write_back(array)
    return result


def _is_interleaved() -> bool:
    from nki_sim.cores import is_interleaved  # most kernels run on one

    return is_interleaved()


def _writable(value: Any) -> bool:
    flags = getattr(value, "flags", None)
    return bool(getattr(flags, "writeable", True))


def _all_known(parts: Any) -> bool:
    if isinstance(parts, tuple):
        return all(_all_known(part) for part in parts)
    return is_known(parts)


def _mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """The same nesting of tuples, lists and dictionaries, with what ``leaf`` makes of everything else."""
    if isinstance(value, (tuple, list)):
        return _like(value, [_mapped(item, leaf) for item in value])
    if isinstance(value, dict):
        return {key: _mapped(item, leaf) for key, item in value.items()}
    return leaf(value)


def _like(sequence: Any, items: list[Any]) -> Any:
    """A sequence of the same kind, named tuples included."""
    return type(sequence)(*items) if hasattr(sequence, "_fields") else type(sequence)(items)


def _trace(function: Callable[..., Any], bound: inspect.BoundArguments) -> Any:
    return function(*bound.args, **bound.kwargs)


TRACE_ROOTS.add(_trace.__code__)


def _diagnosis(rule: Rule, what: str, hw: NeuronCore, subject: str, fix: str = "") -> Diagnosis:
    return violation(rule, Broken(what, fix=fix), target=hw.target, instruction=subject, sites=())


def _give_out(tensor: Any, restore: Restore) -> Any:
    if not isinstance(tensor, NkiTensor):
        return None
    values: Array = np.ascontiguousarray(tensor.array)
    host = tensor.storage.host
    if host is not None and not host.written:
        values = values.copy()  # the caller's own array must not come back as a result
    wide = tensor.memory.stored(tensor.info) is not tensor.info
    return restore(values if wide else outgoing(values, tensor.info))


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    compile_config: CompileConfig | None = None,
    specialization_config: SpecializationConfig | None = None,
    **kwargs: Any,
) -> Any:
    """Make a function a kernel; also as ``@nki.jit(compile_config=…)``.

    Args:
        fn: a function whose parameters are tensors in HBM and compile-time values.
        compile_config, specialization_config: of :mod:`nki.compiler`. They change nothing here but whether a kernel called
            inside this one may have others.

    Raises:
        NkiTypeError: a configuration is of another class, or ``platform_target`` is given, which NKI removed.
            Other unknown options are ignored with a warning.

    Example:
        import nki

        @nki.jit
        def doubled(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out, nl.multiply(nl.load(x), 2.0))
            return out
    """
    if "platform_target" in kwargs:
        raise NkiTypeError(_diagnosis(REMOVED_OPTION, "unexpected option platform_target", core(), "nki.jit"))
    if kwargs:  # documented as ignored; public kernels still pass mode= and debugging switches
        warnings.warn(NkiDeprecationWarning(f"nki.jit ignores {', '.join(kwargs)}", "leave it out"), stacklevel=2)
    for name, given, kind in (("compile_config", compile_config, CompileConfig),
                              ("specialization_config", specialization_config, SpecializationConfig)):  # fmt: skip
        if given is not None and not isinstance(given, kind):
            raise NkiTypeError(_diagnosis(CONFIG, f"{name} is a {type(given).__name__}", core(), "nki.jit"))
    configs = Configs(compile_config, specialization_config)

    def decorate(function: Kernel | Callable[..., Any]) -> Kernel:
        return function if isinstance(function, Kernel) else Kernel(function, configs=configs)

    return decorate if fn is None else decorate(fn)


def simulate(kernel: Kernel | Callable[..., Any]) -> Callable[..., Any]:
    """A callable that runs the kernel on the simulator and returns its outputs as arrays of the arguments' kind."""
    made = as_kernel(kernel)

    @functools.wraps(made.function)
    def simulated(*args: Any, **kwargs: Any) -> Any:
        return made.run(args, kwargs, RunOptions(keep_inputs=False)).result

    return simulated


__all__ = ["Kernel", "NkiError", "Run", "jit", "run", "simulate"]

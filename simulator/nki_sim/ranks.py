"""A kernel on several ranks, all of them in this process, or each as a job of its own on an executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nki_sim.errors import Broken, NkiValidationError, Rule, page, violation
from nki_sim.hw import NeuronCore, core
from nki_sim.importer import install
from nki_sim.kernel import Kernel, as_kernel
from nki_sim.program import Order
from nki_sim.run import Run, RunOptions

RANKS = Rule(
    "run_ranks.inputs",
    "ranks is a positive number, and there are inputs for each: a tuple of arguments, a dict of them by name, or one array",
    fix="run_ranks(kernel, [(a0,), (a1,)], ranks=2), or a function of the rank's number",
    page=page("api/nki.collectives.html"),
)


class Submits(Protocol):
    """As ``concurrent.futures.Executor``, and as those of Dask, ipyparallel, Ray and mpi4py."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Do it elsewhere; what comes has ``result()``."""


def run_ranks(
    kernel: Kernel | Callable[..., Any],
    per_rank_inputs: Sequence[Any] | Callable[[int], Any],
    *,
    ranks: int,
    executor: Submits | None = None,
    target: str | NeuronCore | None = None,
    strict: bool = False,
    precise: bool | None = None,
    keep_inputs: bool = True,
    fit: Order | None = None,
    ranks_per_node: int | None = None,
) -> Run | list[Any]:
    """Run a kernel on several ranks, whose collectives meet.

    Args:
        kernel: a kernel; ``kernel[2]`` for ranks of two logical cores.
        per_rank_inputs: for each rank a tuple of arguments, a dict of them by name, or the one array; or a function of the
            rank.
        ranks: how many.
        executor: where to run each rank as a job of its own, which then cannot meet the others: for kernels without
            collectives. Those that pickle by value, as Dask's, take any kernel; the standard library's process pools take plain
            functions of a module. By default all ranks run in this process.
        target, strict, precise, keep_inputs, fit: as of :class:`RunOptions`.
        ranks_per_node: how many ranks share a machine; by default as many as the instances of the target have.

    Returns:
        one run of all ranks, whose ``result`` is a list; of an executor the list of results.

    Raises:
        NkiValidationError: the kernel breaks a limit, the ranks' calls do not go together, or inputs are missing.
    """
    hw, made = core(target), as_kernel(kernel)
    inputs = _inputs(per_rank_inputs, ranks, hw, made.name)
    options = RunOptions(target=hw, strict=strict, precise=precise, keep_inputs=keep_inputs, fit=fit)
    if executor is not None:
        jobs = [_Job(made, args, kwargs, rank, ranks, options) for rank, (args, kwargs) in enumerate(inputs)]
        return [future.result() for future in [executor.submit(job) for job in jobs]]
    from nki_sim.cores import Team  # most kernels have one rank

    team = Team(hw, made.cores_of(hw), ranks, ranks_per_node=ranks_per_node, options=options.of_machine)
    return made.run_team(team, inputs, options)


def _inputs(given: Any, ranks: Any, hw: NeuronCore, subject: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    def refuse(what: str) -> NkiValidationError:
        return NkiValidationError(violation(RANKS, Broken(what), target=hw.target, instruction=subject, sites=()))

    if not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1:
        raise refuse(f"ranks is {ranks!r}")
    each = [given(rank) for rank in range(ranks)] if callable(given) else list(given)
    if len(each) != ranks:
        raise refuse(f"inputs for {len(each)} ranks of {ranks}")
    return [_arguments(one) for one in each]


def _arguments(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(given, dict):
        return (), given
    return (given if isinstance(given, tuple) else (given,)), {}


@dataclass(frozen=True)
class _Job:
    """One rank by itself, in whatever process."""

    kernel: Kernel
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    rank: int
    ranks: int
    options: RunOptions

    def __call__(self) -> Any:
        install()
        hw = core(self.options.target)
        from nki_sim.cores import Team

        team = Team(hw, self.kernel.cores_of(hw), alone=(self.rank, self.ranks), options=self.options.of_machine)
        return self.kernel.run_team(team, [(self.args, self.kwargs)], self.options).result[0]

"""Which kind of workers a trainer's `workers` stands for."""

from __future__ import annotations

from executor.model.pipeline import Pipeline
from executor.workers.distributed.environment import started_together
from executor.workers.step_team import MakeStepTeam, StepsInOneProcess, StepTeam
from schedir.errors import ArgumentError
from schedir.ir.graph import TaskGraph

AUTO = "auto"


def choose_workers(name: str) -> str:
    """Return the kind of workers for a name, that for this machine for `auto`; raise ArgumentError for an unknown one."""
    if name not in {AUTO, *KINDS}:
        raise ArgumentError(f"workers {name!r} is unknown: use {' or '.join((AUTO, *KINDS))}")
    if name != AUTO:
        return name
    return "distributed" if started_together() else "threads"


def _in_processes(graph: TaskGraph, pipeline: Pipeline, seed: int, timeout_s: float) -> StepTeam:  # noqa: PLR0917 - as MakeStepTeam has it
    from executor.workers.distributed.step_team import StepsInProcesses  # noqa: PLC0415 - some builds have no torch.distributed

    return StepsInProcesses(graph, pipeline, seed, timeout_s)


KINDS: dict[str, MakeStepTeam] = {"threads": StepsInOneProcess, "distributed": _in_processes}
"""What makes the team, by kind."""

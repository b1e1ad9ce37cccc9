"""The registered schedules that a search competes with, and starts from: those of its shape, on its placement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from schedir.errors import RefusedError
from schedir.ir.action import Kind
from schedir.ir.program import Program
from schedir.schedules.registry import build_program, find_schedule, schedule_names
from schedir.search.problem.problem import Problem, StagePlacement
from schedir.search.problem.tables import Tables


def registered_programs(problem: Problem, placement: StagePlacement, tables: Tables) -> Iterator[Program]:
    """Yield every synchronous schedule that accepts the shape, places stages alike and runs what is asked for.

    Schedules that follow costs come in their fixed order and in that for the problem's costs and activations. Schedules of two
    directions have every stage on two devices: they are left out, and `two_ways` tells of them.
    """
    homes, kinds = problem.homes(placement), _kinds(problem, tables)
    for name in schedule_names():
        schedule = find_schedule(name)
        choices = [] if schedule.continuous else _options(problem, schedule.options, tables)
        for program in (build_registered(problem, name, options) for options in choices):
            if program is not None and _is_alike(program, homes, kinds):
                yield program


def _kinds(problem: Problem, tables: Tables) -> frozenset[Kind]:
    """Return what registered orders may consist of: whole backwards, too, unless split ones are asked for."""
    return tables.kinds | {Kind.BACKWARD} if problem.backward is None else tables.kinds


def build_registered(
    problem: Problem, name: str, options: dict[str, Any], *, stages_per_device: int | None = None
) -> Program | None:
    """Return a schedule's program, or None where it refuses the shape or the limit; on other stages per device if given."""
    try:
        return build_program(
            name,
            num_devices=problem.num_devices,
            num_micro_batches=problem.num_micro_batches,
            num_mini_batches=1,
            stages_per_device=stages_per_device or problem.stages_per_device,
            **options,
        )
    except RefusedError:
        return None


def _options(problem: Problem, known: dict[str, Any], tables: Tables) -> list[dict[str, Any]]:
    """Return the options with which a schedule is built."""
    found: list[dict[str, Any]] = [{}]
    if "split_backward" in known:
        found = [{"split_backward": split} for split in (True, False)]
    if "costs" in known and Kind.WEIGHT_GRAD in tables.kinds:
        limits = problem.limits.activations
        found.append(
            {"costs": problem.costs} | ({"activation_limit": min(limits)} if limits and "activation_limit" in known else {})
        )
    return found


def _is_alike(program: Program, homes: tuple[int, ...], kinds: frozenset[Kind]) -> bool:
    """Tell whether a program's stages stand on these devices and its work is of these kinds (pairs may overlap)."""
    present = {Kind(kind) for kind in np.unique(np.concatenate((program.kind, program.pairs.kind))).tolist()}
    if program.num_stages != len(homes) or not present - {Kind.OVERLAPPED} <= kinds:
        return False
    return bool((np.array(homes)[program.stage] == program.device_of_entry()).all())

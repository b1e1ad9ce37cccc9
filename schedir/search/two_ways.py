"""Schedules of two directions beside a search: what they take for the same stages and costs, though they do not compete.

Where a device hosts one stage, chimera and dualpipe cut the model into the same stages and so have the same costs; but each stage
stands on two devices, with two copies of its weights, and a search keeps every stage on one. So their times are told, and neither
the bound nor the best order says anything about them. Where a device hosts several stages they cut the model otherwise.
"""

from __future__ import annotations

from schedir.errors import SchedirError
from schedir.ir.action import Kind
from schedir.ir.program import Program
from schedir.search.judge import Judge, Judged
from schedir.search.problem.problem import Backward, Problem
from schedir.search.registered import build_registered

TWO_WAYS = ("chimera", "dualpipe")


def two_way_notes(problem: Problem, judge: Judge, best: float) -> tuple[str, ...]:
    """Return a sentence for each of these schedules that takes the shape, the costs and the limits; `best` is in seconds."""
    if problem.num_devices == 1:
        return ()
    if problem.stages_per_device > 1:
        return ("schedules of two directions (chimera, dualpipe) are not compared: they cut the model into other stages",)
    found = (_judged(problem, judge, name) for name in TWO_WAYS)
    return tuple(_told(judged, best) for judged in found if judged is not None and judged.fits)


def _judged(problem: Problem, judge: Judge, name: str) -> Judged | None:
    """Return a schedule with its figures; None where it refuses the shape, or the costs lack what it runs."""
    program = build_registered(problem, name, {}, stages_per_device=2)
    if program is None or not _runs_as_asked(program, problem.backward):
        return None
    try:
        return judge(program)
    except SchedirError:
        return None


def _runs_as_asked(program: Program, backward: Backward | None) -> bool:
    """Tell whether backwards are whole or split where that is asked for."""
    unasked = {Backward.WHOLE: Kind.WEIGHT_GRAD, Backward.SPLIT: Kind.BACKWARD}
    return backward not in unasked or unasked[backward] not in {*program.kind.tolist(), *program.pairs.kind.tolist()}


def _told(judged: Judged, best: float) -> str:
    compared = "shorter" if judged.value < best else "no shorter"
    return (
        f"{judged.program.name} takes {judged.value:.6g} s, {compared}: in two directions each stage stands on two devices, so "
        "it does not compete with orders that keep a stage on one"
    )

"""Let CP-SAT solve the constraint program, and read orders off what it found."""

from __future__ import annotations

from dataclasses import dataclass

from ortools.sat.python import cp_model

from schedir.ir.action import Kind
from schedir.search.found import SolverLimits
from schedir.search.problem.work import Order
from schedir.search.proofs.constraints import ConstraintModel

SEED = 1


@dataclass(frozen=True, slots=True)
class Solution:
    """What the solver found."""

    bound: float
    """The objective is not below, in seconds."""
    orders: list[Order]


def solve(model: ConstraintModel, limits: SolverLimits) -> Solution | None:
    """Return the best solution within the limits, None where there is none by then."""
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limits.seconds
    solver.parameters.num_workers = limits.workers
    solver.parameters.random_seed = SEED
    solver.parameters.cp_model_presolve = False  # it took ten times as long as solving on these programs
    if solver.solve(model.program) not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return None
    return Solution(model.ticks.seconds(round(solver.best_objective_bound)), _orders(model, solver))


def _orders(model: ConstraintModel, solver: cp_model.CpSolver) -> list[Order]:
    numbering = model.numbering
    ran: list[list[tuple[int, int, int, int]]] = [[] for _ in range(model.tables.num_devices)]
    for number, piece in model.pieces.items():
        if piece.present is None or solver.boolean_value(piece.present):
            kind, stage, j = numbering.work(number)
            start, place = solver.value(piece.start), _place_on_way(kind, stage, j, num_stages=numbering.num_stages)
            # by start, then by end: work without a length stands where it can
            ran[model.tables.homes[stage]].append((start, start + piece.busy, place, number))
    return [numbering.in_turn([numbering.work(row[3])[:2] for row in sorted(rows)]) for rows in ran]


def _place_on_way(kind: Kind, stage: int, j: int, *, num_stages: int) -> int:
    """Return what sorts work that takes no time, of which several pieces may run at one moment, so that none waits for ever.

    Earlier micro-batches first; of one micro-batch forwards up the stages, backwards down, and then W, for which nobody waits.
    """
    way = {Kind.FORWARD: stage, Kind.WEIGHT_GRAD: 2 * num_stages}.get(kind, 2 * num_stages - 1 - stage)
    return j * (2 * num_stages + 1) + way

"""CP-SAT (OR-Tools, extra `search`) on the problem: it proves that nothing is better, or a bound; the program is `constraints`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from schedir.search.constraints import ConstraintModel
from schedir.search.found import SolverLimits
from schedir.search.local_search import Candidate
from schedir.search.room import Room
from schedir.search.tables import Tables
from schedir.search.work import Order

SEED = 1


@dataclass(frozen=True, slots=True)
class Proof:
    """What the solver says."""

    bound: float
    """No order is below, in seconds."""
    orders: list[Order] | None
    """The best order it has, or None."""


def prove(tables: Tables, room: Room, offsets: Sequence[float], *, known: Candidate, bound: float, limits: SolverLimits) -> Proof:
    """Return what the solver proves of the objective, the largest (end of a device's last work + its offset).

    `known` is the best order so far and `bound` a bound that holds.
    """
    model = ConstraintModel(tables, room, offsets, known=known, bound=bound)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limits.seconds
    solver.parameters.num_workers = limits.workers
    solver.parameters.random_seed = SEED
    solver.parameters.cp_model_presolve = False  # it took ten times as long as solving on these programs
    status = solver.solve(model.program)
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return Proof(bound, None)
    return Proof(max(bound, model.ticks.seconds(round(solver.best_objective_bound))), model.orders(solver))

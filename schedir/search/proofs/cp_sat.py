"""CP-SAT on the problem: it proves that no order of a placement is better, or a bound; modules beside this talk to OR-Tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schedir.search.found import SolverLimits
from schedir.search.heuristics.local_search import Candidate
from schedir.search.problem.room import Room
from schedir.search.problem.tables import Tables
from schedir.search.problem.work import Order
from schedir.search.proofs.constraints import ConstraintModel
from schedir.search.proofs.solving import solve


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
    solution = solve(ConstraintModel(tables, room, offsets, known=known, bound=bound), limits)
    return Proof(bound, None) if solution is None else Proof(max(bound, solution.bound), solution.orders)

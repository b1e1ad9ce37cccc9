"""Search: the best order for given costs and limits that the registered schedules, a list scheduler and local search find.

Each placement is a branch with a bound of its own. A branch first enters the registered schedules and what the list scheduler
makes; local search goes on from the best of them until time or iterations are used up, or no order of these placements can be
better. One of two directions, in which every stage stands on two devices, still may be: those are not searched.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from schedir.errors import ArgumentError, RefusedError
from schedir.ir.shape import is_count
from schedir.search.branch import Branch
from schedir.search.found import AS_GOOD, SECONDS, Budget, Found, Progress, SolverLimits, Stop
from schedir.search.heuristics.local_search import Candidate
from schedir.search.judge import Judge, Judged
from schedir.search.problem.problem import Problem, StagePlacement
from schedir.search.two_ways import two_way_notes

TOLD = 64
"""Steps between two words to whoever watches."""

ROUNDS = 12
"""Rounds of local search where bytes are limited: after each the exact ledger says whether its best order fits."""

KNOWN = 0.4
"""Share of the time that known orders may take before local search begins."""

HALF = 0.5
"""Share of the time that goes before the solver is asked, if it is; and of what is left that new starts may take."""

LEAST_SECONDS = 0.1
"""What the solver gets even where the time is used up: it may be interrupted no sooner."""

Watch = Callable[[Progress], None]


def search_order(
    problem: Problem,
    *,
    seconds: float | None = None,
    iterations: int | None = None,
    seed: int = 0,
    prove: int = 0,
    watch: Watch = lambda _: None,
) -> Found:
    """Return the best order found within `seconds` or `iterations` of local search; 10 seconds if neither is given.

    `watch` is told how far the search is, several times a second. `prove` is the number of threads that CP-SAT runs in for what
    is left of the time, at least half of it (10 seconds where only iterations are given); 0: it is not asked. Raises
    ModuleNotFoundError where it is, but OR-Tools is not installed.
    """
    if not is_count(seed) and seed != 0:
        raise ArgumentError(f"seed {seed!r} must be an integer of at least 0")
    if not is_count(prove) and prove != 0:
        raise ArgumentError(f"prove {prove!r} must be a number of threads, 0 for none")
    if prove:
        # it needs an extra: say at once where that is missing
        import schedir.search.proofs.constraints  # noqa: F401, PLC0415
    budget = Budget(seconds, iterations)
    judge = Judge(problem)
    branches = _fitting(problem, judge)
    found = _Search(branches, budget, generator=random.Random(seed), watch=watch).run(prove)
    notes = (*found.notes, *_beside_the_chain(problem))
    return replace(found, notes=notes, two_ways=two_way_notes(problem, judge, found.best.value))


class _Search:
    """The state of one search."""

    def __init__(self, branches: list[Branch], budget: Budget, *, generator: random.Random, watch: Watch) -> None:
        self._branches, self._budget, self._generator, self._watch = branches, budget, generator, watch
        self._stop = Stop.TIME
        self._notes: list[str] = []

    def run(self, workers: int) -> Found:
        """Search until something ends it; with `workers`, let the solver have the second half of the time."""
        try:
            self._enter_known()
            for number, branch in enumerate(self._branches):
                self._climb(branch, (number + 1) / len(self._branches) * (HALF if workers else 1.0))
            if workers:
                self._prove(workers)
        except KeyboardInterrupt:
            self._stop = Stop.INTERRUPTED
        return self._found()

    def _enter_known(self) -> None:
        """Enter what needs no search, the registered schedules of all branches first."""
        for branch in self._branches:
            branch.enter_registered()
        for number, branch in enumerate(self._branches):
            if not branch.is_settled(self._best().value):
                share = KNOWN * (number + 1) / len(self._branches)
                branch.enter_listed(self._generator, partial(self._out_of_time, share))

    def _out_of_time(self, share: float, reserve: float = 0.0) -> bool:
        self._say("known orders")
        return self._budget.seconds_left(share) <= reserve

    def _climb(self, branch: Branch, share: float) -> None:
        """Run local search on a branch until its share of the budget is used up; tighten its room where bytes do not fit."""
        # the ledger counts buffers, too, which a room does not: what it finds beyond a limit is kept free in the next round
        limited = any(resource.counts_bytes for resource in branch.room)
        rounds = ROUNDS if limited else 1
        for behind in reversed(range(rounds)):
            if branch.is_settled(self._best().value) or self._budget.seconds_left(share) <= 0:
                return
            best = self._climb_once(branch, share, rounds=rounds, behind=behind)
            if best is None:
                return
            judged = branch.enter(best.orders)
            if not judged.fits:
                branch.tighten(judged.excess, self._generator, partial(self._out_of_time, share, self._part(share, HALF)))

    def _climb_once(self, branch: Branch, share: float, *, rounds: int, behind: int) -> Candidate | None:
        budget, best = self._budget, None
        first = budget.steps
        most = float("inf") if budget.iterations is None else budget.iterations / len(self._branches) / rounds
        # a round takes its part of what is left and leaves the rest to those behind it
        until = self._part(share, behind / (behind + 1))
        for best in branch.climb(self._generator, lambda: budget.seconds_left(share) <= 0):
            budget.steps += 1
            if budget.steps - first >= most or branch.is_settled(best.score.value):
                break
            if budget.steps % TOLD == 0:
                self._say("local search")
            # a step of many stages and micro-batches takes some 20 ms, a look at the clock a tenth of a microsecond
            if budget.seconds_left(share) <= until:
                break
        return best

    def _part(self, share: float, part: float) -> float:
        """Return a part of the seconds that are left of a share; 0 where time is not limited."""
        return 0.0 if self._budget.seconds is None else part * self._budget.seconds_left(share)

    def _prove(self, workers: int) -> None:
        """Ask the solver, the branch with the least bound first, until no branch can have anything better."""
        for left in range(len(self._branches), 0, -1):
            branch = self._bound()
            if branch.is_settled(self._best().value):
                return
            self._say("proof by CP-SAT")
            seconds = self._budget.seconds_left() / left if self._budget.seconds is not None else SECONDS
            if not branch.prove(SolverLimits(max(seconds, LEAST_SECONDS), workers)):
                self._notes.append("CP-SAT cannot be asked: there is too much work, or spans begin with work that takes no time")
                return

    def _best(self) -> Judged:
        return min((branch.best() for branch in self._branches), key=lambda judged: judged.merit)

    def _bound(self) -> Branch:
        """Return the branch whose bound holds for all."""
        return min(self._branches, key=lambda branch: branch.bound)

    def _say(self, doing: str) -> None:
        self._watch(Progress(doing, self._budget.steps, self._best().value, self._bound().bound))

    def _found(self) -> Found:
        bound = self._bound()
        best, placement = _least((branch.best(), branch.placement) for branch in self._branches)
        registered = [(judged, branch.placement) for branch in self._branches for judged in branch.registered]
        known = _least(registered) if registered else None
        if known is not None and known[0].value <= best.value * AS_GOOD:
            best, placement = known
        return Found(
            best=best,
            placement=placement,
            bound=bound.bound,
            bound_by=bound.bound_by,
            registered=None if known is None else known[0],
            has_registered=any(branch.has_registered for branch in self._branches),
            steps=self._budget.steps,
            stopped=self._stopped(best),
            notes=(*self._notes, *_notes(self._branches)),
        )

    def _stopped(self, best: Judged) -> Stop:
        if self._stop is Stop.INTERRUPTED:
            return self._stop
        if self._bound().is_settled(best.value):
            return Stop.OPTIMAL
        if self._budget.seconds_left() <= 0:
            return Stop.TIME
        most = self._budget.iterations
        return Stop.ITERATIONS if most is not None and self._budget.steps >= most - len(self._branches) else Stop.NO_START


def _least(placed: Iterable[tuple[Judged, StagePlacement]]) -> tuple[Judged, StagePlacement]:
    return min(placed, key=lambda pair: pair[0].merit)


def _fitting(problem: Problem, judge: Judge) -> list[Branch]:
    """Return the branches in which something fits; raise RefusedError where there is none."""
    branches = [Branch(problem, placement, judge) for placement in problem.placements()]
    refusals = []
    for branch in branches:
        try:
            branch.check_fit()
        except RefusedError as error:
            refusals.append((branch, error))
    if len(refusals) == len(branches):
        raise refusals[0][1]
    return [branch for branch in branches if branch not in [refused for refused, _ in refusals]]


def _beside_the_chain(problem: Problem) -> tuple[str, ...]:
    beside = (
        ("skip connections", problem.lowering.skips),
        ("ties", problem.lowering.ties),
        ("a common update", problem.lowering.common_update),
    )
    named = " and ".join(name for name, given in beside if given)
    if not named:
        return ()
    return (f"{named}: orders are sought along the chain of stages and judged with them; the bound is that of the chain alone",)


def _notes(branches: list[Branch]) -> tuple[str, ...]:
    if all(branch.tables.alike for branch in branches):
        return ()
    return ("micro-batches differ: the search and its bound are of orders in which every stage takes them in turn",)

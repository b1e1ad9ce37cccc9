"""One placement of a search: its tables, its bound, the orders known so far, and local search from them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Protocol

from schedir.errors import RefusedError
from schedir.ir.action import Kind
from schedir.ir.program import Program
from schedir.search.found import AS_GOOD, BoundBy, SolverLimits
from schedir.search.heuristics.greedy import list_order
from schedir.search.heuristics.local_search import Candidate, LocalSearch, Scorer
from schedir.search.heuristics.styles import ListStyle, shaken, styles
from schedir.search.judge import Judge, Judged
from schedir.search.problem.problem import Objective, Problem, StagePlacement
from schedir.search.problem.room import fits, room_of, tightened
from schedir.search.problem.tables import at_least, tables_of
from schedir.search.problem.work import Order, letters_of, program_of, sequential
from schedir.search.proofs.bound import first_starts, lower_bound, most_busy, starts_at_once
from schedir.search.registered import registered_programs

DRAWN = 24
"""Orders of the list scheduler with shaken priorities before local search begins."""

POOL = 6
"""Known orders that local search starts from, the best first, before it starts from new ones."""

MOST_WORK = 20_000
"""Pieces of work beyond which the solver is not asked: building its model would take the time."""

REDRAWN = 4
"""New orders of which the best is a start."""


class OutOfTime(Protocol):
    """Tells whether the time for known orders is used up."""

    def __call__(self) -> bool:
        """Return True where it is."""
        ...


class Branch:
    """Holds what is known of one placement. `judged` are programs with their figures, whether they fit or not."""

    def __init__(self, problem: Problem, placement: StagePlacement, judge: Judge) -> None:
        self.placement, self._problem, self._judge = placement, problem, judge
        self.tables = tables_of(problem, placement)
        split = Kind.WEIGHT_GRAD in self.tables.kinds
        self._least = sequential(self.tables.homes, problem.num_micro_batches, split=split)
        first = judge(self.program(self._least))
        self.judged = [first]
        # `room` may shrink by what the exact ledger finds; a proof must hold for the room that was given
        self._given_room = room_of(problem, self.tables, first.timeline.meta.get("limit_bytes"))
        self.room = self._given_room
        # a span is its end less its first start, of the device or of the run, and that start is the same in every order
        span = problem.objective is Objective.DEVICE_SPAN
        starts = first_starts(self.tables)
        self.offsets = [-start if span else -starts[self.tables.homes[0]] for start in starts]
        self.scorer = Scorer(self.tables, self.offsets)
        self._starts_are_known = not span or starts_at_once(self.tables)
        self._least_times = at_least(self.tables)
        # heads and tails bound an end, and a span only where its start is known; else the work itself has to do
        if self._starts_are_known:
            self.bound = lower_bound(self._least_times, self.room, self.offsets)
        else:
            self.bound = most_busy(self._least_times, self.room)
        self.bound_by = BoundBy.WORK
        self.has_registered = False
        self.registered: list[Judged] = []
        self.pool: list[Candidate] = []
        """Orders that fit, to start from."""
        self._drawn = 0

    def program(self, orders: list[Order]) -> Program:
        """Return the program of orders."""
        return program_of(orders, self.tables.numbering, name=self._problem.name)

    def check_fit(self) -> None:
        """Raise RefusedError if not even one micro-batch at a time fits."""
        first = self.judged[0]
        if first.fits:
            return
        if first.figures.fits is False:
            raise RefusedError(f"no order fits, not even one micro-batch at a time: {first.figures.verdict}")
        live, alive = self._problem.limits.live(self._problem.num_devices), self._problem.stages_per_device
        assert live is not None, "there is a limit"
        raise RefusedError(
            f"an order of {alive} stages per device holds at least {alive} activations on a device, but activation_limit is "
            f"{min(live)}: give at least {alive}"
        )

    def best(self) -> Judged:
        """Return the best program that fits."""
        return min((judged for judged in self.judged if judged.fits), key=lambda judged: judged.merit)

    def is_settled(self, value: float) -> bool:
        """Tell whether nothing here can be better than a value."""
        return value <= self.bound * AS_GOOD

    def enter_registered(self) -> None:
        """Judge all registered schedules, however long that takes, and keep their orders as starts."""
        for program in registered_programs(self._problem, self.placement, self.tables):
            self.has_registered = True
            # its own micro-batches need not be in turn, so it is judged as it is, and kept as a start in turn
            judged = self._judge(program)
            if judged.fits:
                self.judged.append(judged)
                self.registered.append(judged)
            self._keep(self.in_turn(program))

    def in_turn(self, program: Program) -> list[Order]:
        """Return a program's orders with every stage taking its micro-batches in turn."""
        numbering, kinds = self.tables.numbering, self.tables.kinds
        return [numbering.in_turn(letters_of(program, device, kinds)) for device in range(program.num_devices)]

    def enter_listed(self, generator: random.Random, out_of_time: OutOfTime) -> None:
        """Make orders with the list scheduler and judge the best one."""
        self._list_all(generator, out_of_time)
        if self.pool:
            self.enter(self.pool[0].orders)

    def _list_all(self, generator: random.Random, out_of_time: OutOfTime) -> None:
        """Make orders in every plain style and in some shaken ones; the best is first in the pool then."""
        self._keep(self._least)
        plain = styles(self.tables, generator)
        drawn = [shaken(generator.choice(plain), self.tables, self.room, generator=generator) for _ in range(DRAWN)]
        for style in [*plain, *drawn]:
            self._list(style, out_of_time)
            if out_of_time():
                break
        self.pool.sort(key=lambda candidate: candidate.score.guide)

    def enter(self, orders: list[Order]) -> Judged:
        """Judge orders and note them."""
        judged = self._judge(self.program(orders))
        self.judged.append(judged)
        if judged.fits:
            self._keep(orders)
        return judged

    def _list(self, style: ListStyle, out_of_time: OutOfTime) -> None:
        orders = list_order(self.tables, self.room, style, out_of_time=out_of_time)
        if orders is not None:
            self._keep(orders)

    def _keep(self, orders: list[Order]) -> None:
        """Keep orders as a start if they fit and run."""
        score = self.scorer.score(orders) if fits(self.room, orders) else None
        if score is not None:
            self.pool.append(Candidate(orders, score))

    def tighten(self, excess: tuple[int, ...], generator: random.Random, out_of_time: OutOfTime) -> None:
        """Leave room for what the exact ledger found beyond the limits, and make new starts where none is left."""
        self.room = tuple(tightened(resource, excess) if resource.counts_bytes else resource for resource in self.room)
        self.pool = [candidate for candidate in self.pool if fits(self.room, candidate.orders)]
        if not self.pool:
            self._list_all(generator, out_of_time)

    def prove(self, limits: SolverLimits) -> bool:
        """Let CP-SAT raise the bound, and enter its order; return False where it cannot: no start, too much work, or
        device spans that begin with work that takes no time, so that their begin is up to the order."""
        from schedir.search.proofs.cp_sat import prove  # noqa: PLC0415 - OR-Tools is an extra

        known = min(self.pool, key=lambda candidate: candidate.score.value, default=None)
        if known is None or sum(map(len, known.orders)) > MOST_WORK or not self._starts_are_known:
            return False
        proof = prove(self._least_times, self._given_room, self.offsets, known=known, bound=self.bound, limits=limits)
        if proof.bound > self.bound:
            self.bound, self.bound_by = proof.bound, BoundBy.CP_SAT
        # times alone order the solver's work: what takes none may stand before what it needs, and the order blocks
        if proof.orders is not None and self.scorer.score(proof.orders) is not None:
            self.enter(proof.orders)
        return True

    def climb(self, generator: random.Random, out_of_time: OutOfTime) -> Iterator[Candidate]:
        """Run local search from the pool, then from new orders; yield the best after every step, nothing without a start."""
        plain = styles(self.tables, generator)
        self.pool.sort(key=lambda candidate: candidate.score.guide)
        self._drawn = 0

        def start() -> Candidate:
            self._drawn += 1
            if self._drawn > min(POOL, len(self.pool)):
                for _ in range(REDRAWN):
                    self._list(shaken(generator.choice(plain), self.tables, self.room, generator=generator), out_of_time)
                # what was listed last stands last; the oldest and best stay, so that new orders do not pile up
                fresh = self.pool[-REDRAWN:]
                del self.pool[2 * POOL :]
                return min(fresh, key=lambda candidate: candidate.score.guide)
            return self.pool[self._drawn - 1]

        if self.pool:
            yield from LocalSearch(self.tables, self.room, self.scorer, generator=generator).run(start)

"""The problem as a constraint program for CP-SAT (OR-Tools, extra `search`).

    piece of work     an interval of its device's time: before + work + behind; where both are allowed, B or I and W, chosen
    device            its intervals do not overlap
    results           a piece's work begins when what it waits for has been made and has come over
    turns             a stage takes its micro-batches in turn
    room              what is alive, from the start of F to the end of B or W, is never more than a device may hold

Links carry any number of results at once here, and buffers take no memory: the program is a relaxation where costs have those,
so its bound holds, and its orders are judged like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from schedir.ir.action import Kind
from schedir.search.heuristics.local_search import Candidate
from schedir.search.heuristics.walk import Walk
from schedir.search.problem.room import Resource, Room
from schedir.search.problem.tables import Tables
from schedir.search.proofs.ticks import ticks_for


@dataclass(frozen=True, slots=True)
class TimedPiece:
    """One piece of work, in ticks: when it occupies its device, and whether it runs at all."""

    start: cp_model.IntVar
    before: int
    work: int
    behind: int
    present: cp_model.LiteralT | None = None
    """None: it always runs."""

    @property
    def busy(self) -> int:
        """How long it occupies its device."""
        return self.before + self.work + self.behind

    @property
    def end(self) -> cp_model.LinearExprT:
        """When its device is free again."""
        return self.start + self.busy


class ConstraintModel:
    """Builds the constraint program."""

    def __init__(self, tables: Tables, room: Room, offsets: Sequence[float], *, known: Candidate, bound: float) -> None:
        self.tables, self.numbering = tables, tables.numbering
        self._split, self._whole = Kind.WEIGHT_GRAD in tables.kinds, Kind.BACKWARD in tables.kinds
        # nothing that ends later can be better than what is known: the smaller the domains, the faster the proof
        latest = known.score.value - min(offsets)
        times = [*tables.before, *tables.work, *tables.behind, *tables.delay, *tables.occupies, *offsets]
        self.ticks = ticks_for(times, latest)
        self._latest = self.ticks.nearest(latest) + 1
        self.program = cp_model.CpModel()
        self._items = [(s, j) for s in range(self.numbering.num_stages) for j in range(self.numbering.num_micro_batches)]
        self.pieces: dict[int, TimedPiece] = {}
        """By number: whatever may run; of B and of I with W, where both are allowed, one is present in the end."""
        self._deaths: dict[int, list[tuple[cp_model.IntVar, cp_model.IntVar]]] = {}
        """By number of the work that ends a life: its length and its end."""
        self._is_whole = {item: self._choice() for item in self._items}
        for item in self._items:
            self._add_work(*item)
        self._wait_for_results()
        self._take_turns()
        self._keep_apart()
        for resource in room:
            self._keep_room(resource)
        self.objective = self.program.new_int_var(self.ticks.above(bound), self.ticks.nearest(known.score.value) + 1, "objective")
        self._minimize(offsets)
        self._hint(known)

    def _choice(self) -> cp_model.IntVar | None:
        return self.program.new_bool_var("whole") if self._split and self._whole else None

    def _add_work(self, stage: int, j: int) -> None:
        """Add the work of a stage on a micro-batch; B and I, of which one runs, begin with the same variable."""
        choice = self._is_whole[stage, j]
        self._add(Kind.FORWARD, stage, j)
        start = self.program.new_int_var(0, self._latest, "backward")
        if self._whole:
            self._add(Kind.BACKWARD, stage, j, start=start, present=choice)
        if self._split:
            split = None if choice is None else choice.negated()
            self._add(Kind.INPUT_GRAD, stage, j, start=start, present=split)
            self._add(Kind.WEIGHT_GRAD, stage, j, present=split)

    def _add(
        self, kind: Kind, stage: int, j: int, *, start: cp_model.IntVar | None = None, present: cp_model.LiteralT | None = None
    ) -> None:
        number, tables = self.numbering.of(kind, stage, j), self.tables
        before, work, behind = (self.ticks.of(column[number]) for column in (tables.before, tables.work, tables.behind))
        variable = self.program.new_int_var(0, self._latest, kind.letter) if start is None else start
        self.pieces[number] = TimedPiece(variable, before, work, behind, present)

    def _piece(self, kind: Kind, stage: int, j: int) -> TimedPiece:
        return self.pieces[self.numbering.of(kind, stage, j)]

    def _backward(self, stage: int, j: int) -> TimedPiece:
        return self._piece(Kind.INPUT_GRAD if self._split else Kind.BACKWARD, stage, j)

    def _made(self, kind: Kind, stage: int, j: int) -> cp_model.LinearExprT:
        """Return when the result of a piece may be used by its reader."""
        number = self.numbering.of(kind, stage, j)
        piece, tables = self.pieces[number], self.tables
        made = (
            piece.start + piece.before + piece.work + self.ticks.of(tables.occupies[number]) + self.ticks.of(tables.delay[number])
        )
        choice = self._is_whole[stage, j]
        if kind is Kind.FORWARD or choice is None:
            return made
        # B and I begin together; where B runs, its result comes later by what it works longer
        return made + (self._piece(Kind.BACKWARD, stage, j).work - piece.work) * choice

    def _wait_for_results(self) -> None:
        top = self.numbering.num_stages - 1
        for stage, j in self._items:
            forward, backward = self._piece(Kind.FORWARD, stage, j), self._backward(stage, j)
            kind = Kind.INPUT_GRAD if self._split else Kind.BACKWARD
            gradient = self._made(Kind.FORWARD, stage, j) if stage == top else self._made(kind, stage + 1, j)
            self.program.add(backward.start + backward.before >= gradient)
            if stage:
                self.program.add(forward.start + forward.before >= self._made(Kind.FORWARD, stage - 1, j))
            if self._split:
                late = self._piece(Kind.WEIGHT_GRAD, stage, j)
                self._enforce(self.program.add(late.start >= backward.end), late)

    def _take_turns(self) -> None:
        """Let stages take micro-batches in turn; W do not where some backwards have none."""
        for stage, j in self._items:
            if j:
                self.program.add(self._piece(Kind.FORWARD, stage, j).start >= self._piece(Kind.FORWARD, stage, j - 1).end)
                self.program.add(self._backward(stage, j).start >= self._backward(stage, j - 1).start)
                if self._split and not self._whole:
                    self.program.add(
                        self._piece(Kind.WEIGHT_GRAD, stage, j).start >= self._piece(Kind.WEIGHT_GRAD, stage, j - 1).end
                    )

    def _keep_apart(self) -> None:
        intervals: list[list[cp_model.IntervalVar]] = [[] for _ in range(self.tables.num_devices)]
        for number, piece in self.pieces.items():
            device = self.tables.homes[self.numbering.work(number)[1]]
            intervals[device].append(self._interval(piece))
        for of_device in intervals:
            self.program.add_no_overlap(of_device)

    def _interval(self, piece: TimedPiece) -> cp_model.IntervalVar:
        if piece.present is None:
            return self.program.new_fixed_size_interval_var(piece.start, piece.busy, "work")
        return self.program.new_optional_fixed_size_interval_var(piece.start, piece.busy, piece.present, "work")

    def _keep_room(self, resource: Resource) -> None:
        """Keep what is alive on each device within a resource."""
        for device, most in enumerate(resource.most):
            own = [(stage, j) for stage, j in self._items if self.tables.homes[stage] == device]
            lives = [life for stage, j in own for life in self._lives(resource, stage, j)]
            # what stages keep for good may alone be more than there is: then nothing fits, and a negative capacity is no model
            self.program.add_cumulative([life for life, _ in lives], [kept for _, kept in lives], max(0, most))

    def _lives(self, resource: Resource, stage: int, j: int) -> Iterator[tuple[cp_model.IntervalVar, int]]:
        """Yield how long, and how much, a micro-batch keeps on a stage: what stays to the end, and what I gives back."""
        half = self.numbering.of(Kind.INPUT_GRAD, stage, j) if self._split else None
        whole, late = resource.keeps(self.numbering.of(Kind.FORWARD, stage, j), half)
        yield self._life(stage, j, till=Kind.WEIGHT_GRAD), late
        if whole > late:
            yield self._life(stage, j, till=Kind.INPUT_GRAD), whole - late

    def _life(self, stage: int, j: int, *, till: Kind) -> cp_model.IntervalVar:
        """Return the time from the start of F to the end of B, or of one of its halves."""
        start, size, end = (
            self._piece(Kind.FORWARD, stage, j).start,
            self.program.new_int_var(0, self._latest, "life"),
            self.program.new_int_var(0, self._latest, "death"),
        )
        # of the two that could end it one runs: its end is the death
        for kind in (Kind.BACKWARD, till):
            if kind in self.tables.kinds:
                last = self._piece(kind, stage, j)
                self._enforce(self.program.add(end == last.end), last)
                self._deaths.setdefault(self.numbering.of(kind, stage, j), []).append((size, end))
        return self.program.new_interval_var(start, size, end, "alive")

    def _enforce(self, constraint: cp_model.Constraint, piece: TimedPiece) -> None:
        """Let a constraint hold only where a piece runs."""
        if piece.present is not None:
            constraint.only_enforce_if(piece.present)

    def _minimize(self, offsets: Sequence[float]) -> None:
        for number, piece in self.pieces.items():
            kind, stage, _ = self.numbering.work(number)
            if kind in {Kind.BACKWARD, Kind.WEIGHT_GRAD}:  # a device's last work is always one of these
                offset = self.ticks.of(offsets[self.tables.homes[stage]])
                self._enforce(self.program.add(self.objective >= piece.end + offset), piece)
        self.program.minimize(self.objective)

    def _hint(self, known: Candidate) -> None:
        """Tell the solver the best order so far."""
        walk = Walk(self.tables)
        walk.finish(known.orders)
        self.program.add_hint(self.objective, self.ticks.nearest(known.score.value))
        for number in (number for order in known.orders for number in order):
            kind, stage, j = self.numbering.work(number)
            choice = self._is_whole[stage, j]
            if choice is not None and kind in {Kind.BACKWARD, Kind.INPUT_GRAD}:
                self.program.add_hint(choice, kind is Kind.BACKWARD)
            # the walk's begin is that of the work proper; the interval begins with what comes before it
            begin = self.ticks.nearest(walk.begin[number] - self.tables.before[number])
            self.program.add_hint(self.pieces[number].start, begin)
            forward = self.numbering.of(Kind.FORWARD, stage, j)
            born = self.ticks.nearest(walk.begin[forward] - self.tables.before[forward])
            death = begin + self.pieces[number].busy
            for size, end in self._deaths.get(number, ()):
                self.program.add_hint(size, death - born)
                self.program.add_hint(end, death)

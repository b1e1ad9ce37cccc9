"""What every piece of work takes, as flat lists by its number: read off two compiled programs, so that no cost is left out.

On its device a piece of work occupies

    | before | work | behind |        before: R that needs no gradient; work: gap, R that does, the work itself; behind: gap and U

one after the other, with `before` as early as the device is free and `work` when what it waits for is there. What it makes
crosses a link (`occupies`, one thing at a time) and is seen `delay` later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from schedir.compiler import compile_program
from schedir.costs.model import UnitBytes
from schedir.costs.transfers import transfers
from schedir.errors import ArgumentError
from schedir.ir.action import Direction, Kind
from schedir.ir.arrays import Floats, Ints
from schedir.ir.graph import TaskGraph
from schedir.search.problem.problem import Backward, Problem, StagePlacement
from schedir.search.problem.work import KINDS, Numbering, base_program

NOTHING = -1


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Times in seconds. Results are numbered 0, 1, …: first outputs, then input gradients, by stage and micro-batch."""

    numbering: Numbering
    homes: tuple[int, ...]
    """Device of every stage."""
    kinds: frozenset[Kind]
    """What orders may consist of."""
    before: list[float]
    work: list[float]
    behind: list[float]
    delay: list[float]
    """From the time that a result has left, or is made for the same device, until its reader may start."""
    occupies: list[float]
    """How long a result is on its link, which carries one after the other."""
    link: list[int]
    """The link that it crosses."""
    need: list[int]
    """The result that a piece of work waits for, or NOTHING."""
    result: list[int]
    """The result that it makes, or NOTHING."""
    alike: bool
    """Micro-batches differ in nothing but their number."""
    gap: float
    """The dispatch gap, which stands at the start of every work and recomputation that takes time."""
    again: Ints
    """bool (stages, micro-batches): whether R runs before the backward."""
    units: UnitBytes | None
    """Bytes of memory, where the costs state them."""

    @property
    def num_devices(self) -> int:
        """Devices."""
        return max(self.homes) + 1

    def hosted(self, device: int) -> list[int]:
        """Return the stages of a device."""
        return [stage for stage, home in enumerate(self.homes) if home == device]

    def busy(self, number: int) -> float:
        """Return how long a piece of work keeps its device from anything else."""
        return self.before[number] + self.work[number] + self.behind[number]


def tables_of(problem: Problem, placement: StagePlacement) -> Tables:
    """Return the tables of a placement; raise ArgumentError where the costs do not fit."""
    homes = problem.homes(placement)
    reader = _Reader(problem, homes)
    kinds = _kinds(problem, reader)
    numbering = reader.numbering
    need, result = _results(numbering)
    return Tables(
        numbering=numbering,
        homes=homes,
        kinds=kinds,
        before=reader.before.ravel().tolist(),
        work=reader.work.ravel().tolist(),
        behind=reader.behind.ravel().tolist(),
        delay=reader.delay.ravel().tolist(),
        occupies=reader.occupies.ravel().tolist(),
        link=reader.link.ravel().tolist(),
        need=need.ravel().tolist(),
        result=result.ravel().tolist(),
        alike=reader.alike,
        gap=reader.gap,
        again=reader.again,
        units=reader.units,
    )


def at_least(tables: Tables) -> Tables:
    """Return tables that no order beats, where backwards may be whole or split.

    Costs may know a time for a mini-batch's first work of a kind. Which micro-batch's that is, is up to the order where some are
    split and others not; so all backwards of a stage count as the shortest.
    """
    if not {Kind.BACKWARD, Kind.WEIGHT_GRAD} <= tables.kinds:
        return tables
    work = np.array(tables.work).reshape(len(KINDS), tables.numbering.num_stages, -1)
    backwards = [Kind.BACKWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD]
    work[backwards] = work[backwards].min(axis=2, keepdims=True)
    return replace(tables, work=work.ravel().tolist())


def _kinds(problem: Problem, reader: _Reader) -> frozenset[Kind]:
    """Read what the problem asks for, or what its costs state, and return the kinds that are worth having."""
    whole, split = {Kind.FORWARD, Kind.BACKWARD}, {Kind.FORWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD}
    asked = problem.backward
    if asked is Backward.SPLIT:
        reader.read(split=True)
        return frozenset(split)
    reader.read(split=False)
    if asked is Backward.WHOLE:
        return frozenset(whole)
    try:
        reader.read(split=True)
    except ArgumentError:
        # the halves are not stated: an error only where they were asked for
        if asked is Backward.EITHER:
            raise
        return frozenset(whole)
    # 1e-9: halves that add up to the whole but for rounding are not dearer
    cheaper = (reader.total(Kind.BACKWARD) < (reader.total(Kind.INPUT_GRAD) + reader.total(Kind.WEIGHT_GRAD)) * (1 - 1e-9)).any()
    return frozenset(whole | split) if cheaper or asked is Backward.EITHER else frozenset(split)


class _Reader:
    """Fills matrices float64 (kinds, stages, micro-batches) from compiled programs."""

    def __init__(self, problem: Problem, homes: Sequence[int]) -> None:
        self._problem, self._homes = problem, homes
        self.numbering = Numbering(len(homes), problem.num_micro_batches)
        shape = (len(KINDS), len(homes), problem.num_micro_batches)
        self.before, self.work, self.behind, self.delay, self.occupies = (np.zeros(shape) for _ in range(5))
        self.link = np.zeros(shape, np.int64)
        self.again = np.zeros(shape[1:], bool)
        self.alike, self.gap = True, 0.0
        self.units: UnitBytes | None = None

    def read(self, *, split: bool) -> None:
        """Read the times of forwards and of whole or split backwards."""
        problem = self._problem
        # one valid order will do: what work takes does not depend on where it stands
        program = base_program(self._homes, problem.num_micro_batches, split=split)
        # without skips and ties: the tables know one reader of a result, so these count only when orders are judged
        graph = compile_program(program, recompute=problem.lowering.recompute, recompute_start=problem.lowering.recompute_start)
        times = problem.costs.times(graph) if problem.cluster is None else problem.cluster.times(graph, problem.costs)
        self.units = problem.costs.unit_bytes(graph)
        count = graph.num_compute_tasks
        seconds, self.gap = times.duration[:count] + times.gaps(count), times.gap
        self._read_compute(graph, seconds, Kind.INPUT_GRAD if split else Kind.BACKWARD)
        self._read_transfers(graph, times.duration, times.latency)
        self.alike = self.alike and self._is_alike(graph)

    def total(self, kind: Kind) -> Floats:
        """Return how long a kind keeps a device busy, float64 (stages, micro-batches)."""
        found: Floats = self.before[kind] + self.work[kind] + self.behind[kind]
        return found

    def _read_compute(self, graph: TaskGraph, seconds: Floats, gradient: Kind) -> None:
        kind, stage, micro_batch = (column[: len(seconds)] for column in (graph.kind, graph.stage, graph.micro_batch))
        ordered = np.isin(kind, KINDS)
        self.work[kind[ordered], stage[ordered], micro_batch[ordered]] = seconds[ordered]
        again = kind == Kind.RECOMPUTE
        self.before[gradient, stage[again], micro_batch[again]] = seconds[again]
        self.again[stage[again], micro_batch[again]] = True
        if self._problem.lowering.recompute_start == "on-gradient":  # R waits for the gradient, and B behind it for nothing else
            self.work[gradient] += self.before[gradient]
            self.before[gradient] = 0.0
        update = kind == Kind.UPDATE
        last = Kind.BACKWARD if gradient is Kind.BACKWARD else Kind.WEIGHT_GRAD
        self.behind[last, stage[update], -1] = seconds[update]

    def _read_transfers(self, graph: TaskGraph, duration: Floats, latency: Floats | None) -> None:
        chosen = np.arange(graph.num_tasks)[transfers(graph)]
        stage, micro_batch = graph.stage[chosen], graph.micro_batch[chosen]
        # links are numbered behind the compute lanes
        lane = np.searchsorted(graph.lane_start, chosen, side="right") - 1 - graph.program.num_devices
        backward = graph.direction[chosen] == Direction.BACKWARD
        for kinds, rows in (((Kind.FORWARD,), ~backward), ((Kind.BACKWARD, Kind.INPUT_GRAD), backward)):
            for kind in kinds:
                where = (kind, stage[rows], micro_batch[rows])
                self.occupies[where], self.link[where] = duration[chosen[rows]], lane[rows]
                self.delay[where] = 0.0 if latency is None else latency[chosen[rows]]

    def _is_alike(self, graph: TaskGraph) -> bool:
        """Tell whether micro-batches are interchangeable; the first may take longer, the last has U behind it."""
        samples = self._problem.costs.micro_batch_samples(graph)
        same = all((column[:, :, 1:] == column[:, :, 1:2]).all() for column in (self.before, self.work, self.occupies, self.delay))
        return same and (samples is None or len(set(samples)) <= 1) and "except-last" not in graph.options.recompute


def _results(numbering: Numbering) -> tuple[Ints, Ints]:
    """Return (need, result), each int64 (kinds, stages, micro-batches)."""
    stages, m = numbering.num_stages, numbering.num_micro_batches
    # results are numbered: first all outputs, then all input gradients, by stage and micro-batch
    output = np.arange(stages * m).reshape(stages, m)
    gradient = output + stages * m
    need = np.full((len(KINDS), stages, m), NOTHING)
    result = np.full_like(need, NOTHING)
    result[Kind.FORWARD] = output
    need[Kind.FORWARD, 1:] = output[:-1]
    for kind in (Kind.BACKWARD, Kind.INPUT_GRAD):
        result[kind] = gradient
        need[kind, :-1], need[kind, -1] = gradient[1:], output[-1]
    return need, result

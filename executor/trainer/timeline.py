"""The measured timeline of a training that has no end: its newest mini-batches, on a graph of as many.

under a flush    the step (or the repeat of a program of several) of median length among the newest of full size, no warm-up
without one      the newest steps at the end of a graph that begins before them, if there were more; without the drain before it
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from executor.plan.steps import Move, StepTable
from executor.run.clock import UNRECORDED, Times, in_seconds
from executor.run.machine import this_machine
from executor.trainer.engine import Engine
from schedir.errors import ArgumentError
from schedir.timeline.timeline import Source, Timeline


def timeline_of(engine: Engine, *, drained: bool, sizes: Mapping[int, int], meta: Mapping[str, Any]) -> Timeline:
    """Return the newest spans of a stretch, `drained` if it was; raise ArgumentError if there are none.

    `sizes` are the samples of the newest mini-batches by number. The meta says how many mini-batches were measured
    (`measured_mini_batches`), of how many samples (`mini_batch_size`), and how many of them had less
    (`smaller_mini_batches`): under a flush none has, since only the largest are looked at.
    """
    if not engine.num_recorded:
        raise ArgumentError("nothing was trained yet, so there is no timeline: call step() first")
    if engine.synchronous:
        return _median_pass(engine, sizes, meta)
    table, first, move = engine.endless.window(engine.num_recorded, engine.room.shown)
    count = table.graph.program.num_mini_batches
    about = _about(engine, range(first + move.steps, count + move.steps), sizes)
    last = count - (0 if drained else 1)
    return _measured(engine, table, range(first, last + 1), move=move, meta={**meta, **about})


def _median_pass(engine: Engine, sizes: Mapping[int, int], meta: Mapping[str, Any]) -> Timeline:
    """Return the pass of median length among the newest of full size; the very first one is left out where there are others."""
    table, size = engine.endless.table, engine.endless.period
    passes = engine.num_recorded // size
    if not passes:
        steps = range(engine.num_recorded)
        move = Move(0, engine.endless.block)
        return _measured(engine, table, steps, move=move, meta={**meta, **_about(engine, steps, sizes)})
    newest = range(max(0 if passes == 1 or engine.recorded_from else 1, passes - engine.room.passes), passes)
    abouts = {number: _about(engine, range(number * size, (number + 1) * size), sizes) for number in newest}
    # what is left at an epoch's end takes less time: it says nothing about the others
    fullest = max((about["mini_batch_size"], -about["smaller_mini_batches"]) for about in abouts.values())
    full = [n for n, about in abouts.items() if (about["mini_batch_size"], -about["smaller_mini_batches"]) == fullest]
    count = {"measured_mini_batches": len(full) * size}
    moves = {number: Move(number * size, engine.endless.block) for number in full}
    measured = [_measured(engine, table, range(size), move=moves[n], meta={**meta, **abouts[n], **count}) for n in full]
    # of an even number the shorter of the two in the middle: a pass that really ran, no mean of two
    return sorted(measured, key=lambda timeline: timeline.makespan_s)[(len(measured) - 1) // 2]


def _about(engine: Engine, steps: range, sizes: Mapping[int, int]) -> dict[str, int]:
    """Return how many mini-batches some steps of the stretch are, of how many samples, and how many of them have less."""
    samples = [sizes.get(engine.recorded_from + step, 0) for step in steps]
    largest = max(samples)
    return {
        "measured_mini_batches": len(samples),
        "mini_batch_size": largest,
        "smaller_mini_batches": sum(size < largest for size in samples),
    }


def _measured(engine: Engine, table: StepTable, steps: range, *, move: Move, meta: Mapping[str, Any]) -> Timeline:
    """Return the spans of some steps of a table that stands `move` further."""

    def read() -> tuple[Times, Times]:
        """Return the times of the steps, as far as this process knows them."""
        times = np.full((2, table.graph.num_tasks), UNRECORDED, np.int64)
        for task, step in enumerate(table.step):
            if step in steps:
                times[:, task] = engine.recorder.times_of(table.name(task, move))
        return times[0], times[1]

    [measured] = engine.team.merged("timeline", table.graph, [engine.team.taken(read)])
    start, end = in_seconds(measured.start, measured.end)
    first = engine.recorded_from + move.steps
    about = {"first_mini_batch": first, "warm_up": first + steps.start == 0, "machine": this_machine(), **measured.about, **meta}
    return Timeline(table.graph, start, end, Source.MEASURED, meta=about)

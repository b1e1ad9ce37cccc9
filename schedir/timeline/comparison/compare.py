"""Hold a prediction against measurements of the same graph, and say what is wrong with it: durations or structure.

    predicted / measured  =  (predicted / replay)  x  (replay / measured)
                              did the costs hold?      did the tasks follow each other as the graph says?

The replay runs the graph on the measured durations. Errors are predicted / measured - 1: positive where too long was predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from schedir.errors import ArgumentError
from schedir.expect import expect
from schedir.ir.arrays import Ints
from schedir.timeline.comparison.agreement import StartError, concurrency, order_agreement, path_overlap, peak_errors, start_error
from schedir.timeline.comparison.noise_floor import noise_floor
from schedir.timeline.comparison.ratios import Ratio, contention, errors_by_kind, ratios
from schedir.timeline.metrics.metrics import Metrics, metrics
from schedir.timeline.metrics.replay import makespan_of, times_of
from schedir.timeline.metrics.steady import step_seconds
from schedir.timeline.percent import percent, signed
from schedir.timeline.settled import SettledTimes, settle
from schedir.timeline.timeline import Timeline


class Verdict(StrEnum):
    """What explains the error of the step."""

    WITHIN_NOISE = "within-noise"
    """The measurement differs from itself by as much."""
    DURATIONS = "durations"
    """Tasks take longer or shorter than their costs say."""
    STRUCTURE = "structure"
    """Tasks do not follow each other as the graph says: launch gaps, waits that are not modelled."""


NEGLIGIBLE = 1e-12
"""A task that was predicted to take less than this part of what it took has no ratio that says anything."""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """A prediction against a measurement; of several measurements the one whose step is the lower median stands for all.

    Everything is read from that pair; only the noise floor is from all measurements.
    """

    predicted: Metrics
    measured: Metrics
    step_error_fraction: float
    """Seconds per mini-batch (steady where there is a steady state)."""
    bubble_error_points: float
    """Predicted less measured bubble_fraction, in points of a hundred."""
    duration_error_fraction: float
    """Predicted makespan / makespan of the replay - 1: what wrong costs do to the run."""
    duration_error_by_kind: Mapping[str, float]
    """By the kind's word: seconds of all its tasks."""
    structural_error_fraction: float
    """Makespan of the replay / measured makespan - 1."""
    start_error_fraction: StartError
    order_agreement: tuple[float, ...]
    """By device: share of pairs of tasks that start in the predicted order."""
    critical_path_overlap: float
    """Weighted Jaccard index, 1 for the same path."""
    peak_bytes_error_fraction: tuple[float | None, ...]
    """By device; empty where memory is not known on both sides."""
    noise_floor_fraction: float | None
    """Error of the measurement against itself; None for a single measured step."""
    verdict: Verdict
    contention: str | None
    """One line that names contention where the ratios show it."""
    ratios: tuple[Ratio, ...]
    """Measured / predicted durations by kind and stage."""
    measurements: int
    """Measured timelines used; warm-up left out."""
    timelines: tuple[Timeline, Timeline]
    """The prediction, and the measurement that stands for all."""

    def __repr__(self) -> str:
        mine, theirs = self.predicted, self.measured
        step = f"step predicted {mine.step_s:.6g} s, measured {theirs.step_s:.6g} s"
        causes = f"durations {signed(self.duration_error_fraction)}, structure {signed(self.structural_error_fraction)}"
        known = self.noise_floor_fraction
        floor = "not known" if known is None else percent(known)
        named = f": {self.contention}" if self.contention else ""
        lines = [
            f"<Comparison: {step}: {signed(self.step_error_fraction)}",
            f"{causes}, noise floor {floor} ({self.measurements} measured)",
            f"bubble of the whole run predicted {percent(mine.bubble_fraction)}, measured {percent(theirs.bubble_fraction)}",
            f"verdict: {self.verdict.value}{named}",
            "more: .predicted, .measured, .duration_error_by_kind, .ratios, .timelines>",
        ]
        return "\n  ".join(lines)


def compare(predicted: Timeline, measured: Timeline | Sequence[Timeline], *, chosen: Timeline | None = None) -> Comparison:
    """Compare a prediction with one or several measured timelines of the same program and compile options.

    Measurements that their maker marked as warm-up are left out where others are given. Of the others the one whose step is the
    lower median is compared, or `chosen`, so that every figure belongs to one run. Raises ArgumentError for timelines of
    different graphs and for a timeline without spans.
    """
    expect(predicted, Timeline, "predicted", remedy="give what simulate or load_timeline returns")
    expect(measured, (Timeline, Iterable), "measured", remedy="give a timeline, or a list of them")
    known = _measurements(predicted, [measured] if isinstance(measured, Timeline) else list(measured))
    steps = [step_seconds(timeline) for timeline in known]
    if chosen is None:
        chosen = known[sorted(range(len(known)), key=steps.__getitem__)[(len(known) - 1) // 2]]
    mine, theirs = settle(predicted), settle(chosen)
    figures, found = metrics(predicted), metrics(chosen)
    both = np.flatnonzero(predicted.recorded & chosen.recorded)
    compute = both[both < predicted.graph.num_compute_tasks]
    # the graph on the measured durations parts the two errors; see the drawing on top
    replay = makespan_of(theirs, times_of(theirs))
    rows, named = _durations(mine, theirs, both)
    duration, structural = relative_error(mine.makespan, replay), relative_error(replay, theirs.makespan)
    step, floor = relative_error(figures.step_s, found.step_s), noise_floor(known, steps)
    return Comparison(
        predicted=figures,
        measured=found,
        step_error_fraction=step,
        bubble_error_points=100.0 * (figures.bubble_fraction - found.bubble_fraction),
        duration_error_fraction=duration,
        duration_error_by_kind=errors_by_kind(rows),
        structural_error_fraction=structural,
        start_error_fraction=start_error(mine, theirs, compute),
        order_agreement=order_agreement(predicted, chosen, compute),
        critical_path_overlap=path_overlap(mine, theirs),
        peak_bytes_error_fraction=peak_errors(*([row.peak_bytes for row in side.devices] for side in (figures, found))),
        noise_floor_fraction=floor,
        verdict=_verdict(step, duration, structural=structural, floor=floor),
        contention=named,
        ratios=rows,
        measurements=len(known),
        timelines=(predicted, chosen),
    )


def _measurements(predicted: Timeline, given: list[Timeline]) -> list[Timeline]:
    """Return the measurements that count."""
    if not given:
        raise ArgumentError("compare got no measured timeline: give at least one")
    for timeline in given:
        expect(timeline, Timeline, "measured", remedy="give what train(…).timeline or load_timeline returns")
        _check_same_graph(predicted, timeline)
        settle(timeline)  # one without spans is refused
    return [timeline for timeline in given if not timeline.meta.get("warm_up")] or given


def _check_same_graph(predicted: Timeline, measured: Timeline) -> None:
    mine, theirs = predicted.graph, measured.graph
    # a graph that was read from a file is another object; program and options are all that it was compiled from
    if mine is theirs or (mine.program == theirs.program and mine.options == theirs.options):
        return
    difference = f"{mine.program!r} against {theirs.program!r}"
    if mine.program == theirs.program:
        difference = f"{mine.options} against {theirs.options}"
    raise ArgumentError(f"timelines of different graphs cannot be compared: {difference}: predict what was measured")


def _durations(mine: SettledTimes, theirs: SettledTimes, both: Ints) -> tuple[tuple[Ratio, ...], str | None]:
    """Return the table of ratios and, if it shows contention, the line that names it."""
    graph = mine.graph
    predicted, measured = ((side.end - side.start)[both] for side in (mine, theirs))
    # a duration against next to nothing is a ratio that says nothing, however large it is
    lasting = (both < graph.num_compute_tasks) & (predicted > NEGLIGIBLE * measured) & (measured > 0)
    kinds, factors = graph.kind[both[lasting]], measured[lasting] / predicted[lasting]
    named = contention(kinds, factors, concurrency(theirs, both[lasting]))
    return ratios(graph, both, predicted, measured=measured), named


def relative_error(predicted: float, measured: float) -> float:
    """Return predicted / measured - 1; infinite where something was predicted and nothing measured, 0 where neither was."""
    if measured > 0:
        return predicted / measured - 1.0
    return float("inf") if predicted > 0 else 0.0


def _verdict(step: float, duration: float, *, structural: float, floor: float | None) -> Verdict:
    # 1e-9: two predictions of one graph, or a measurement that hit, differ by rounding only
    if abs(step) <= max(floor or 0.0, 1e-9):
        return Verdict.WITHIN_NOISE
    return Verdict.STRUCTURE if abs(structural) > abs(duration) else Verdict.DURATIONS

"""The tables of docs/validation.md: what is stored comes back, and the figures are those of made-up measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.validation.causes import CAUSES, causes_of, shares
from benchmarks.validation.changed_training import Waiting
from benchmarks.validation.changes import CHANGED, LINKS, Change, Spread, load_changes, save_changes
from benchmarks.validation.configurations import Configuration, configurations
from benchmarks.validation.figures import Coverage, Summary, coverage, ranking, row_of
from benchmarks.validation.findings import conclusions, goals_on_gpus, goals_on_threads, groups
from benchmarks.validation.measure import without_repeats
from benchmarks.validation.pictures import draw
from benchmarks.validation.records import Expected, IntervalOf, Pair, Record, load, save
from benchmarks.validation.report import body
from schedir.compiler import compile_program
from schedir.costs.table.pieces import PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.uniform import UniformCosts
from schedir.costs.work import WorkTime
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes, evaluate
from schedir.timeline.metrics.steady import step_seconds
from schedir.timeline.timeline import Source, Timeline
from schedir.workflows.comparing.predicting import Interval
from simulator import simulate
from tests.near import near

INTERVALS = {IntervalOf.DRIFT: Interval(0.0, 1.0), IntervalOf.TASKS: Interval(0.0145, 0.0155)}
EXPECTED = Expected(intervals=INTERVALS, no_bubble_s=0.012, formula_s=0.015)


def record(schedule: str = "1f1b", *, factors: tuple[float, ...] = (1.0,), recompute: str = "never") -> Record:
    """Return runs that took so many times as long as was predicted."""
    configuration = Configuration("mlp", schedule, 4, recompute)
    graph = compile_program(configuration.program(4), recompute=recompute)
    predicted = simulate(graph, UniformCosts(forward=1e-3, backward=2e-3))
    pairs = [Pair(EXPECTED, predicted, stretched(predicted, factor)) for factor in factors]
    return Record(configuration, tuple(pairs))


def stretched(timeline: Timeline, factor: float) -> Timeline:
    return replace(timeline, start=timeline.start * factor, end=timeline.end * factor, release=None, source=Source.MEASURED)


def test_spans_and_predictions_come_back_to_the_microsecond(tmp_path: Path) -> None:
    written = record("gpipe", factors=(1.1, 1.3), recompute="always")
    save(written, tmp_path)
    (read,) = load(tmp_path)
    assert read.configuration == written.configuration
    assert read.graph.options == written.graph.options
    assert [pair.expected for pair in read.pairs] == [EXPECTED, EXPECTED]
    for one, other in zip(read.pairs, written.pairs, strict=True):
        np.testing.assert_allclose(one.measured.end, other.measured.end, atol=0.5e-6)
        np.testing.assert_allclose(one.predicted.start, other.predicted.start, atol=0.5e-6)


def test_a_step_is_judged_in_the_steady_state() -> None:
    """1F1B with a flush, p = 2, m = 4, F = 1 ms, B = 2 ms: a step takes (4 + 1) x 3 = 15 ms, of which 3 are idle."""
    row = row_of(record(factors=(1.25, 1.25, 1.25)))
    assert row.predicted_s == pytest.approx(0.015)
    assert row.measured_s == pytest.approx(0.01875)
    assert row.error == pytest.approx(-0.2)
    assert row.predicted_bubble == pytest.approx(0.2)
    assert row.bubble_error == pytest.approx(0.0)
    assert (row.noise, row.inside, row.rounds) == (near(0.0), 3, 3)
    assert row.no_bubble_error == pytest.approx(0.012 / 0.01875 - 1)
    assert row.formula_error == pytest.approx(0.015 / 0.01875 - 1)
    assert row.no_communication_error == near(row.error)  # nothing takes time between devices here


def test_without_communication_a_step_is_predicted_as_if_links_took_no_time() -> None:
    """1F1B, p = 2, m = 4, F = 1, B = 2: 15 ms a step without links, whatever 1 ms on each of them makes of it."""
    without, found = record(), record()
    predicted = simulate(found.graph, UniformCosts(forward=1e-3, backward=2e-3, transfer=1e-3))
    assert step_seconds(predicted) > 0.0155
    pair = replace(found.pairs[0], predicted=predicted, measured=stretched(without.pairs[0].predicted, 1.25))
    row = row_of(replace(found, pairs=(pair,)))
    assert row.no_communication_error == pytest.approx(0.015 / 0.01875 - 1)
    assert row.error > row.no_communication_error + 0.02


def test_without_communication_slower_links_change_nothing_and_slower_stages_the_same() -> None:
    assert CHANGE.without_communication == CHANGE.predicted
    assert replace(CHANGE, what=LINKS).without_communication == Spread(0.0, 0.0)


def test_a_run_outside_of_its_interval_does_not_count() -> None:
    inside = record(factors=(1.0, 1.0))
    narrow = replace(EXPECTED, intervals={IntervalOf.DRIFT: Interval(0.0, 0.0151)})
    pairs = (
        replace(inside.pairs[0], expected=narrow),
        Pair(narrow, inside.pairs[0].predicted, stretched(inside.pairs[1].measured, 2)),
    )
    assert row_of(replace(inside, pairs=pairs)).inside == 1


def test_the_order_of_schedules_and_what_a_wrong_choice_costs() -> None:
    """Predicted: 1f1b < gpipe that recomputes < twice as many stages; measured, gpipe comes before 1f1b."""
    rows = [
        row_of(record("1f1b", factors=(1.4,) * 3)),
        row_of(record("gpipe", factors=(1.0,) * 3, recompute="always")),
        row_of(record("interleaved-1f1b", factors=(1.0,) * 3)),
    ]
    predicted, measured = [row.predicted_s for row in rows], [row.measured_s for row in rows]
    assert predicted[0] < predicted[1] < predicted[2]
    assert measured[1] < measured[0] < measured[2]
    order = ranking(rows)
    assert (order.num_pairs, order.tau) == (3, near((2 - 1) / 3))
    assert order.regret == pytest.approx(measured[0] / measured[1] - 1)


def test_differences_within_the_noise_are_no_pairs() -> None:
    rows = [row_of(record("1f1b", factors=(0.9, 1.0, 1.2))), row_of(record("gpipe", factors=(0.95, 1.0, 1.1)))]
    assert ranking(rows).num_pairs == 0


def test_summaries_take_errors_of_any_sign() -> None:
    assert Summary.of([-0.04, 0.01, 0.01, 0.02]) == Summary(near(0.015), near(0.02), near(0.037), 0.04)


def test_there_are_at_least_24_configurations_of_three_models() -> None:
    found = list(configurations())
    assert len({one.name for one in found}) == len(found) >= 24
    assert len({one.model for one in found}) == 3
    assert {one.recompute for one in found} == {"never", "always"}


CHANGE = Change(
    "last stage x 1.5",
    CHANGED[0],
    Spread(0.3, 0.01),
    Spread(0.31, 0.02),
    on_measured_speeds=Spread(0.305, 0.015),
    speeds=(0.97, 1.02),
)


def test_changes_come_back(tmp_path: Path) -> None:
    save_changes([CHANGE], tmp_path / "changes.json")
    assert load_changes(tmp_path / "changes.json") == [CHANGE]


def test_the_section_shows_every_configuration_change_and_interval() -> None:
    text = body([row_of(record(factors=(1.25, 1.0)))], [CHANGE], rounds=2, mini_batches=4)
    assert "| mlp 1f1b | 4 | never | 15.0 | 16.9 | -11.1% |" in text
    assert "| inside | no bubble | no communication | formula |" in text
    assert "| 2/2 | -28.9% | -11.1% | -11.1% |" in text
    assert "| baseline: no communication | 11.1% |" in text
    assert (
        "| last stage x 1.5 | mlp 1f1b m=4 | +30.0% ± 1.0% | +31.0% ± 2.0% | +30.5% ± 1.5% | +30.0% ± 1.0% | x 0.97 | x 1.02 |"
        in text
    )
    assert "| repeats of the profile, and drift | 2 | 2 | 100% | 100.0% |" in text
    assert "| every task for itself | 1 | 2 | 50% | 3.3% |" in text


def test_intervals_that_were_not_kept_of_all_rounds_are_not_judged() -> None:
    rows = [row_of(record(factors=(1.0, 1.25)))]
    assert coverage(rows, IntervalOf.TASKS) == Coverage(1, 2, near(1 / 30))
    assert coverage(rows, IntervalOf.REPEATS) is None


def changed(found: Record, factor: Callable[[TaskGraph], NDArray[np.float64]], *, gap: float = 0.0) -> Record:
    """Return a record whose run took the predicted durations times a factor by compute task, with a gap before each."""
    graph, count = found.graph, found.graph.num_compute_tasks
    duration = found.pairs[0].predicted.end - found.pairs[0].predicted.start
    duration[:count] *= factor(graph)
    spans = evaluate(graph, TaskTimes(duration, None, gap))
    measured = Timeline(graph, spans.start, spans.end, Source.MEASURED)
    return replace(found, pairs=(replace(found.pairs[0], measured=measured),))


def cause(found: Record, name: str) -> float:
    """Return one factor of predicted / measured of the only round."""
    (one,) = causes_of(found)
    assert float(one.parts.sum()) == pytest.approx(one.total)
    return float(np.exp(one.parts[CAUSES.index(name)]))


def test_a_machine_that_is_slow_throughout_is_a_matter_of_speed() -> None:
    found = changed(record(), lambda graph: np.full(graph.num_compute_tasks, 1.25))
    assert [cause(found, name) for name in CAUSES] == pytest.approx([1 / 1.25, 1, 1, 1, 1])


def test_slower_backwards_are_a_matter_of_kinds() -> None:
    """F = 1, B = 2 and then 4: the same total, (1 + 4) / (1 + 2) times as long, leaves kinds nothing to explain but their mix."""
    found = changed(record(), lambda graph: np.where(graph.kind[: graph.num_compute_tasks] == Kind.BACKWARD, 2.0, 1.0))
    assert cause(found, "machine's speed") == pytest.approx(3 / 5)
    assert cause(found, "kinds of work") == pytest.approx(1.0)  # (m + p - 1)(F + B), whatever the mix
    skewed = changed(record(), lambda graph: np.where(graph.stage[: graph.num_compute_tasks] == 1, 2.0, 1.0))
    assert cause(skewed, "machine's speed") == pytest.approx(1 / 1.5)
    assert cause(skewed, "kinds of work") == pytest.approx(1.5 * 15 / (4 * 6 + 3))  # m slow (F + B) and one of the fast stage


def test_slow_firsts_are_no_matter_of_kinds() -> None:
    def slow_firsts(graph: TaskGraph) -> NDArray[np.float64]:
        own = (graph.micro_batch % 4 == 0) & (graph.kind == Kind.FORWARD)
        return np.where(own[: graph.num_compute_tasks], 2.0, 1.0)

    assert cause(changed(record(), slow_firsts), "first micro-batches") < 0.99
    assert cause(changed(record(), slow_firsts), "scatter of tasks") == pytest.approx(1.0)


def test_gaps_that_were_not_predicted_are_structure() -> None:
    found = changed(record(), lambda graph: np.ones(graph.num_compute_tasks), gap=1e-3)
    assert [cause(found, name) for name in CAUSES[:-1]] == pytest.approx([1, 1, 1, 1])
    assert cause(found, "structure") == pytest.approx(15 / 25)  # ten tasks on the longest path, a gap of 1 ms before each
    predicted, measured = causes_of(found)[0].gaps_s
    assert predicted == 0.0
    assert 0.8e-3 < measured <= 1e-3  # updates take no time here, and none stands before them


def test_shares_of_the_variance_add_up() -> None:
    found = [*causes_of(record(factors=(1.0, 1.1, 1.3))), *causes_of(record("gpipe", factors=(0.9,)))]
    assert shares(found).tolist() == pytest.approx([1, 0, 0, 0, 0], abs=1e-9)


def test_errors_of_a_whole_group_are_named() -> None:
    rows = [
        row_of(record(name, factors=(factor,) * 2))
        for name, factor in (("1f1b", 1.10), ("gpipe", 1.11), ("interleaved-1f1b", 1.12))
    ]
    assert {one.name for one in groups(rows) if one.systematic} == {"mlp", "recompute never"}
    text = conclusions(rows, [one for row in rows for one in causes_of(row.record)])
    assert "Wrong by more than 2 standard errors, of 2 models, schedules and ways to recompute: mlp -9.9% ± 0.5%" in text
    assert "p95 at most 8%: missed" in goals_on_threads(rows)
    assert goals_on_gpus(rows) == "Goals: mean at most 2%: missed, 9.9%; most at most 5%: missed, 10.7%."
    balanced = [
        row_of(record(name, factors=(factor,) * 2)) for name, factor in (("1f1b", 1.02), ("gpipe", 0.98), ("interleaved-1f1b", 1.0))
    ]
    text = conclusions(balanced, [one for row in balanced for one in causes_of(row.record)])
    assert "None of 2 models, schedules and ways to recompute is wrong by more than 2 standard errors" in text
    assert "p95 at most 8%: met" in goals_on_threads(balanced)


def test_spreads_are_the_median_and_its_standard_error() -> None:
    """Standard deviation 0.1 of four values: sqrt(pi / 2) x 0.1 / 2."""
    values = [0.0, 0.1, 0.1, 0.2]
    assert Spread.of(values) == Spread(near(0.1), near(np.sqrt(np.pi / 2) * np.std(values, ddof=1) / 2))


def test_profiles_forget_what_was_measured_together() -> None:
    time = WorkTime(1.0, samples=(1.0, 2.0), repeats=(0, 1))
    (row,) = without_repeats(TableCosts(rows=(PieceCosts(forward=time, backward=2.0),))).rows
    assert row.forward == WorkTime(1.0, samples=(1.0, 2.0))


def test_waiting_changes_no_value_and_no_gradient() -> None:
    waiting = Waiting()
    waiting.begin((1e-4, 2e-4))
    tensor = torch.arange(3.0, requires_grad=True)
    later = waiting(tensor)
    later.backward(torch.ones(3))
    assert later.tolist() == [0.0, 1.0, 2.0]
    assert tensor.grad is not None
    assert tensor.grad.tolist() == [1.0, 1.0, 1.0]
    assert waiting.waited_s >= 2e-4
    waiting.begin((0.0, 0.0))
    waiting(tensor)
    assert waiting.waited_s == 0.0


def test_the_picture_is_drawn_of_what_is_stored(tmp_path: Path) -> None:
    draw([row_of(record(factors=(1.25, 1.0)))], tmp_path / "validation.svg")
    assert "</svg>" in (tmp_path / "validation.svg").read_text(encoding="utf-8")

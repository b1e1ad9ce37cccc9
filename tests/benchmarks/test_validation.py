"""The tables of docs/validation.md: what is stored comes back, and the figures are those of made-up measurements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.validation.changes import CHANGED, Change, load_changes, save_changes
from benchmarks.validation.configurations import Configuration, configurations
from benchmarks.validation.figures import Summary, ranking, row_of
from benchmarks.validation.records import Expected, Pair, Record, load, save
from benchmarks.validation.report import body
from schedir.compiler import compile_program
from schedir.costs.uniform import UniformCosts
from schedir.timeline.timeline import Source, Timeline
from simulator import simulate

EXPECTED = Expected(low_s=0.0, high_s=1.0, low_bubble=0.0, high_bubble=1.0, no_bubble_s=0.012, formula_s=0.015)


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
    assert (row.noise, row.inside, row.rounds) == (pytest.approx(0.0), 3, 3)
    assert row.no_bubble_error == pytest.approx(0.012 / 0.01875 - 1)
    assert row.formula_error == pytest.approx(0.015 / 0.01875 - 1)


def test_a_run_outside_of_its_interval_does_not_count() -> None:
    inside = record(factors=(1.0, 1.0))
    narrow = replace(EXPECTED, high_s=0.0151)
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
    assert (order.num_pairs, order.tau) == (3, pytest.approx((2 - 1) / 3))
    assert order.regret == pytest.approx(measured[0] / measured[1] - 1)


def test_differences_within_the_noise_are_no_pairs() -> None:
    rows = [row_of(record("1f1b", factors=(0.9, 1.0, 1.2))), row_of(record("gpipe", factors=(0.95, 1.0, 1.1)))]
    assert ranking(rows).num_pairs == 0


def test_summaries_take_errors_of_any_sign() -> None:
    assert Summary.of([-0.04, 0.01, 0.01, 0.02]) == Summary(pytest.approx(0.015), pytest.approx(0.02), pytest.approx(0.037), 0.04)


def test_there_are_at_least_24_configurations_of_three_models() -> None:
    found = list(configurations())
    assert len({one.name for one in found}) == len(found) >= 24
    assert len({one.model for one in found}) == 3
    assert {one.recompute for one in found} == {"never", "always"}


def test_changes_come_back(tmp_path: Path) -> None:
    found = [Change("last stage x 1.5", CHANGED[0], 0.3, 0.31)]
    save_changes(found, tmp_path / "changes.json")
    assert load_changes(tmp_path / "changes.json") == found


def test_the_section_shows_every_configuration_and_change() -> None:
    text = body(
        [row_of(record(factors=(1.25,) * 2))], [Change("last stage x 1.5", CHANGED[0], 0.3, 0.31)], rounds=2, mini_batches=4
    )
    assert "| mlp 1f1b | 4 | never | 15.0 | 18.8 | -20.0% |" in text
    assert "| last stage x 1.5 | mlp 1f1b m=4 | +30.0% | +31.0% |" in text

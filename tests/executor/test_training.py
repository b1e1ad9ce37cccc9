"""Synchronous schedules train exactly as the unpartitioned model does."""

import json

import pytest
from torch import nn

from executor.training import train
from schedir.errors import RefusedError
from schedir.timeline.comparison.compare import compare
from schedir.timeline.metrics.metrics import metrics
from tests.executor.small.models import batches, compiled, mlp, pipeline_of, reference

EXACT = 1e-10
SCHEDULES = ("gpipe", "1f1b")
RECOMPUTE = ("never", "always", "except-last")


def assert_trains_like_the_whole_model(*, schedule: str, num_stages: int, num_micro_batches: int, recompute: str) -> None:
    data = batches(5, samples=8)
    whole = mlp(num_stages)
    losses, gradients = reference(whole, data)
    run = train(compiled(schedule, num_stages, num_micro_batches, recompute=recompute), pipeline_of(mlp(num_stages)), data)

    assert run.losses == pytest.approx(losses, abs=EXACT)
    assert run.gradients.keys() == gradients.keys()
    assert max(float((run.gradients[key] - gradients[key]).abs().max()) for key in gradients) < EXACT
    weights = nn.Sequential(*whole).state_dict()
    assert max(float((run.state_dict()[key] - weights[key]).abs().max()) for key in weights) < EXACT


@pytest.mark.parametrize("recompute", RECOMPUTE)
@pytest.mark.parametrize(("num_stages", "num_micro_batches"), [(1, 1), (1, 3), (2, 4), (3, 2), (4, 1), (4, 8)])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_gradients_and_losses_are_those_of_the_unpartitioned_model(
    *, schedule: str, num_stages: int, num_micro_batches: int, recompute: str
) -> None:
    assert_trains_like_the_whole_model(
        schedule=schedule, num_stages=num_stages, num_micro_batches=num_micro_batches, recompute=recompute
    )


@pytest.mark.slow
@pytest.mark.parametrize("recompute", RECOMPUTE)
@pytest.mark.parametrize("num_micro_batches", range(1, 9))
@pytest.mark.parametrize("num_stages", range(1, 5))
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_gradients_and_losses_are_those_of_the_unpartitioned_model_on_the_full_grid(
    *, schedule: str, num_stages: int, num_micro_batches: int, recompute: str
) -> None:
    assert_trains_like_the_whole_model(
        schedule=schedule, num_stages=num_stages, num_micro_batches=num_micro_batches, recompute=recompute
    )


def test_the_timeline_is_the_pass_of_median_length_behind_the_warm_up() -> None:
    run = train(compiled("1f1b", 2, 2), pipeline_of(mlp(2)), batches(6), timeout=60)
    lengths = sorted(timeline.makespan_s for timeline in run.timelines[1:])

    assert len(run.timelines) == 6
    assert run.timeline.makespan_s == lengths[2]
    assert [timeline.meta["warm_up"] for timeline in run.timelines] == [True] + [False] * 5
    assert all(timeline.recorded.all() for timeline in run.timelines)


def test_figures_and_comparisons_take_a_measured_timeline() -> None:
    graph = compiled("xpipe", 2, 2, num_mini_batches=6)
    run = train(graph, pipeline_of(mlp(2)), batches(6), timeout=60)

    assert metrics(run.timeline).makespan_s == pytest.approx(run.timeline.makespan_s)
    assert json.loads(json.dumps(dict(run.timeline.meta)))["workers"] == "threads"
    assert abs(compare(run.timeline, run.timeline).step_error_fraction) < 1e-12


@pytest.mark.parametrize("option", [{"clip": 1.0}, {"loss_scaling": "dynamic"}])
def test_what_only_a_trainer_has_is_refused_with_the_way_to_it(option: dict[str, object]) -> None:
    (name,) = option
    with pytest.raises(
        RefusedError, match=rf"{name} .*: train has none: give it to executor\.Trainer\(stages, schedule=…, {name}=…\)"
    ):
        train(compiled("1f1b", 2, 2), pipeline_of(mlp(2)), batches(1), **option)  # type: ignore[arg-type]  # one of two

"""Synchronous schedules train exactly as the unpartitioned model does."""

import pytest
from torch import nn

from executor.training import train
from tests.executor.models import batches, compiled, mlp, pipeline_of, reference

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

"""What a stage or a loss writes into what it was given stays out of what is computed again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from executor.training import train
from tests.executor.small.models import batches, compiled, pipeline_of, sgd


class ThroughData(nn.Module):
    """Doubles its input where it lies, which no counter of changes sees."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4, dtype=torch.float64)

    def forward(self, tensor: Tensor) -> Tensor:
        tensor.data.mul_(2)
        result: Tensor = self.linear(tensor)
        return result


def halving_loss(output: Tensor, target: Tensor) -> Tensor:
    return nn.functional.mse_loss(output, target.mul_(0.5))


def plain_losses(stages: list[nn.Module], loss: object) -> list[float]:
    """Train the whole model on whole mini-batches, each with a target of its own."""
    model, losses = nn.Sequential(*stages), []
    optimizer = sgd(list(model.parameters()))
    for inputs, target in batches(4):
        optimizer.zero_grad()
        value = loss(model(inputs.clone()), target.clone())  # type: ignore[operator]  # a function
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def linear(count: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Linear(4, 4, dtype=torch.float64) for _ in range(count)]


def through_data(count: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return [ThroughData() for _ in range(count)]


@pytest.mark.parametrize("recompute", ["never", "except-last", "always"])
@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-h1"])
def test_a_loss_that_changes_its_target_is_computed_again_on_what_it_was(name: str, recompute: str) -> None:
    pipeline = pipeline_of(linear(2))
    pipeline.loss = halving_loss
    run = train(compiled(name, 2, 4, recompute=recompute), pipeline, batches(4))
    assert run.losses == pytest.approx(plain_losses(linear(2), halving_loss), rel=1e-10)


@pytest.mark.parametrize("recompute", ["never", "except-last", "always"])
def test_a_stage_that_writes_through_data_is_computed_again_on_what_it_was(recompute: str) -> None:
    run = train(compiled("1f1b", 2, 4, recompute=recompute), pipeline_of(through_data(2)), batches(4))
    assert run.losses == pytest.approx(plain_losses(through_data(2), nn.functional.mse_loss), rel=1e-10)

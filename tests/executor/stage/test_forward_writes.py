"""Forwards that write to parameters in place train as torch alone does, or are refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from executor.trainer.trainer import Trainer
from schedir.errors import RefusedError
from tests.executor.small.models import WIDTH, sgd

WORDS, LENGTH = 12, 3


def renormalizing() -> list[nn.Module]:
    """Return stages of which the first has longer rows than its max_norm, so that forwards shorten those that they see."""
    torch.manual_seed(0)
    embedding = nn.Embedding(WORDS, WIDTH, max_norm=1.0)
    with torch.no_grad():
        embedding.weight.mul_(2)
    first = nn.Sequential(embedding, nn.Flatten(), nn.Linear(LENGTH * WIDTH, WIDTH))
    return [first.double(), nn.Linear(WIDTH, WIDTH).double()]


class Fading(nn.Linear):
    """Every forward writes to one of its parameters, which a second one would do again."""

    def __init__(self, *, frozen: bool = False) -> None:
        super().__init__(WIDTH, WIDTH, dtype=torch.float64)
        self.scale = nn.Parameter(torch.ones(WIDTH, dtype=torch.float64), requires_grad=not frozen)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.scale.mul_(0.9)
        return super().forward(x) * self.scale.clone()


def fading(*, frozen: bool = False) -> list[nn.Module]:
    first, *rest = renormalizing()
    first[0].max_norm = None  # type: ignore[index]  # an nn.Sequential
    return [nn.Sequential(first, Fading(frozen=frozen)), *rest]


def data() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    words = [torch.randint(WORDS, (8, LENGTH), generator=generator) for _ in range(6)]
    return [(each, torch.randn(8, WIDTH, generator=generator, dtype=torch.float64)) for each in words]


def plain(stages: list[nn.Module], num_micro_batches: int) -> list[float]:
    model, losses = nn.Sequential(*stages), []
    steps = sgd(list(model.parameters()))
    for inputs, target in data():
        steps.zero_grad()
        parts = zip(inputs.chunk(num_micro_batches), target.chunk(num_micro_batches), strict=True)
        found = [nn.functional.mse_loss(model(x), y) / num_micro_batches for x, y in parts]
        for loss in found:
            loss.backward()
        steps.step()
        losses.append(sum(loss.item() for loss in found))
    return losses


def pipelined(stages: list[nn.Module], schedule: str, num_micro_batches: int, **options: Any) -> list[float]:
    given: dict[str, Any] = {"loss": nn.functional.mse_loss, "optimizer": sgd, "timeout": 100.0}
    with Trainer(stages, schedule=schedule, num_micro_batches=num_micro_batches, **(given | options)) as made:
        steps = [made.step(*mini_batch) for mini_batch in data()]
        made.drain()
        return [step.loss for step in steps]


@pytest.mark.parametrize("recompute", ["never", "always"])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_one_copy_under_a_flush_is_written_to_as_torch_alone_does(schedule: str, recompute: str) -> None:
    found = pipelined(renormalizing(), schedule, 4, recompute=recompute)
    assert found == pytest.approx(plain(renormalizing(), 4), rel=1e-12)


@pytest.mark.parametrize(
    ("schedule", "options", "why"),
    [
        ("chimera", {}, "and each of its 2 replicas would see its own writes only: write between two steps, or use a schedule"),
        ("dualpipe", {}, "and each of its 2 replicas would see"),
        ("pipedream", {"replicas": [2, 1]}, "and each of its 2 replicas would see"),
        ("pipedream", {}, "which may be an old version or a prediction here, let go of next: write between two steps, or use a"),
        ("xpipe", {}, "which may be an old version or a prediction here"),
        ("xpipe", {"recompute": "always"}, "which may be an old version or a prediction here"),
    ],
)
def test_replicas_and_versions_are_not_written_to(schedule: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(RefusedError, match=rf"^the forward of stage 0 writes to a parameter of shape \[12, 4\] in place, {why}"):
        pipelined(renormalizing(), schedule, 4, **options)


def test_weights_that_another_stage_holds_too_are_not_written_to() -> None:
    stages = renormalizing()
    head = nn.Linear(WIDTH, WORDS, bias=False, dtype=torch.float64)
    head.weight = stages[0][0].weight  # type: ignore[index]  # an nn.Sequential
    stages[1] = nn.Sequential(head, nn.Linear(WORDS, WIDTH, dtype=torch.float64))
    with pytest.raises(RefusedError, match="which other stages hold, too, and would not see: write between two steps"):
        pipelined(stages, "1f1b", 2)


def test_a_write_that_recomputation_would_make_twice_is_refused() -> None:
    assert pipelined(fading(), "gpipe", 1) == pytest.approx(plain(fading(), 1), rel=1e-12)
    with pytest.raises(RefusedError, match=r'and again, to other values, where it is recomputed: compile with recompute="never"'):
        pipelined(fading(), "gpipe", 1, recompute="always")


def frozen_fading() -> list[nn.Module]:
    return fading(frozen=True)


@pytest.mark.parametrize("make", [renormalizing, frozen_fading])
def test_no_replica_is_written_to_be_it_frozen_or_not(make: Callable[[], list[nn.Module]]) -> None:
    with pytest.raises(RefusedError, match=r"^the forward of stage 0 writes to a parameter .* and each of its 2 replicas"):
        pipelined(make(), "chimera", 4)


def test_a_frozen_parameter_of_one_copy_is_written_to_without_a_flush() -> None:
    """It has no versions, as a buffer has none: on one device without a flush all is as torch alone does it."""
    stages = nn.Sequential(*frozen_fading())
    found = pipelined([stages], "pipedream", 1)
    assert found == pytest.approx(plain([nn.Sequential(*frozen_fading())], 1), rel=1e-12)

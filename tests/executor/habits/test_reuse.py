"""A pipeline that is trained again, optimizers that change gradients, and micro-batches that differ from the first."""

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from executor.training import train
from schedir.errors import ArgumentError
from tests.executor.small.models import batches, compiled, mlp, pipeline_of


def adam(parameters: list[nn.Parameter]) -> Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def test_replicas_continue_with_the_optimizer_and_scheduler_of_a_run_without_replicas() -> None:
    pipeline = pipeline_of(mlp(2), optimizer=adam, scheduler=lambda steps: torch.optim.lr_scheduler.StepLR(steps, 3, 0.5))
    for _ in range(2):
        train(compiled("pipedream", 2, 1, num_mini_batches=8), pipeline, batches(8))
        train(compiled("pipedream", 3, 1, num_mini_batches=8, replicas=(2, 1)), pipeline, batches(8))

        first, second = (pipeline._copies[0, replica] for replica in range(2))
        assert all(torch.equal(*pair) for pair in zip(first.parameters, second.parameters, strict=True))
        assert first.optimizer is not None
        assert second.optimizer is not None
        pairs = zip(first.optimizer.state.values(), second.optimizer.state.values(), strict=True)
        assert all(torch.equal(ours[key], theirs[key]) for ours, theirs in pairs for key in ("step", "exp_avg", "exp_avg_sq"))
        assert first.optimizer.param_groups[0]["lr"] == second.optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize(
    ("schedule", "devices", "options"),
    [
        ("gpipe", 2, {}),
        ("xpipe", 2, {"num_mini_batches": 6}),
        ("pipedream", 3, {"num_mini_batches": 6, "replicas": (2, 1)}),
    ],
)
def test_nesterov_over_all_tensors_at_once_trains_as_tensor_by_tensor(
    schedule: str, devices: int, options: dict[str, object]
) -> None:
    def trained(*, foreach: bool) -> list[Tensor]:
        pipeline = pipeline_of(
            mlp(2), optimizer=lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True, foreach=foreach)
        )
        micro_batches = 1 if schedule == "pipedream" else 2
        run = train(compiled(schedule, devices, micro_batches, **options), pipeline, batches(6))
        return [*run.state_dict().values(), *run.gradients.values()]

    pairs = zip(trained(foreach=False), trained(foreach=True), strict=True)
    assert max(float((ours - theirs).abs().max()) for ours, theirs in pairs) < 1e-12


class SkipsItsLayer(nn.Module):
    """On input that begins with a large number it has no weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4).double()

    def forward(self, x: Tensor) -> Tensor:
        return x * 1 if bool(x[0, 0] > 50) else self.layer(x)


def test_a_first_micro_batch_without_gradients_says_nothing_of_the_others_when_recomputing() -> None:
    def trained(recompute: str) -> list[Tensor]:
        data = batches(3)
        data[0][0][0, 0] = 100
        torch.manual_seed(0)
        pipeline = pipeline_of([SkipsItsLayer(), nn.Linear(4, 4).double()])
        return list(train(compiled("gpipe", 2, 2, recompute=recompute), pipeline, data).state_dict().values())

    assert all(torch.equal(*pair) for pair in zip(trained("never"), trained("always"), strict=True))


@pytest.mark.parametrize("timeout", [-1, 0, float("nan"), float("inf"), "5", None, True])
def test_a_timeout_that_is_no_positive_number_is_refused(timeout: object) -> None:
    with pytest.raises(ArgumentError, match=r"timeout .* is no positive number of seconds"):
        train(compiled("gpipe", 2, 2), pipeline_of(mlp(2)), batches(1), timeout=timeout)  # type: ignore[arg-type]  # on purpose

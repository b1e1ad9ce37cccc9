"""PipeDream on real layers, against loops written from its formulas."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from executor.model.pipeline import Pipeline
from executor.training import train
from tests.executor.small.models import batches, compiled, mlp, pipeline_of

RATE = 0.2


def delayed_sgd(num_stages: int, num_mini_batches: int, *, delays: list[int]) -> tuple[list[float], dict[str, torch.Tensor]]:
    """w(t+1) = w(t) - lr * grad f(w1(t - d1), ..., wn(t - dn)), versions before the first are the first (PipeDream, 2018).

    Returns losses and final weights of the whole model.
    """
    model = nn.Sequential(*mlp(num_stages))
    versions = [{name: parameter.detach().clone() for name, parameter in model.named_parameters()}]
    losses = []
    for t, (inputs, target) in enumerate(batches(num_mini_batches)):
        read = {name: versions[max(t - delays[int(name.split(".")[0])], 0)][name].clone().requires_grad_() for name in versions[0]}
        loss = nn.functional.mse_loss(functional_call(model, read, (inputs,)), target)
        gradients = torch.autograd.grad(loss, list(read.values()))
        newest = {name: versions[-1][name] - RATE * gradient for name, gradient in zip(read, gradients, strict=True)}
        versions.append(newest)
        losses.append(loss.item())
    return losses, versions[-1]


@pytest.mark.parametrize("recompute", ["never", "always"])
@pytest.mark.parametrize("num_stages", [2, 3, 4])
@pytest.mark.parametrize("weights", ["stash", "vertical-sync"])
def test_every_stage_lags_as_the_paper_says(*, weights: str, num_stages: int, recompute: str) -> None:
    """1-based stage s of n lags by n - s updates when stashing, every stage by n - 1 with vertical sync."""
    stash = [num_stages - 1 - stage for stage in range(num_stages)]
    delays = stash if weights == "stash" else [num_stages - 1] * num_stages
    losses, final = delayed_sgd(num_stages, 7, delays=delays)
    graph = compiled("pipedream", num_stages, 1, num_mini_batches=7, weights=weights, recompute=recompute)
    pipeline = pipeline_of(mlp(num_stages), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=RATE))
    run = train(graph, pipeline, batches(7), timeout=60)

    assert run.losses == pytest.approx(losses, abs=1e-12)
    for name, weight in run.state_dict().items():
        assert torch.allclose(weight, final[name], rtol=0, atol=1e-12)


def test_replicas_take_mini_batches_in_turn_and_average() -> None:
    """1F1B-RR with 2 replicas of the first stage: its update n averages mini-batches 2n and 2n + 1, at the weights they read.

    Versions read: t // 2 - (p - 1 - 0) // 2 = t // 2 on stage 0, at least 0; stage 1 is at most one mini-batch behind.
    """
    graph = compiled("pipedream", 3, 1, num_mini_batches=6, replicas=(2, 1))
    stages = mlp(2)
    pipeline = pipeline_of(stages, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=RATE))
    run = train(graph, pipeline, batches(6), timeout=60)
    reads = {str(task): task.version for task in graph.tasks()}

    first, second = mlp(2)
    versions: list[list[dict[str, torch.Tensor]]] = [[dict(stage.named_parameters())] for stage in (first, second)]
    share: list[dict[str, torch.Tensor]] = []
    for t, (inputs, target) in enumerate(batches(6)):
        used = [versions[k][reads[f"{k}F{t}"]] for k in range(2)]
        output = functional_call(second, used[1], (functional_call(first, used[0], (inputs,)),))
        gradients = torch.autograd.grad(nn.functional.mse_loss(output, target), [*used[0].values(), *used[1].values()])
        by_stage = [dict(zip(used[0], gradients, strict=False)), dict(zip(used[1], gradients[len(used[0]) :], strict=True))]
        share.append(by_stage[0])
        versions[1].append(moved(versions[1][-1], by_stage[1]))
        if t % 2:
            mean = {name: (share[t - 1][name] + share[t][name]) / 2 for name in share[t]}
            versions[0].append(moved(versions[0][-1], mean))

    for key, weight in run.state_dict().items():
        stage, name = key.split(".", 1)
        assert torch.allclose(weight, versions[int(stage)][-1][name], rtol=0, atol=1e-12)


class Shift(nn.Module):
    """y = x + w."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.w


@pytest.mark.parametrize("num_micro_batches", [1, 2])
def test_an_incomplete_last_round_averages_what_it_has(num_micro_batches: int) -> None:
    """2 replicas, 3 mini-batches: update 2 of stage 0 has mini-batch 2 alone and does not halve its gradient.

    The loss c y has the gradient c for both weights, whatever they are; c = 1, 2, 4 at a rate of 1 gives
    w0 = -(1 + 2) / 2 - 4 = -5.5 (halved it would be -3.5) and w1 = -(1 + 2 + 4) = -7.
    """
    graph = compiled("pipedream", 3, num_micro_batches, num_mini_batches=3, replicas=(2, 1))
    stages = [Shift(), Shift()]
    pipeline = Pipeline(
        stages,
        loss=lambda output, factor: (output * factor).mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
    )
    ones = torch.ones((2, 1), dtype=torch.float64)
    train(graph, pipeline, [(ones, factor * ones) for factor in (1.0, 2.0, 4.0)], timeout=60)

    assert [stage.w.item() for stage in stages] == pytest.approx([-5.5, -7.0], abs=1e-12)


def moved(weights: dict[str, torch.Tensor], gradients: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: (weights[name] - RATE * gradients[name]).detach().requires_grad_() for name in weights}


def test_replicas_end_with_the_same_weights_and_the_next_run_goes_on_from_them() -> None:
    graph = compiled("pipedream", 3, 1, num_mini_batches=4, replicas=(2, 1))
    pipeline = pipeline_of(mlp(2))
    train(graph, pipeline, batches(4), timeout=60)
    copies = [[parameter.detach().clone() for parameter in pipeline.copy(0, replica).parameters] for replica in range(2)]

    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*copies, strict=True))
    assert train(graph, pipeline, batches(4), timeout=60).losses[0] < 10

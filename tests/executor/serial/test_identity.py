"""What must leave weights as they are: a learning rate of 0, a prediction over 0 updates."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from executor.training import Run, train
from schedir.ir.action import Kind
from schedir.schedules.registry import SCHEDULES
from tests.executor.small.models import batches, compiled, mlp, pipeline_of, reference
from tests.programs import accepted_shape

RATE_ZERO: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd with momentum": lambda p: torch.optim.SGD(p, lr=0.0, momentum=0.9, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.0),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.0),  # predicted by extrapolation
}


def weights_of(stages: list[nn.Module]) -> dict[str, Tensor]:
    return {key: tensor.clone() for key, tensor in nn.Sequential(*stages).state_dict().items()}


def assert_bit_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert [key for key in expected if not torch.equal(found[key], expected[key])] == []


@pytest.mark.parametrize("optimizer", RATE_ZERO)
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_rate_of_zero_leaves_all_weights_alone(name: str, optimizer: str) -> None:
    """Whatever weights are read, stashed or predicted, they are those of the start, as the losses say; gradients are not 0."""
    devices, micro_batches = accepted_shape(name, 3, 3)
    graph = compiled(name, devices, micro_batches, num_mini_batches=4, recompute="except-last")
    stages, data = mlp(graph.program.num_stages), batches(4, samples=micro_batches)
    before = weights_of(stages)
    losses, _ = reference(mlp(graph.program.num_stages), data, RATE_ZERO[optimizer])
    run = train(graph, pipeline_of(stages, optimizer=RATE_ZERO[optimizer]), data, workers="threads", timeout=60)

    assert run.losses == pytest.approx(losses, rel=0, abs=1e-12)
    assert_bit_equal(weights_of(stages), before)
    assert_bit_equal(dict(run.state_dict()), before)
    assert all(bool(gradient.any()) for gradient in run.gradients.values())


def trained(name: str, shape: tuple[int, int], **options: object) -> tuple[Run, dict[str, Tensor], int]:
    """Return the run, its last weights and its number of predictions."""
    graph = compiled(name, shape[0], shape[1], num_mini_batches=6, **options)
    stages = mlp(graph.program.num_stages)
    run = train(graph, pipeline_of(stages), batches(6, samples=shape[1]), workers="threads", timeout=60)
    return run, weights_of(stages), int((graph.kind == Kind.PREDICT).sum())


@pytest.mark.parametrize("shape", [(1, 2), (3, 1)])
@pytest.mark.parametrize("name", ["xpipe", "spectrain", "pipeoptim"])
def test_over_no_updates_it_trains_as_without_prediction(name: str, shape: tuple[int, int]) -> None:
    """The order of all three is PipeDream's; with horizon 0 and T = 1 every read is of the newest weights, bit for bit."""
    run, weights, predictions = trained(name, shape, horizon=0)
    plain, expected, _ = trained("pipedream", shape, weights="current")

    assert predictions == 0
    assert run.losses == plain.losses
    assert_bit_equal(weights, expected)


def test_with_a_horizon_it_does_not() -> None:
    """Else the test above proved nothing."""
    run, _, predictions = trained("xpipe", (3, 1), horizon=1)

    assert predictions > 0
    assert run.losses != trained("pipedream", (3, 1), weights="current")[0].losses


@pytest.mark.parametrize("policy", ["exact", "pipeoptim", "spectrain-paper"])
@pytest.mark.parametrize("name", ["xpipe", "spectrain", "pipeoptim"])
def test_one_device_has_nothing_to_predict(name: str, policy: str) -> None:
    """p = 1, T = 1: these policies give 0 (p - k - 1, k/2 + p - k - 1, t - v), so it is sequential training."""
    run, weights, predictions = trained(name, (1, 1), horizon=policy)
    plain, expected, _ = trained("gpipe", (1, 1))

    assert predictions == 0
    assert run.losses == plain.losses
    assert_bit_equal(weights, expected)

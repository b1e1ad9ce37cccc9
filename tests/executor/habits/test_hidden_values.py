"""What the first forward does not show, values that leave torch, and stages that share memory."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from executor.training import train
from schedir.errors import ArgumentError, RefusedError
from tests.executor.small.models import batches, compiled, mlp, pipeline_of


class DrawsLate(nn.Module):
    """Draws on input of a large mean only."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4).double()

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return functional.dropout(y, 0.5) if bool(x.mean() > -2) else y


def test_a_stage_that_draws_first_on_a_later_micro_batch_draws_the_same_on_any_run() -> None:
    def trained(recompute: str) -> Tensor:
        data = batches(4)
        data[0] = data[0][0] - 5, data[0][1]
        torch.manual_seed(0)
        pipeline = pipeline_of([DrawsLate(), *mlp(1)])
        state = train(compiled("gpipe", 2, 2, recompute=recompute), pipeline, data).state_dict()
        return torch.cat([value.reshape(-1) for value in state.values()])

    assert all(torch.equal(*pair) for pair in pairwise([trained("never"), trained("always"), trained("never")]))


class Scaled(nn.Module):
    """Scales by a value of its weights that Python has had."""

    def __init__(self, value: Callable[[Tensor], float]) -> None:
        super().__init__()
        self.layer, self.value = nn.Linear(4, 4).double(), value

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x) * self.value(self.layer.weight)
        return output


@pytest.mark.parametrize(
    ("value", "culprit"),
    [
        (lambda weight: weight.norm().item(), "_local_scalar_dense"),
        (lambda weight: float(weight.detach().max()), "_local_scalar_dense"),
        (lambda weight: 2.0 if bool(weight.sum() > 0) else 1.0, "_local_scalar_dense"),
        (lambda weight: weight.tolist()[0][0], "tolist"),
        (lambda weight: float(weight.detach().numpy()[0, 0]), "numpy"),
    ],
)
def test_a_value_of_weights_that_leaves_torch_is_refused(value: Callable[[Tensor], float], culprit: str) -> None:
    pipeline = pipeline_of([Scaled(value), *mlp(1)])
    with pytest.raises(RefusedError, match=rf"stage 0 .* the value that \S*{culprit} took from weights in Scaled"):
        train(compiled("xpipe", 2, 1, num_mini_batches=4), pipeline, batches(4))


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_gradients_that_are_not_finite_prove_nothing(value: float) -> None:
    data = batches(4)
    data[0][0][0, 0] = value
    with pytest.raises(RefusedError, match="stage 0 gives gradients that are not finite"):
        train(compiled("xpipe", 2, 1, num_mini_batches=4), pipeline_of(mlp(2)), data)


class Returns(nn.Module):
    def __init__(self, wrap: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.layer, self.wrap = nn.Linear(4, 4).double(), wrap

    def forward(self, x: Tensor) -> object:
        return self.wrap(self.layer(x))


@pytest.mark.parametrize(
    ("wrap", "name"),
    [(lambda y: (y,), "tuple"), (lambda y: [y], "list"), (lambda y: {"y": y}, "dict"), (lambda _: None, "NoneType")],
)
def test_a_last_stage_whose_output_the_loss_does_not_take_is_named(wrap: Callable[[Tensor], object], name: str) -> None:
    with pytest.raises(ArgumentError, match=f"stage 1, the last, returns {name}"):
        train(compiled("gpipe", 2, 2), pipeline_of([*mlp(1), Returns(wrap)]), batches(1))


def test_a_loss_without_gradient_is_refused() -> None:
    with pytest.raises(ArgumentError, match="does not depend on any trainable parameter"):
        train(compiled("gpipe", 2, 2), pipeline_of([*mlp(1), Returns(Tensor.detach)]), batches(1))


def test_stages_that_share_memory_are_refused() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = nn.Parameter(first.weight.data)
    with pytest.raises(RefusedError, match=r"stages 0 and 1 share the memory of 0\.weight and 1\.weight"):
        pipeline_of([first, second])
    norm = nn.BatchNorm1d(4, affine=False)
    with pytest.raises(RefusedError, match=r"stages 0 and 1 share the memory of 0\.1\.running_mean"):
        pipeline_of([nn.Sequential(nn.Linear(4, 4), norm), nn.Sequential(nn.Linear(4, 4), norm)])

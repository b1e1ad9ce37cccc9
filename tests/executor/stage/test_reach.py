"""Parameters that are reached past their module are refused; what is reached by attributes is trained as ever."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import mse_loss

from schedir import Trainer
from schedir.errors import RefusedError

Loss = Callable[[Tensor, Tensor], Tensor]
SCHEDULES = ("1f1b", "pipedream")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


class Keeps(nn.Module):
    """Computes with its weight out of a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.weights = [self.a.weight]

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.weights[0].t())


class Lists(nn.Module):
    """Holds its parameters in torch's own list."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(4, 4), torch.randn(4)])

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weights
        made: Tensor = torch.tanh(x @ weight + bias)
        return made


class Borrows(nn.Module):
    """Computes with another stage's weight, which it does not register."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.borrowed = [weight]
        self.own = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.own(x) + x @ self.borrowed[0]
        return made


def two_layers() -> list[nn.Module]:
    return [nn.Linear(4, 4), nn.Linear(4, 4)]


def moved(stages: list[nn.Module], schedule: str, loss: Loss = mse_loss, *, recompute: str = "never") -> list[float]:
    """Return how far a mini-batch has moved every parameter."""
    before = [parameter.detach().clone() for stage in stages for parameter in stage.parameters()]
    with Trainer(
        stages,
        schedule=schedule,
        num_micro_batches=2,
        recompute=recompute,
        loss=loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    ) as trainer:
        trainer.step(torch.randn(4, 4), torch.randn(4, 4))
        trainer.drain()
    after = [parameter.detach() for stage in stages for parameter in stage.parameters()]
    return [float((now - was).abs().max()) for now, was in zip(after, before, strict=True)]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("recompute", ["never", "always"])
def test_a_weight_in_a_plain_list_is_refused(schedule: str, recompute: str) -> None:
    rule = r"^stage 0 reaches parameter a\.weight of stage 0 past the module's own attributes .* nn\.ParameterList"
    with pytest.raises(RefusedError, match=rule):
        moved([Keeps(), nn.Linear(4, 4)], schedule, recompute=recompute)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_regularizer_in_the_loss_over_the_whole_model_is_refused(schedule: str) -> None:
    stages = two_layers()

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return mse_loss(output, target) + sum(each.square().sum() for stage in stages for each in stage.parameters())

    rule = (
        r"^stage 1, or the loss behind it, reaches parameter bias of stage 0 past .* so its gradient would be lost: .* weight_decay"
    )
    with pytest.raises(RefusedError, match=rule):
        moved(stages, schedule, loss)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_parameter_that_the_loss_has_captured_is_refused(schedule: str) -> None:
    stages = two_layers()
    captured = stages[1].bias
    assert isinstance(captured, nn.Parameter)
    with pytest.raises(RefusedError, match=r"^stage 1, or the loss behind it, reaches parameter bias of stage 1 past"):
        moved(stages, schedule, lambda output, target: mse_loss(output + captured, target))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_weight_of_another_stage_in_a_plain_list_is_refused(schedule: str) -> None:
    first = nn.Linear(4, 4)
    assert isinstance(first.weight, nn.Parameter)
    with pytest.raises(RefusedError, match=r"^stage 1, or the loss behind it, reaches parameter weight of stage 0 past"):
        moved([first, Borrows(first.weight)], schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("make", [two_layers, lambda: [Lists(), nn.Linear(4, 4)]], ids=["plain", "ParameterList"])
def test_parameters_that_are_attributes_are_trained(schedule: str, make: Callable[[], list[nn.Module]]) -> None:
    assert min(moved(make(), schedule)) > 0


def test_tied_weights_are_trained() -> None:
    first, last = nn.Linear(4, 4), nn.Linear(4, 4)
    last.weight = first.weight
    assert min(moved([first, nn.Tanh(), last], "1f1b")) > 0


def test_a_loss_may_reach_the_last_stage_by_its_attributes_and_a_network_that_no_stage_holds() -> None:
    stages, judge = two_layers(), nn.Linear(4, 4)

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return mse_loss(judge(output), judge(target)) + sum(each.square().sum() for each in stages[1].parameters())

    assert min(moved(stages, "1f1b", loss)) > 0


class Remembers(torch.autograd.Function):
    """Doubles; its node has an attribute of the name that torch's own leaves have."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, weight: Tensor) -> Tensor:
        ctx.variable = weight  # type: ignore[attr-defined]
        return x * 2

    @staticmethod
    @once_differentiable
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ARG004
        return gradient * 2, None


class Custom(nn.Module):
    """Applies a function of the user's own that keeps a weight which it gives no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.kept = [self.layer.weight]

    def forward(self, x: Tensor) -> Tensor:
        doubled: Tensor = Remembers.apply(self.layer(x), self.kept[0].detach())
        return doubled


def test_a_function_of_the_users_own_is_trained_through() -> None:
    assert min(moved([Custom(), nn.Linear(4, 4)], "1f1b")) > 0

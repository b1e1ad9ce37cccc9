"""Stages that hand on all that a value may hold: dicts, a dataclass, nested tuples, integers, masks, None, plain values."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from executor.model.pipeline import Pipeline

WIDTH = 4
SAMPLES = 8


def linear() -> nn.Linear:
    return nn.Linear(WIDTH, WIDTH).double()


@dataclass(frozen=True)
class Carried:
    hidden: Tensor
    rest: list[Tensor]
    scale: float
    nothing: None = None


class First(nn.Module):
    """Takes the data's dict by its keys; gives a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, WIDTH).double()

    def forward(self, ids: Tensor, mask: Tensor, scale: float, *, note: str | None = None) -> dict[str, Any]:
        assert note is None
        hidden = self.embedding(ids) * scale
        table = torch.full_like(hidden, 0.5).detach()
        return {"hidden": hidden, "mask": mask, "steps": (ids + 1, None), "table": table, "mode": "tanh", "scale": scale}


class Second(nn.Module):
    """Takes the dict by its keys; gives a dataclass."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = linear()

    def forward(
        self, *, hidden: Tensor, mask: Tensor, steps: tuple[Tensor, None], table: Tensor, mode: str, scale: float
    ) -> Carried:
        assert (mask.dtype, steps[0].dtype, steps[1], mode) == (torch.bool, torch.int64, None, "tanh")
        assert not table.requires_grad
        return Carried(torch.tanh(self.linear(hidden)) * mask + table * steps[0].unsqueeze(1), [mask, steps[0]], scale)


class Third(nn.Module):
    """Takes the dataclass as its one argument; gives two tensors that need a gradient, one within a dict, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = linear(), linear()

    def forward(self, carried: Carried) -> tuple[Tensor, dict[str, Any]]:
        mask, steps = carried.rest
        assert (mask.dtype, steps.dtype, carried.nothing) == (torch.bool, torch.int64, None)
        left = self.left(carried.hidden)
        return left, {"right": self.right(carried.hidden), "again": left, "unused": carried.hidden, "scale": carried.scale}


class Fourth(nn.Module):
    """Takes the tuple by its places; changes the dict that it is given, as is its right; gives a dict to the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = linear()

    def forward(self, left: Tensor, more: dict[str, Any]) -> dict[str, Any]:
        joined = self.linear(left * more.pop("right")) + more.pop("again") * more.pop("scale")
        return {"scores": joined, "cache": object()}


def stages() -> list[nn.Module]:
    torch.manual_seed(0)
    return [First(), Second(), Third(), Fourth()]


def whole(model: list[nn.Module], inputs: dict[str, Any]) -> Any:
    """Run the stages one after the other, as one model."""
    first, second, third, fourth = model
    return fourth(*third(second(**first(**inputs))))


def loss(output: dict[str, Any], target: dict[str, Any]) -> Tensor:
    difference = (output["scores"] - target["values"]) * target["factor"]
    mean: Tensor = (difference * difference).mean()
    return mean


def sgd(parameters: list[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def pipeline() -> Pipeline:
    return Pipeline(stages(), loss=loss, optimizer=sgd)


def data(count: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            {
                "ids": torch.randint(5, (SAMPLES,), generator=generator),
                "mask": torch.rand(SAMPLES, WIDTH, generator=generator) > 0.3,
                "scale": 1.5,
                "note": None,
            },
            {"values": torch.randn(SAMPLES, WIDTH, generator=generator, dtype=torch.float64), "factor": 2},
        )
        for _ in range(count)
    ]


def reference(count: int) -> tuple[list[float], dict[str, Tensor]]:
    """Train the whole model; return losses and the last gradients."""
    model = stages()
    parameters = nn.ModuleList(model)
    optimizer = sgd(list(parameters.parameters()))
    losses = []
    for inputs, target in data(count):
        optimizer.zero_grad()
        found = loss(whole(model, inputs), target)
        found.backward()
        optimizer.step()
        losses.append(found.item())
    return losses, {name: parameter.grad for name, parameter in parameters.named_parameters() if parameter.grad is not None}

"""Values of all kinds between stages, trained by name in two processes and by threads alike."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from executor.model.pipeline import Pipeline
from executor.trainer.trainer import Trainer
from executor.training import train
from tests.distributed.programs.models import Scale
from tests.distributed.programs.work import TIMEOUT_S, Found
from tests.executor.small import structured
from tests.executor.small.models import batches, compiled, pipeline_of
from tests.executor.test_boundary import Splits, several

SEEN: list[tuple[torch.dtype, bool, torch.dtype, bool]] = []
"""What the second stage of D10 was given: types of mask and rope, and whether they need gradients."""


class Receives(nn.Module):
    """Takes the three of D10."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4).double()

    def forward(self, hidden: Tensor, mask: Tensor, rope: Tensor) -> Tensor:
        SEEN.append((mask.dtype, mask.requires_grad, rope.dtype, rope.requires_grad))
        assert hidden.requires_grad or not torch.is_grad_enabled()
        result: Tensor = self.linear(hidden * rope) * mask
        return result


def d10_stages() -> list[nn.Module]:
    torch.manual_seed(0)
    return [Splits().double(), Receives()]


def d10(workers: str) -> tuple[Found, list[Any]]:
    """Two stages; the first returns (h float with gradient, mask int64, rope float without)."""
    SEEN.clear()
    run = train(compiled("1f1b", 2, 2), pipeline_of(d10_stages()), batches(2), workers=workers, timeout=TIMEOUT_S)
    return Found.of(run), sorted(set(SEEN), key=str)


def structures(schedule: str, options: dict[str, Any], workers: str) -> Found:
    """Four stages on two devices, dicts and dataclasses between them."""
    options = {"num_mini_batches": 6, **options} if schedule == "pipedream" else options
    stages = structured.stages()
    if schedule == "pipedream":
        stages = [nn.Sequential(Keywords(stages[0]), Keywords(stages[1])), nn.Sequential(stages[2], Places(stages[3]))]
    graph = compiled(schedule, 2, 2, **options)
    pipeline = Pipeline(stages, loss=structured.loss, optimizer=structured.sgd)
    count = graph.program.num_mini_batches * (3 if graph.program.weights.synchronous else 1)
    return Found.of(train(graph, pipeline, structured.data(count), workers=workers, timeout=TIMEOUT_S))


class Keywords(nn.Module):
    """Spreads a dict over the arguments of a module, as nn.Sequential does not."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, values: dict[str, Any]) -> Any:
        return self.module(**values)


class Places(nn.Module):
    """Spreads a tuple."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, values: tuple[Any, ...]) -> Any:
        return self.module(*values)


SHAPES = ((4, 16), (4, 24), (2, 16))


def changing_shapes(schedule: str, workers: str) -> tuple[list[float], dict[str, Tensor]]:
    """D31 in a trainer: rows of 16, 24 and 16 numbers, the first stage frozen, the middle one without parameters."""
    generator = torch.Generator().manual_seed(0)
    data = [(torch.randn(shape, generator=generator).double(), torch.zeros(shape).double()) for shape in SHAPES]
    frozen = Scale(0.5).requires_grad_(requires_grad=False)
    stages = [frozen, Scale(), nn.Sequential(nn.ReLU(), nn.Flatten(0).double(), nn.Unflatten(0, (-1, 8))), Scale()]
    with Trainer(
        stages,
        schedule=schedule,
        num_devices=2 if schedule == "interleaved-1f1b" else 4,
        num_micro_batches=2,
        loss=lambda output, target: nn.functional.mse_loss(output, target.reshape(output.shape)),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        workers=workers,
        timeout=TIMEOUT_S,
    ) as trainer:
        steps = [trainer.step(*pair) for pair in data]
        trainer.drain()
        return [step.loss for step in steps], trainer.state_dict()


class Holds(nn.Module):
    """Gives its output and something else."""

    def __init__(self, make: Callable[[], object]) -> None:
        super().__init__()
        self.make, self.linear = make, nn.Linear(4, 4).double()

    def forward(self, x: Tensor) -> Any:
        return self.linear(x), self.make()


class Drops(nn.Module):
    def forward(self, x: Tensor, other: object) -> Tensor:  # noqa: ARG002 - what is dropped
        return x


def local() -> object:
    @dataclass
    class Local:
        x: Tensor

    return Local(torch.ones(2))


REFUSED: dict[str, Callable[[], object]] = {
    "a class of a function": local,
    "a nested tensor": lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged),
    "no value": lambda: range(3),
}


def refused(name: str, workers: str) -> str:
    """Hand on what cannot be carried; return what this process says."""
    stages = [Holds(REFUSED[name]), Drops()]
    try:
        train(compiled("1f1b", 2, 2), pipeline_of(stages), batches(1), workers=workers, timeout=TIMEOUT_S)
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return f"{type(error).__name__}: {error}"
    return ""


STRUCTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "interleaved": ("interleaved-1f1b", {"stages_per_device": 2}),
    "split": ("zb-v", {}),
    "recomputed": ("interleaved-1f1b", {"stages_per_device": 2, "recompute": "always"}),
    "without a flush": ("pipedream", {}),
}


def everything(workers: str) -> dict[str, Any]:
    return {
        "d10": d10(workers),
        **{name: structures(*setup, workers) for name, setup in STRUCTURES.items()},
        "shapes": changing_shapes("interleaved-1f1b", workers),
        "three": Found.of(
            train(compiled("interleaved-1f1b", 2, 2), pipeline_of([*several(), nn.Identity()]), batches(2), workers=workers)
        ),
        **{name: refused(name, workers) for name in REFUSED},
    }

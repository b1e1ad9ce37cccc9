"""What users of other tools ran into, on two devices: by threads and in processes alike. Called by name in processes of its own."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from executor.trainer.trainer import Trainer
from executor.training import train
from executor.workers.environment import process_number
from tests.distributed.programs.work import TIMEOUT_S
from tests.executor.checkpoint.checkpointed import make_trainer
from tests.executor.checkpoint.test_checkpoint import steps
from tests.executor.small.models import WIDTH, batches, compiled, mlp, pipeline_of, sgd

MASKED = -1
"""A target that does not count."""
SCHEDULES = ("1f1b", "pipedream", "pipedream-2bw", "xpipe")


class Factor(nn.Module):
    """y = w x, w = 1 at first."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.w * x


class Shift(nn.Module):
    """y = x + factor * w, w = 0 at first: its gradient is the factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.w = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.factor * self.w


def unequal_tokens(workers: str) -> tuple[float, list[float]]:
    """D5: micro-batches of one valid token of loss 4, three of loss 0, and none; return the loss, and weights after a step."""
    output = torch.tensor([[4.0, 9.0, 9.0], [0.0, 0.0, 0.0], [5.0, 5.0, 5.0]], dtype=torch.float64)
    target = torch.tensor([[1, MASKED, MASKED], [1, 1, 1], [MASKED, MASKED, MASKED]])
    with Trainer(
        [Factor(), Factor()],
        num_micro_batches=3,
        loss=lambda found, wanted: found[wanted > 0].mean(),
        loss_weight=lambda wanted: (wanted > 0).sum(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        workers=workers,
        timeout=TIMEOUT_S,
    ) as trainer:
        loss = trainer.step(output, target).loss
        return loss, [value.item() for value in trainer.state_dict().values()]


def clipped(max_norm: float, workers: str) -> list[float]:
    """D7: stages whose gradients are 3 and 4; return by how much the weights fall at rate 1."""
    with Trainer(
        [Shift(3.0), Shift(4.0)],
        num_micro_batches=2,
        loss=lambda output, _: output.mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
        clip=max_norm,
        workers=workers,
        timeout=TIMEOUT_S,
    ) as trainer:
        trainer.step(*batches(1)[0])
        return [-value.item() for value in trainer.state_dict().values()]


def norm_statistics(way: str, recompute: str, workers: str) -> tuple[float, float, int]:
    """D11: return mean, variance and moves of a BatchNorm over micro-batches [0, 2] and [4, 6]."""
    values = torch.tensor([[0.0], [2.0], [4.0], [6.0]], dtype=torch.float64)
    pipeline = pipeline_of([nn.BatchNorm1d(1).double(), Factor()], batch_norm=way)
    graph = compiled("1f1b", 2, 2, recompute=recompute)
    weights = train(graph, pipeline, [(values, values)], workers=workers, timeout=TIMEOUT_S).state_dict()
    moves = int(weights["0.num_batches_tracked"])
    return weights["0.running_mean"].item(), weights["0.running_var"].item(), moves


def with_dropout(seed: int, recompute: str, workers: str) -> list[float]:
    """D12: return the losses of a trainer whose stages drop out."""
    stages = [nn.Sequential(stage, nn.Dropout(0.5)) for stage in mlp(2)]
    options: dict[str, Any] = {"num_micro_batches": 4, "loss": nn.functional.mse_loss, "optimizer": sgd, "recompute": recompute}
    with Trainer(stages, seed=seed, workers=workers, timeout=TIMEOUT_S, **options) as trainer:
        return [trainer.step(*pair).loss for pair in batches(3)]


def autocast_and_grad_mode(workers: str) -> set[tuple[torch.dtype, bool]]:
    """D13: return what the stages of this process see under the caller's autocast and no_grad."""
    seen: set[tuple[torch.dtype, bool]] = set()

    class Notes(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            seen.add((y.dtype, torch.is_grad_enabled()))
            return y

    data = [(inputs.float(), target.float()) for inputs, target in batches(1)]
    pipeline = pipeline_of([Notes(WIDTH, WIDTH), Notes(WIDTH, WIDTH)])
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        train(compiled("1f1b", 2, 2), pipeline, data, workers=workers, timeout=TIMEOUT_S)
    return seen


def evaluated_around_a_step(workers: str) -> tuple[list[float], bool, bool]:
    """D14: evaluate, step, evaluate; return the three losses, whether gradients of the user stay, and whether modes do."""
    stages = mlp(2)
    stages[1].eval()
    for stage in stages:
        for parameter in stage.parameters():
            parameter.grad = torch.full_like(parameter, 7.0)
    options: dict[str, Any] = {"num_micro_batches": 2, "loss": nn.functional.mse_loss, "optimizer": sgd}
    with Trainer(stages, workers=workers, timeout=TIMEOUT_S, **options) as trainer:
        first = trainer.evaluate(batches(2, seed=9))["loss"]
        untouched = all(bool((p.grad == 7.0).all()) for stage in stages for p in stage.parameters() if p.grad is not None)
        untouched &= all(p.grad is not None for stage in stages for p in stage.parameters())
        step = trainer.step(*batches(1)[0]).loss
        losses = [first, step, trainer.evaluate(batches(2, seed=9))["loss"]]
        return losses, untouched, (stages[0].training, stages[1].training) == (True, False)


def gone_on(folder: str, schedule: str) -> None:
    """D15: go on from what another process has saved behind three steps, make three more and save."""
    with make_trainer(schedule, 2) as trainer:
        trainer.load(Path(folder) / schedule / "three")
        steps(trainer, 3, 6)
        trainer.save(Path(folder) / schedule / "both")


def everything(folder: str) -> dict[str, Any]:
    for schedule in SCHEDULES:
        gone_on(folder, schedule)
    return {
        "number": process_number(),
        "tokens": unequal_tokens("auto"),
        "clipped": [clipped(1.0, "auto"), clipped(10.0, "auto")],
        "norm": {key: norm_statistics(*key, "auto") for key in NORMS},
        "dropout": [with_dropout(seed, recompute, "auto") for seed, recompute in DROPOUTS],
        "autocast": autocast_and_grad_mode("distributed"),
        "evaluated": evaluated_around_a_step("auto"),
    }


NORMS = {
    ("plain", "never"): (0.59, 1.19, 2),
    ("plain", "always"): (0.59, 1.19, 2),
    ("deferred", "never"): (0.3, 1.566667, 1),
    ("deferred", "always"): (0.3, 1.566667, 1),
}
"""By way and recomputation: what torch 2.13 gives without a pipeline, and what the mini-batch as a whole would give."""
DROPOUTS = ((5, "never"), (5, "never"), (5, "always"), (6, "never"))

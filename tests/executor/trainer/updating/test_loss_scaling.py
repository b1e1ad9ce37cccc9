"""Loss scaling by hand-worked figures: one decision for all stages; test_torch_scaler holds it against torch."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from executor.trainer.trainer import Trainer
from executor.trainer.updating.clipping import Clip
from executor.trainer.updating.loss_scaling import LossScaling
from schedir.errors import ArgumentError, RefusedError, RunError, SchedirWarning
from schedir.ir.action import Kind
from schedir.schedules.registry import SCHEDULES
from tests.executor.small.models import batches, mlp, sgd
from tests.executor.small.trainers import train_step_by_step

ONE = (torch.ones(1, 1), torch.zeros(1, 1))


class _ToHalf(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:  # noqa: ARG004 - torch's signature
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:  # noqa: ARG004 - torch's signature
        return gradient.half().to(gradient.dtype)


class Shift(nn.Module):
    """y = x + w: its gradient, and that of x, is what arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.w


class Half(Shift):
    """The same, but the gradient of x passes through float16: above 65504 it is infinite."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(_ToHalf.apply(x))


def mean(output: Tensor, _: Tensor) -> Tensor:
    return output.mean()


def halving(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)


def by_hand(stages: Sequence[nn.Module], scaling: object, **options: Any) -> Trainer:
    given: dict[str, Any] = {"schedule": "1f1b", "num_micro_batches": 1, "loss": mean, "timeout": 30.0, "loss_scaling": scaling}
    given |= {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=1.0)}
    return Trainer(stages, **(given | options))


def test_the_scale_falls_where_any_stage_overflows_and_grows_behind_updates_in_a_row() -> None:
    """Only stage 1 lets its gradient through float16: 131072 and 65536 overflow, 32768 does not. Two updates, then 65536 again."""
    stages = [Shift(), Half()]
    with by_hand(stages, LossScaling(131072.0, growth_interval=2), lr_scheduler=halving) as trainer:
        scales, weights = [], []
        for _ in range(7):
            scales.append(trainer.loss_scale)
            trainer.step(*ONE)
            weights.append(trainer.state_dict()["0.w"].item())

    assert scales == [131072.0, 65536.0, 32768.0, 32768.0, 65536.0, 32768.0, 32768.0]
    assert trainer.loss_scale == 65536.0
    assert trainer.skipped_updates == (0, 1, 4)
    assert weights == [0.0, 0.0, -1.0, -1.5, -1.5, -1.75, -1.875]  # gradient 1; the rate halves with every update that is made


def test_an_update_that_is_left_out_is_left_out_on_all_stages_and_no_rate_falls() -> None:
    """Stage 1's own gradient is finite where stage 0's is not: neither moves. Then both move by 1, at the rate 1."""
    stages = [Shift(), Half()]
    with by_hand(stages, LossScaling(65536.0), lr_scheduler=halving) as trainer:
        trainer.step(*ONE)
        assert [stage.w.item() for stage in stages] == [0.0, 0.0]
        trainer.step(*ONE)
        assert [stage.w.item() for stage in stages] == [-1.0, -1.0]
    assert trainer.skipped_updates == (0,)


def test_gradients_are_unscaled_before_they_are_clipped() -> None:
    """Gradients 1 and 1 have the norm sqrt 2; clipped to half of it they are 0.5. With the scale the norm would be 46341."""
    stages = [Shift(), Shift()]
    with by_hand(stages, 32768.0, clip=math.sqrt(2) / 2) as trainer:
        trainer.step(*ONE)
    assert [stage.w.item() for stage in stages] == pytest.approx([-0.5, -0.5], rel=1e-5)


def test_clipping_per_stage_is_by_the_stages_own_norm_and_the_skip_is_common() -> None:
    stages = [Shift(), Half()]
    with by_hand(stages, LossScaling(65536.0), clip=Clip(0.25, per="stage")) as trainer:
        trainer.step(*ONE)
        trainer.step(*ONE)
    assert trainer.skipped_updates == (0,)
    assert [stage.w.item() for stage in stages] == pytest.approx([-0.25, -0.25], rel=1e-5)


def test_an_update_that_is_left_out_makes_a_version_equal_to_the_one_before() -> None:
    """So what the graph says about versions stays true: the trainer's log says version 1 of the update, whether made or not."""
    with by_hand([Shift(), Half()], LossScaling(65536.0)) as trainer:
        trainer.step(*ONE)
        engine = trainer._engine
        table, step, move = engine.endless.locate(0)
        updates = [
            (action.version, engine.log.read(table.name(task, move)))
            for tasks in table.device_tasks[step]
            for task in tasks
            if (action := table.plan.tasks[task][0]).kind is Kind.UPDATE
        ]
    assert trainer.skipped_updates == (0,)
    assert updates == [(1, (1, 0)), (1, (1, 0))]


def test_weights_that_two_stages_hold_are_scaled_and_left_out_once() -> None:
    """y = w (w x), w = 2, x = 3, loss y: dy/dw = 12, of each stage 6; a step of 0.1 leaves 0.8 in both, as without a scale (D8)."""
    first, second = Scale(), Scale()
    second.w = first.w
    with by_hand([first, second], 1024.0, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)) as trainer:
        trainer.step(torch.full((1, 1), 3.0), torch.zeros(1, 1))
        assert trainer.state_dict()["1.w"].item() == pytest.approx(0.8)
    assert first.w is second.w
    assert trainer.skipped_updates == ()


class Scale(nn.Module):
    """y = w x, w = 2 at first."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.w * x


@pytest.mark.parametrize("schedule", [name for name, schedule in SCHEDULES.items() if schedule.continuous])
def test_without_a_flush_a_scale_that_changes_is_refused_with_the_reason(schedule: str) -> None:
    message = (
        f"{schedule} has no moment at which all stages could leave an update out, and its micro-batches on their way have been "
        "scaled already when the scale would have to fall: give a fixed loss_scaling, say 1024.0"
    )
    with pytest.raises(RefusedError, match=message):
        by_hand([Shift(), Half()], "dynamic", schedule=schedule, num_micro_batches=2)


def test_without_a_flush_a_stage_leaves_its_own_update_out() -> None:
    """At a scale of 65536 stage 0's gradient overflows on its way, stage 1's never does."""
    stages = [Shift(), Half()]
    trainer = by_hand(stages, 65536.0, schedule="pipedream")
    with pytest.warns(SchedirWarning, match="mini-batch 0 are not finite on stage 0: its update was left out on that stage"):
        train_step_by_step(trainer, [ONE] * 3)
    assert trainer.loss_scale == 65536.0
    assert trainer.skipped_updates == (0, 1, 2)
    assert [stage.w.item() for stage in stages] == [0.0, -3.0]


@pytest.mark.parametrize("schedule", [name for name, schedule in SCHEDULES.items() if schedule.continuous])
def test_a_fixed_scale_changes_no_digit_of_a_continuous_schedule(schedule: str) -> None:
    def weights(**options: Any) -> dict[str, Tensor]:
        made = Trainer(mlp(2), schedule=schedule, num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd, **options)
        with made:
            for mini_batch in batches(4):
                made.step(*mini_batch)
            made.drain()
            return made.state_dict()

    plain, scaled = weights(), weights(loss_scaling=1024.0)
    assert all(torch.equal(scaled[key], plain[key]) for key in plain)


def test_a_checkpoint_keeps_the_scale_and_how_long_it_has_held(tmp_path: Path) -> None:
    scaling = LossScaling(65536.0, growth_interval=3)
    with by_hand([Shift(), Half()], scaling) as trainer:
        for _ in range(3):
            trainer.step(*ONE)
        trainer.save(tmp_path)
        rest = [(trainer.step(*ONE).loss, trainer.loss_scale) for _ in range(4)]
    with by_hand([Shift(), Half()], scaling) as trainer:
        trainer.load(tmp_path)
        assert trainer.loss_scale == 32768.0
        assert [(trainer.step(*ONE).loss, trainer.loss_scale) for _ in range(4)] == rest
    assert [scale for _, scale in rest] == [65536.0, 32768.0, 32768.0, 32768.0]


def test_a_checkpoint_of_a_training_without_a_scale_starts_with_the_one_that_is_asked_for(tmp_path: Path) -> None:
    with by_hand([Shift(), Half()], None) as trainer:
        trainer.save(tmp_path)
    with by_hand([Shift(), Half()], 2048.0) as trainer:
        trainer.load(tmp_path)
        assert trainer.loss_scale == 2048.0


def test_a_mini_batch_of_masked_samples_alone_scales_clips_and_updates_by_nothing() -> None:
    """Loss weight 0 in one micro-batch, then in all: gradients of 0, no NaN, and nothing is left out."""
    target = torch.tensor([[-1.0], [1.0], [-1.0], [-1.0]])

    def loss(output: Tensor, wanted: Tensor) -> Tensor:
        return output[wanted > 0].mean()

    stages = [Shift(), Shift()]
    with by_hand(
        stages,
        "dynamic",
        num_micro_batches=2,
        loss=loss,
        loss_weight=lambda wanted: (wanted > 0).sum(),
        clip=0.5,
    ) as trainer:
        step = trainer.step(torch.ones(4, 1), target)
        assert step.loss == 1.0
        moved = [stage.w.item() for stage in stages]
        assert moved == pytest.approx([-0.5 / math.sqrt(2)] * 2, rel=1e-5)
        assert trainer.step(torch.ones(4, 1), -torch.ones(4, 1)).loss == 0.0
    assert [stage.w.item() for stage in stages] == moved
    assert trainer.skipped_updates == ()


def test_gradients_that_no_scale_makes_finite_end_the_training() -> None:
    """torch's scaler would halve its scale to 0 and stay there."""
    scaling = LossScaling(1.0, backoff_factor=1e-20)
    trainer = by_hand([Shift()], scaling, loss=lambda output, _: output.mean() * math.nan, on_nan="continue")
    with pytest.raises(RunError, match="the loss scale fell to 0, update after update, and gradients are still not finite"):
        train_step_by_step(trainer, [ONE] * 4)


def test_weights_in_float16_are_refused() -> None:
    message = "loss_scaling: weight of stage 1 is float16, so its gradient would overflow .*: keep weights in float32"
    with pytest.raises(RefusedError, match=message):
        by_hand([nn.Linear(1, 1), nn.Linear(1, 1).half()], "dynamic")


@pytest.mark.parametrize("non_finite", ["raise", "apply"])
def test_a_clip_that_does_otherwise_is_refused(non_finite: str) -> None:
    with pytest.raises(
        ArgumentError, match=f"clip: non_finite '{non_finite}' is against loss_scaling, which leaves such updates out"
    ):
        by_hand([Shift()], "dynamic", clip=Clip(1.0, non_finite=non_finite))

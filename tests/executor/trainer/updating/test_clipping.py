"""Clipping by the norm over the model or by stage, and updates that are left out."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from executor.trainer.trainer import Trainer
from executor.trainer.updating.clipping import Clip, squares_of
from schedir.errors import ArgumentError, RefusedError, RunError, SchedirWarning
from schedir.schedules.registry import SCHEDULES
from tests.executor.small.models import batches, compiled, mlp, sgd

Data = list[tuple[Tensor, Tensor]]


class Scaled(nn.Module):
    """y = x + factor * w: its gradient is the factor, whatever the others do."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.w = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.factor * self.w


def falls(
    clip: Clip | float | None, factors: tuple[float, ...] = (3.0, 4.0), *, schedule: str = "1f1b", steps: int = 1
) -> list[float]:
    """Train with rate 1; return by how much every stage's weight fell: in one step its clipped gradient."""
    stages = [Scaled(factor) for factor in factors]
    trained(stages, clip, schedule=schedule, steps=steps)
    return [-stage.w.item() for stage in stages]


def trained(stages: Sequence[nn.Module], clip: Clip | float | None, *, schedule: str = "1f1b", steps: int = 1) -> tuple[int, ...]:
    """Train some steps; return the mini-batches whose update was left out."""
    made = Trainer(
        stages,
        schedule=schedule,
        num_micro_batches=2,
        loss=lambda output, _: output.mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
        clip=clip,
        on_nan="continue",  # an infinite factor makes the loss NaN too
        timeout=60,
    )
    with made:
        for mini_batch in batches(steps):
            made.step(*mini_batch)
        made.drain()
    return made.skipped_updates


def test_d7_the_norm_is_that_of_all_stages() -> None:
    """Gradients 3 and 4 have the norm 5; clipped to 1 they are 0.6 and 0.8 (each by its own norm would be 1 and 1)."""
    assert falls(1.0) == pytest.approx([0.6, 0.8], rel=1e-6)


def test_d7_a_norm_below_the_limit_changes_nothing() -> None:
    assert falls(10.0) == [3.0, 4.0]
    assert falls(None) == [3.0, 4.0]


@pytest.mark.parametrize("num_stages", [1, 2, 4])
def test_d7_the_number_of_stages_changes_no_clipped_weight(num_stages: int) -> None:
    data = batches(3)
    expected = list(reference(data, 0.05).values())
    stages = mlp(4)
    size = 4 // num_stages
    made = Trainer(
        [nn.Sequential(*stages[first : first + size]) for first in range(0, 4, size)],
        num_micro_batches=2,
        loss=nn.functional.mse_loss,
        optimizer=sgd,
        clip=0.05,
        timeout=60,
    )
    with made:
        for mini_batch in data:
            made.step(*mini_batch)
        found = list(made.state_dict().values())
    assert all(torch.allclose(ours, theirs, rtol=0, atol=1e-12) for ours, theirs in zip(found, expected, strict=True))


def test_clipping_per_stage_is_by_the_stages_own_norm() -> None:
    assert falls(Clip(1.0, per="stage")) == pytest.approx([1.0, 1.0], rel=1e-6)
    assert falls(Clip(3.5, per="stage"), schedule="pipedream") == pytest.approx([3.0, 3.5], rel=1e-6)


def reference(data: Data, max_norm: float) -> dict[str, Tensor]:
    model = nn.Sequential(*mlp(4))
    optimizer = sgd(list(model.parameters()))
    for inputs, target in data:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), target).backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
    return model.state_dict()


def clipped(schedule: str, data: Data, *, max_norm: float) -> dict[str, Tensor]:
    made = Trainer(
        mlp(4),
        schedule=schedule,
        num_micro_batches=8,
        loss=nn.functional.mse_loss,
        optimizer=sgd,
        clip=max_norm,
        timeout=60,
    )
    with made:
        for mini_batch in data:
            made.step(*mini_batch)
        return made.state_dict()


@pytest.mark.parametrize("schedule", [name for name, schedule in SCHEDULES.items() if not schedule.continuous])
def test_every_synchronous_schedule_clips_as_torch_does_on_the_unpartitioned_model(schedule: str) -> None:
    """Stages on one device, replicas of them, overlapped pairs and split backwards are among these."""
    data = batches(3, samples=9)
    expected = reference(data, 0.05)
    found = clipped(schedule, data, max_norm=0.05)
    assert all(torch.allclose(found[key], expected[key], rtol=0, atol=1e-12) for key in expected)


def test_updates_that_are_clipped_over_the_model_stand_behind_all_gradients_of_a_device() -> None:
    graph = compiled("interleaved-1f1b", 2, 2)
    assert [graph.label(task) for task in graph.lane_range(0)][-2:] == ["0B1", "0U1"]
    made = Trainer(mlp(4), schedule="interleaved-1f1b", num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd, clip=1.0)
    with made:
        made.step(*batches(1)[0])
        later = made.timeline.graph
    assert [later.label(task) for task in later.lane_range(0)][-3:] == ["0B1", "0U1", "2U1"]


@pytest.mark.parametrize("gradient", [math.inf, math.nan])
def test_an_update_that_is_not_finite_is_left_out_on_all_stages_and_told_once(gradient: float) -> None:
    message = (
        "gradients of mini-batch 0 are not finite on stage 0: its update was left out on all stages; others like it are left out "
        "without a word, and Trainer.skipped_updates lists them"
    )
    with pytest.warns(SchedirWarning, match=message) as told:
        assert falls(1.0, (gradient, 4.0), steps=3) == [0.0, 0.0]
    assert len(told) == 1


def test_clipping_per_stage_leaves_out_the_update_of_that_stage() -> None:
    with pytest.warns(SchedirWarning, match="mini-batch 0 are not finite on stage 1: its update was left out on that stage"):
        assert falls(Clip(1.0, per="stage"), (3.0, math.inf)) == pytest.approx([1.0, 0.0], rel=1e-6)


def test_a_clip_without_a_limit_only_looks_whether_gradients_are_finite() -> None:
    assert falls(Clip()) == [3.0, 4.0]
    with pytest.warns(SchedirWarning, match="not finite on stage 1"):
        assert falls(Clip(), (3.0, math.nan)) == [0.0, 0.0]


@pytest.mark.parametrize("per", ["model", "stage"])
def test_gradients_that_are_not_finite_can_end_the_training_before_their_update(per: str) -> None:
    """As torch's error_if_nonfinite; the weights are what they were."""
    stages = [Scaled(3.0), Scaled(math.inf)]
    message = "gradients of mini-batch 0 are not finite on stage 1, so training ended before its update: lower the learning rate"
    with pytest.raises(RunError, match=message):
        trained(stages, Clip(1.0, per=per, non_finite="raise"))
    assert stages[1].w.item() == 0.0


def test_gradients_that_are_not_finite_can_be_applied_as_torch_does() -> None:
    assert all(map(math.isnan, falls(Clip(1.0, non_finite="apply"), (math.nan, 4.0))))
    first, second = falls(Clip(1.0, non_finite="apply"), (math.inf, 4.0))
    assert (math.isnan(first), second) == (True, 0.0)


def test_without_a_largest_norm_gradients_that_are_not_finite_are_applied_as_they_are() -> None:
    """Nothing is clipped, so parameters whose gradients are finite get those."""
    assert falls(Clip(non_finite="apply"), (math.inf, 4.0)) == [math.inf, 4.0]
    first, second = falls(Clip(non_finite="apply"), (math.nan, 4.0))
    assert (math.isnan(first), second) == (True, 4.0)


def test_what_was_left_out_is_listed() -> None:
    stages = [Scaled(3.0), Fails({1, 3})]
    with pytest.warns(SchedirWarning, match="mini-batch 1 are not finite on stage 1"):
        assert trained(stages, 10.0, steps=5) == (1, 3)
    assert [stage.w.item() for stage in stages] == [-9.0, -3.0]


class Fails(Scaled):
    """y = x + w, with a gradient that is infinite in some mini-batches of two micro-batches."""

    def __init__(self, mini_batches: set[int]) -> None:
        super().__init__(1.0)
        self.calls, self.mini_batches = 0, mini_batches

    def forward(self, x: Tensor) -> Tensor:
        mini_batch, self.calls = self.calls // 2, self.calls + 1
        return x + (math.inf if mini_batch in self.mini_batches else 1.0) * self.w


@pytest.mark.parametrize("schedule", [name for name, schedule in SCHEDULES.items() if schedule.continuous])
def test_a_continuous_schedule_has_no_norm_over_the_model(schedule: str) -> None:
    message = (
        f'{schedule} never has the gradients of all stages at one moment, .*: give clip=Clip\\(…, per="stage"\\), or use a schedule'
    )
    with pytest.raises(RefusedError, match=message):
        falls(1.0, schedule=schedule)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_norm": 0}, "clip: max_norm 0 is no norm: give a number above 0"),
        ({"max_norm": math.nan}, "clip: max_norm nan is no norm"),
        ({"max_norm": "1"}, "clip: max_norm '1' is of type str"),
        ({"max_norm": 1.0, "per": "layer"}, "clip: per 'layer' is unknown: use model or stage"),
        ({"non_finite": "ignore"}, "clip: non_finite 'ignore' is unknown: use skip or raise or apply"),
    ],
)
def test_a_wrong_clip_is_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Clip(**arguments)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("squares", [math.nan, math.inf])
def test_gradients_without_a_norm_become_no_numbers_as_torch_has_it(squares: float) -> None:
    """An infinite norm leaves 0 of what is finite, and no number of what is not."""
    gradients = [torch.tensor([1.0, math.inf]), None, torch.tensor([2.0])]
    first, nothing, last = Clip(1.0, non_finite="apply").clipped(gradients, squares)

    assert first is not None
    assert last is not None
    assert nothing is None
    assert first[1].isnan()
    for kept, whole in ((first[0], 1.0), (last[0], 2.0)):
        assert kept.isnan() if math.isnan(squares) else kept == 0 * whole


def test_squares_of_numbers_in_half_precision_may_be_too_large_for_it() -> None:
    """300 squared is 90,000, above float16's largest number, 65,504."""
    assert squares_of([torch.tensor([300.0], dtype=torch.float16), None, torch.tensor([400.0])]) == 250_000.0
    assert squares_of([None, torch.zeros(0)]) == 0.0

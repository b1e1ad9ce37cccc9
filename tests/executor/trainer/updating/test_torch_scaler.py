"""Loss scaling trains as torch's own scaler does on the model that was not cut, whatever the schedule."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from executor.model.cutting.split import split
from executor.trainer.trainer import Trainer
from executor.trainer.updating.loss_scaling import LossScale, LossScaling
from schedir.schedules.registry import SCHEDULES
from tests.executor.small.models import batches, mlp, sgd


@given(
    finite=st.lists(st.booleans(), max_size=40),
    scale=st.floats(1e-3, 1e6),
    growth=st.floats(1.01, 8.0),
    backoff=st.floats(0.05, 0.99),
    interval=st.integers(1, 4),
)
def test_the_scale_moves_as_that_of_torch(
    *, finite: list[bool], scale: float, growth: float, backoff: float, interval: int
) -> None:
    """To the last bit, with factors that are no powers of 2."""
    theirs = torch.amp.GradScaler("cpu", init_scale=scale, growth_factor=growth, backoff_factor=backoff, growth_interval=interval)
    ours = LossScale(LossScaling(scale, growth_factor=growth, backoff_factor=backoff, growth_interval=interval))
    weight = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    theirs.scale(torch.ones(1))
    for made in finite:
        weight.grad = torch.full((1,), 1.0 if made else math.inf)
        theirs.step(optimizer)
        theirs.update()
        ours.note(made=made)
        assert ours.value == theirs.get_scale()
    assert ours.plain()["made"] == theirs.state_dict()["_growth_tracker"]


def deep() -> nn.Sequential:
    """Layers of one kind in float32, whose gradients overflow float16 when scaled by 2^20."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(6)))


def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


DATA = [(inputs.float(), target.float() * 30) for inputs, target in batches(12, samples=8)]
SCALING = LossScaling(2.0**20, growth_interval=3)
MICRO_BATCHES = 4


def reference(max_norm: float | None) -> tuple[dict[str, Tensor], list[float], float]:
    """Train the unpartitioned model as torch's examples do, by accumulation; return weights, losses and the last scale."""
    model = deep()
    optimizer = adam(list(model.parameters()))
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALING.scale, growth_interval=SCALING.growth_interval)
    losses = []
    for inputs, target in DATA:
        optimizer.zero_grad()
        total = 0.0
        for part, wanted in zip(inputs.tensor_split(MICRO_BATCHES), target.tensor_split(MICRO_BATCHES), strict=True):
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.mse_loss(model(part), wanted)
            scaler.scale(loss / MICRO_BATCHES).backward()
            total += loss.item() / MICRO_BATCHES
        losses.append(total)
        if max_norm is not None:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        scaler.step(optimizer)
        scaler.update()
    return model.state_dict(), losses, scaler.get_scale()


@pytest.mark.parametrize("max_norm", [None, 0.05])
@pytest.mark.parametrize(("num_stages", "schedule"), [(1, "gpipe"), (2, "1f1b"), (3, "1f1b"), (3, "gpipe"), (2, "zb-h1")])
def test_it_trains_as_torch_s_scaler_does_on_the_whole_model(*, num_stages: int, schedule: str, max_norm: float | None) -> None:
    weights, losses, scale = reference(max_norm)
    found, trainer = trained_in_half(num_stages, schedule, clip=max_norm)

    assert trainer.loss_scale == scale
    assert scale < SCALING.scale
    assert 0 < len(trainer.skipped_updates) < len(DATA) - 3
    assert found[1] == pytest.approx(losses, rel=1e-5)
    assert all(torch.allclose(found[0][key], weights[key], rtol=1e-4, atol=1e-6) for key in weights)


def trained_in_half(num_stages: int, schedule: str, **options: Any) -> tuple[tuple[dict[str, Tensor], list[float]], Trainer]:
    with Trainer(
        split(deep(), num_stages),
        schedule=schedule,
        num_micro_batches=MICRO_BATCHES,
        loss=nn.functional.mse_loss,
        optimizer=adam,
        autocast=torch.float16,
        loss_scaling=SCALING,
        timeout=60,
        **options,
    ) as trainer:
        losses = [trainer.step(*pair).loss for pair in DATA]
        return (trainer.state_dict(), losses), trainer


def test_recomputation_and_replicas_change_nothing() -> None:
    (weights, _), plain = trained_in_half(2, "gpipe")
    for schedule, options in (("gpipe", {"recompute": "always"}), ("chimera", {})):
        (found, _), trainer = trained_in_half(2, schedule, **options)
        assert trainer.skipped_updates == plain.skipped_updates
        assert all(torch.allclose(found[key], weights[key], rtol=1e-4, atol=1e-6) for key in weights)


@pytest.mark.parametrize("schedule", [name for name, schedule in SCHEDULES.items() if not schedule.continuous])
def test_every_synchronous_schedule_trains_as_without_a_scale(schedule: str) -> None:
    """In float64 nothing overflows, and a power of 2 changes no digit."""

    def weights(**options: Any) -> dict[str, Tensor]:
        made = Trainer(
            mlp(4),
            schedule=schedule,
            num_micro_batches=8,
            loss=nn.functional.mse_loss,
            optimizer=sgd,
            timeout=60,
            **options,
        )
        with made:
            for mini_batch in batches(2, samples=9):
                made.step(*mini_batch)
            return made.state_dict()

    plain, scaled = weights(), weights(loss_scaling="dynamic")
    assert all(torch.equal(scaled[key], plain[key]) for key in plain)

"""BatchNorm's running statistics over whole mini-batches: what D11 says, whatever schedule, cut, recomputation or workers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from executor.stage.batch_norm import DeferredStatistics, Moments
from executor.trainer.trainer import Trainer
from executor.training import train
from schedir.errors import ArgumentError
from tests.executor.serial.scalar_cases import Scalar
from tests.executor.small.models import WIDTH, batches, compiled, pipeline_of, sgd

VALUES = torch.tensor([[0.0], [2.0], [4.0], [6.0]], dtype=torch.float64)


DEFERRED: tuple[Any, Any, int] = (pytest.approx(0.3, abs=1e-12), pytest.approx(1.566667, abs=5e-7), 1)
"""What `found` gives for the values 0, 2, 4, 6 in one mini-batch."""


def found(norm: nn.BatchNorm1d) -> tuple[float, float, int]:
    """Return running mean, running variance and how often they have moved."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    return norm.running_mean.item(), norm.running_var.item(), int(norm.num_batches_tracked)


@pytest.mark.parametrize(("recompute", "start"), [("never", "early"), ("always", "early"), ("always", "on-gradient")])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
def test_d11_deferred_statistics_are_those_of_the_whole_mini_batch(*, schedule: str, recompute: str, start: str) -> None:
    """Momentum 0.1, micro-batches [0, 2] and [4, 6]: 0.1 x 3, 0.9 + 0.1 x 20/3, moved once (plain: 0.59, 1.19, twice)."""
    norm = nn.BatchNorm1d(1).double()
    graph = compiled(schedule, 2, 2, recompute=recompute, recompute_start=start)
    train(graph, pipeline_of([norm, Scalar("1", "linear")], batch_norm="deferred"), [(VALUES, VALUES)], timeout=60)

    assert found(norm) == DEFERRED


def test_d11_a_trainer_defers_them_too() -> None:
    norm = nn.BatchNorm1d(1).double()
    options: dict[str, Any] = {"num_micro_batches": 2, "loss": nn.functional.mse_loss, "optimizer": sgd, "batch_norm": "deferred"}
    with Trainer([norm, Scalar("1", "linear")], **options) as trainer:
        trainer.step(VALUES, VALUES)
        assert found(norm) == DEFERRED


def layers() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Tanh()).double() for _ in range(6)]


def cut(num_stages: int) -> list[nn.Module]:
    every = layers()
    size = len(every) // num_stages
    return [nn.Sequential(*every[first : first + size]) for first in range(0, len(every), size)]


def statistics(weights: dict[str, Tensor]) -> list[Tensor]:
    return [value for key, value in weights.items() if "running" in key or "tracked" in key]


def trained(num_stages: int, schedule: str = "1f1b", *, num_micro_batches: int = 4, **options: Any) -> list[Tensor]:
    given: dict[str, Any] = {"loss": nn.functional.mse_loss, "optimizer": sgd, "batch_norm": "deferred", "timeout": 60.0}
    with Trainer(cut(num_stages), schedule=schedule, num_micro_batches=num_micro_batches, **(given | options)) as trainer:
        for inputs, target in batches(3, samples=16):
            trainer.step(inputs, target)
        trainer.drain()
        return statistics(trainer.state_dict())


@pytest.mark.parametrize(
    ("num_stages", "schedule", "options"),
    [
        (2, "1f1b", {}),
        (3, "gpipe", {"recompute": "always"}),
        (6, "interleaved-1f1b", {"num_micro_batches": 3, "stages_per_device": 2}),
    ],
)
def test_neither_cut_nor_schedule_nor_recomputation_changes_them(num_stages: int, schedule: str, options: dict[str, Any]) -> None:
    """The number of micro-batches does, since they are normalized one by one: what a layer gives the next depends on it."""
    expected = trained(1, num_micro_batches=options.get("num_micro_batches", 4))

    assert all(
        torch.allclose(*pair, rtol=0, atol=1e-12) for pair in zip(trained(num_stages, schedule, **options), expected, strict=True)
    )


@pytest.mark.parametrize("num_micro_batches", [1, 2, 4])
def test_the_first_layer_s_are_those_of_plain_training_on_uncut_mini_batches(num_micro_batches: int) -> None:
    """Its input does not depend on weights: so its statistics do not depend on the micro-batches either, unequal ones too."""
    data = batches(3, samples=13)
    plain = nn.BatchNorm1d(WIDTH).double()
    for inputs, _ in data:
        plain(inputs)
    stages = [nn.Sequential(nn.BatchNorm1d(WIDTH).double(), nn.Linear(WIDTH, WIDTH).double()), nn.Tanh()]
    train(compiled("1f1b", 2, num_micro_batches), pipeline_of(stages, batch_norm="deferred"), data, timeout=60)

    ours = stages[0].state_dict()
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        assert torch.allclose(ours[f"0.{name}"].double(), plain.state_dict()[name].double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("schedule", "devices", "micro_batches"), [("chimera", 2, 4), ("dualpipe", 2, 4)])
@pytest.mark.parametrize("recompute", ["never", "always"])
def test_replicas_put_their_shares_of_a_mini_batch_together(
    *, schedule: str, devices: int, micro_batches: int, recompute: str
) -> None:
    """Each runs half of the micro-batches: together they are the mini-batch, and all replicas have the same statistics."""
    data = batches(3, samples=13)
    plain = nn.BatchNorm1d(WIDTH).double()
    for inputs, _ in data:
        plain(inputs)
    graph = compiled(schedule, devices, micro_batches, recompute=recompute)
    first = nn.Sequential(nn.BatchNorm1d(WIDTH).double(), nn.Linear(WIDTH, WIDTH).double())
    pipeline = pipeline_of([first, *(nn.Tanh() for _ in range(graph.program.num_stages - 1))], batch_norm="deferred")
    train(graph, pipeline, data, timeout=60)

    for replica in range(2):
        ours = pipeline._copies[0, replica].module.state_dict()
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            assert torch.allclose(ours[f"0.{name}"].double(), plain.state_dict()[name].double(), rtol=0, atol=1e-12)


def test_weights_that_two_stages_hold_are_no_statistics() -> None:
    """The sum of a tie comes where that of replicas would: statistics and weights are those of their own."""
    norm, first, second = nn.BatchNorm1d(1).double(), Scalar("1", "linear"), Scalar("1", "linear")
    second.w = first.w
    stages = [nn.Sequential(norm, first), second]
    options: dict[str, Any] = {"num_micro_batches": 2, "loss": lambda output, _: output.mean(), "optimizer": sgd}
    with Trainer(stages, batch_norm="deferred", **options) as trainer:
        trainer.step(VALUES, VALUES)
    assert found(norm) == DEFERRED
    assert second.w is first.w
    assert first.w.item() == pytest.approx(1.0)  # what is normalized has the mean 0, and so has the gradient


def test_a_trainer_of_two_directions_has_the_statistics_of_one() -> None:
    expected = trained(1, "1f1b", clip=100.0)
    for found in (trained(2, "chimera"), trained(2, "chimera", clip=100.0, recompute="always")):
        assert all(torch.allclose(*pair, rtol=0, atol=1e-12) for pair in zip(found, expected, strict=True))


def test_without_a_flush_a_mini_batch_moves_them_with_its_own_update() -> None:
    """Forwards of the next mini-batches have run by then: they count later. Three mini-batches, drained: three moves."""
    norm = nn.BatchNorm1d(WIDTH).double()
    plain = nn.BatchNorm1d(WIDTH).double()
    data = batches(3, samples=8)
    for inputs, _ in data:
        plain(inputs)
    stages = [nn.Sequential(norm, nn.Linear(WIDTH, WIDTH).double()), nn.Linear(WIDTH, WIDTH).double()]
    options: dict[str, Any] = {"num_micro_batches": 2, "loss": nn.functional.mse_loss, "optimizer": sgd, "batch_norm": "deferred"}
    moved = []
    with Trainer(stages, schedule="pipedream", **options) as trainer:
        for inputs, target in data:
            assert trainer.step(inputs, target).loss > 0
            moved.append(int(norm.num_batches_tracked))  # type: ignore[arg-type]  # a tensor
        trainer.drain()
    assert moved == [0, 1, 2]
    assert torch.allclose(norm.running_mean, plain.running_mean, rtol=0, atol=1e-12)  # type: ignore[arg-type]  # there is one
    assert torch.allclose(norm.running_var, plain.running_var, rtol=0, atol=1e-12)  # type: ignore[arg-type]  # there is one


def test_an_evaluation_uses_them_and_leaves_them() -> None:
    norm = nn.BatchNorm1d(1).double()
    options: dict[str, Any] = {"num_micro_batches": 2, "loss": lambda output, _: output.mean(), "optimizer": sgd}
    with Trainer([norm, Scalar("1", "linear")], batch_norm="deferred", **options) as trainer:
        trainer.step(VALUES, VALUES)
        with torch.no_grad():
            norm.weight.fill_(1.0)
            norm.bias.zero_()
            trainer._engine.show_newest()
        scale = (1.5666666666666667 + norm.eps) ** -0.5
        w = trainer.state_dict()["1.w"].item()
        assert trainer.evaluate([(VALUES, VALUES)])["loss"] == pytest.approx((3.0 - 0.3) * scale * w, abs=1e-12)
    assert found(norm)[2] == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_images_count_every_place_and_a_layer_may_run_twice(dtype: torch.dtype) -> None:
    """Two calls in one forward are two parts of the same statistics, also where these need not be cast."""
    torch.manual_seed(0)
    norm, plain = nn.BatchNorm2d(3).to(dtype), nn.BatchNorm2d(3).to(dtype)
    parts = [torch.randn(size, 3, 5, 2, dtype=dtype) for size in (2, 3, 1)]
    deferred = DeferredStatistics(norm)
    with deferred.collecting(0):
        norm(parts[0])
        norm(parts[1])
    with deferred.collecting(0):
        norm(parts[2])
    assert norm.num_batches_tracked == 0
    deferred.commit(0)
    plain(torch.cat(parts))

    assert torch.allclose(norm.running_mean, plain.running_mean, atol=1e-6)  # type: ignore[arg-type]  # there is one
    assert torch.allclose(norm.running_var, plain.running_var, atol=1e-6)  # type: ignore[arg-type]  # there is one
    assert norm.num_batches_tracked == 1


@pytest.mark.parametrize("make", [lambda: nn.BatchNorm1d(2, momentum=None), lambda: nn.BatchNorm1d(2, momentum=0.7)])
def test_they_move_as_the_layer_itself_moves_them(make: Callable[[], nn.BatchNorm1d]) -> None:
    """Without momentum they are the mean over all mini-batches so far."""
    norm, plain = make().double(), make().double()
    deferred = DeferredStatistics(norm)
    generator = torch.Generator().manual_seed(0)
    for mini_batch in range(3):
        values = torch.randn(8, 2, generator=generator, dtype=torch.float64)
        for part in values.split(3):
            with deferred.collecting(mini_batch):
                norm(part)
        deferred.commit(mini_batch)
        plain(values)
        assert torch.allclose(norm.running_mean, plain.running_mean, atol=1e-14)  # type: ignore[arg-type]  # there is one
        assert torch.allclose(norm.running_var, plain.running_var, atol=1e-14)  # type: ignore[arg-type]  # there is one
    assert norm.momentum == plain.momentum


def test_an_update_moves_them_by_all_mini_batches_up_to_its_own_in_their_order() -> None:
    """Momentum 1/2; [0, 2] has mean 1 and variance 2, [4, 8] 6 and 8: means 0, 1/2, 13/4 and variances 1, 3/2, 19/4; the third
    mini-batch, [10, 10], moves them to 53/8 and 19/8 with its own update."""
    norm = nn.BatchNorm1d(1, momentum=0.5).double()
    deferred = DeferredStatistics(norm)
    for mini_batch, values in ((1, [4.0, 8.0]), (2, [10.0, 10.0]), (0, [0.0, 2.0])):
        with deferred.collecting(mini_batch):
            norm(torch.tensor(values, dtype=torch.float64).unsqueeze(1))
    deferred.commit(1)
    assert found(norm) == (3.25, 4.75, 2)
    deferred.commit(1)
    assert found(norm) == (3.25, 4.75, 2)
    deferred.commit(2)
    assert found(norm) == (6.625, 2.375, 3)


def test_what_a_mini_batch_had_before_a_run_began_is_forgotten() -> None:
    norm = nn.BatchNorm1d(1).double()
    deferred = DeferredStatistics(norm)
    with deferred.collecting(0):
        norm(VALUES)
    deferred.begin()
    deferred.commit(0)

    assert found(norm) == (0.0, 1.0, 0)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e8 + 0.1])
def test_shares_of_a_channel_that_is_the_same_everywhere_have_no_variance_below_0(value: float) -> None:
    """Rounding would leave it below: its square root is no number."""
    for count in range(2, 40):
        moments = Moments(float(count), torch.tensor([value], dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
        shared = Moments.of_sums(*moments.sums())
        assert shared is not None
        assert shared.squares.item() >= 0
        assert shared.squares.item() == pytest.approx(0.0, abs=1e-14 * count * value**2)


def test_a_layer_that_the_user_has_frozen_stays_so() -> None:
    norm = nn.BatchNorm1d(1).double().eval()
    before = found(norm)
    train(compiled("gpipe", 1, 2), pipeline_of([norm], batch_norm="deferred"), [(VALUES, VALUES)], timeout=60)

    assert found(norm) == before


def test_a_layer_gets_its_buffers_back_if_its_forward_fails() -> None:
    norm = nn.BatchNorm1d(2)
    buffers = dict(norm.named_buffers())
    with pytest.raises(ValueError, match="expected 2D or 3D input"), DeferredStatistics(norm).collecting(0):
        norm(torch.ones(1))

    assert all(buffer is buffers[name] for name, buffer in norm.named_buffers())
    assert (norm.momentum, len(norm._forward_hooks)) == (0.1, 0)


def test_another_way_is_named() -> None:
    with pytest.raises(ArgumentError, match="batch_norm 'late' is unknown: use plain or deferred"):
        pipeline_of([nn.Linear(1, 1)], batch_norm="late")

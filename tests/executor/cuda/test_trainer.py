"""A trainer on GPUs that are simulated: the same training as on threads, bit for bit, with every hand-over and slot in order."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from executor.recipe.ready_made import mlp as mlp_recipe
from executor.recipe.training_loop import train_recipe
from executor.recipe.training_outcome import Evaluation, TrainedMiniBatch, TrainingOutcome
from executor.recipe.training_plan import TrainingPlan
from executor.trainer import engine as engines
from executor.trainer.trainer import Trainer
from executor.workers.cuda import team
from executor.workers.cuda.gpu import UNUSED_STEPS
from executor.workers.cuda.ports import PeerChannel
from schedir.errors import RefusedError, RunError
from tests.executor.cuda.conftest import installed
from tests.executor.cuda.streams import Machine, RaceError
from tests.executor.cuda.watched import WatchedCrew
from tests.executor.small.models import batches, mlp, reference
from tests.executor.small.trainers import alive, assert_bit_equal, train_step_by_step, trainer


@pytest.mark.parametrize("part", [(team, "CudaWorkers"), (engines, "TrainingCrew")], ids=["workers", "crew"])
def test_gpus_are_let_go_of_once_where_a_trainer_cannot_be_built(
    part: tuple[ModuleType, str], two_gpus: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RefusedError("no")

    monkeypatch.setattr(*part, refuse)
    with pytest.raises(RefusedError, match="no"):
        trainer(2, "1f1b", 2, workers="cuda")
    assert two_gpus.num_closed == 2


Setup = tuple[str, int, int, dict[str, Any]]
"""(schedule, stages, micro-batches, options)."""

ON_TWO = [
    ("gpipe", 2, 3, {}),
    ("1f1b", 2, 4, {"clip": 0.05}),
    ("interleaved-1f1b", 4, 4, {}),
    ("zb-v", 4, 4, {}),
    ("chimera", 2, 4, {}),
    ("pipedream", 2, 1, {}),
    ("pipedream-2bw", 2, 3, {}),
    ("xpipe", 2, 2, {}),
    *(
        pytest.param(setup, marks=pytest.mark.slow)
        for setup in (
            ("1f1b", 2, 4, {"recompute": "always"}),
            ("dualpipev", 4, 4, {}),
            ("pipedream", 2, 3, {"weights": "vertical-sync"}),
            ("spectrain", 2, 2, {"recompute": "always"}),
        )
    ),
]
ON_FEWER_SLOW: list[Setup] = [
    ("1f1b", 5, 4, {}),
    ("interleaved-1f1b", 8, 4, {}),
    ("pipedream-2bw", 4, 4, {}),
    ("pipeoptim", 3, 2, {}),
]
ON_FEWER = [
    ("1f1b", 3, 4, {"clip": 0.05}),
    ("pipedream", 4, 1, {}),
    ("xpipe", 4, 2, {}),
    *(pytest.param(setup, marks=pytest.mark.slow) for setup in ON_FEWER_SLOW),
]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Machine]:
    """Return what installs so many GPUs on which everything that a trainer does is watched."""

    def install(count: int) -> Machine:
        machine = installed(monkeypatch, count)

        def make(*given: Any, workers: Any) -> WatchedCrew:
            crew = WatchedCrew(*given, workers=workers)
            crew.watch(machine, workers)
            return crew

        monkeypatch.setattr(engines, "TrainingCrew", make)
        return machine

    return install


def trained(setup: Setup, workers: str) -> tuple[list[float], dict[str, Tensor]]:
    """Train, drain on the way, and train on."""
    name, stages, micro_batches, options = setup
    data = batches(9, samples=micro_batches + 1)
    with trainer(stages, name, micro_batches, workers=workers, **options) as made:
        steps = [made.step(*pair) for pair in data[:5]]
        made.drain()
        steps += [made.step(*pair) for pair in data[5:]]
        made.drain()
        return [step.loss for step in steps], made.state_dict()


@pytest.mark.parametrize("setup", ON_TWO, ids=str)
def test_a_gpu_per_device_trains_like_threads_and_nothing_races(setup: Setup, watched: Callable[[int], Machine]) -> None:
    expected = trained(setup, "threads")
    watched(2)
    losses, weights = trained(setup, "cuda")
    assert losses == expected[0]
    assert_bit_equal(weights, expected[1])


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("setup", ON_FEWER, ids=str)
def test_devices_take_turns_on_fewer_gpus_and_train_the_same(setup: Setup, count: int, watched: Callable[[int], Machine]) -> None:
    expected = trained(setup, "threads")
    watched(count)
    losses, weights = trained(setup, "cuda")
    assert losses == pytest.approx(expected[0], rel=1e-12)
    for key, tensor in expected[1].items():
        torch.testing.assert_close(weights[key], tensor, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("count", [9, 12, *(pytest.param(count, marks=pytest.mark.slow) for count in (10, 11, 13))])
@pytest.mark.usefixtures("one_gpu")
def test_taking_turns_changes_no_version_however_long_it_trains(count: int) -> None:
    """Weights would differ by far more than by the order of sums if any stage had read another version."""

    def last(workers: str) -> tuple[list[float], dict[str, Tensor]]:
        return train_step_by_step(trainer(4, "pipedream", 1, workers=workers), batches(count))

    (losses, weights), expected = last("cuda"), last("threads")
    assert losses == pytest.approx(expected[0], rel=1e-12)
    for key, tensor in expected[1].items():
        torch.testing.assert_close(weights[key], tensor, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("one_gpu")
def test_replicas_that_take_mini_batches_in_turn_need_a_gpu_each() -> None:
    with pytest.raises(RefusedError, match="some would share one"):
        trainer(2, "pipedream", 1, workers="cuda", replicas=(2, 1))


def test_the_simulated_streams_find_a_step_that_does_not_wait_for_the_one_before(
    watched: Callable[[int], Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each hand-over has a port of its own, but slots are used again from step to step."""
    monkeypatch.setattr(PeerChannel, "take", lambda self: super(PeerChannel, self).take())
    watched(2)
    with pytest.raises(RaceError):
        trained(("1f1b", 2, 4, {}), "cuda")


@pytest.mark.parametrize("name", ["1f1b", "xpipe"])
@pytest.mark.usefixtures("two_gpus")
def test_an_evaluation_between_steps_has_the_figures_of_threads_and_leaves_no_trace(name: str) -> None:
    data, judged = batches(6), batches(2, seed=9)

    def run(workers: str) -> tuple[list[dict[str, float]], list[float]]:
        metrics = {"largest": lambda output, _: output.abs().max()}
        with trainer(2, name, 2, workers=workers, metrics=metrics, validation=judged) as made:
            before = made.evaluate()
            steps = [made.step(*pair) for pair in data[:3]]
            between = made.evaluate()
            steps += [made.step(*pair) for pair in data[3:]]
            made.drain()
            return [before, between, made.evaluate()], [step.loss for step in steps]

    assert run("cuda") == run("threads")


@pytest.mark.parametrize("name", ["1f1b", "pipedream"])
@pytest.mark.usefixtures("two_gpus")
def test_a_timeline_has_every_task_of_the_newest_mini_batches_in_order(name: str) -> None:
    with trainer(2, name, 2, workers="cuda") as made:
        for pair in batches(12):
            made.step(*pair)
        made.drain()
        timeline = made.timeline
    newest = timeline.graph.mini_batch > (0 if name == "1f1b" else 1) - 1  # without a flush the graph begins before them
    assert np.isfinite(timeline.start[newest]).all()
    assert np.isfinite(timeline.end[newest]).all()
    assert timeline.meta["workers"] == "cuda"
    assert timeline.meta["gpus"][1] == {"gpu": "simulated cuda:1", "allocated_bytes": 2, "reserved_bytes": 4}
    assert timeline.meta["clock"] > 0
    source, target, _ = timeline.graph.edges()
    late = timeline.start[target] < timeline.end[source] - timeline.meta["clock"] - 1e-3  # marks of a busy machine are wide
    assert not late.any()


@pytest.mark.usefixtures("two_gpus")
def test_a_timeline_of_steps_on_their_way_has_what_is_done() -> None:
    with trainer(2, "pipedream", 1, workers="cuda") as made:
        for pair in batches(6):
            made.step(*pair)
        timeline = made.timeline
    assert 0 < np.isfinite(timeline.start).sum() < timeline.graph.num_tasks


@pytest.mark.usefixtures("two_gpus")
def test_a_checkpoint_of_gpus_goes_on_anywhere_bit_for_bit(tmp_path: Path) -> None:
    data = batches(8, samples=4)

    def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=0.01)

    with trainer(2, "xpipe", 2, workers="cuda", optimizer=adam) as made:
        for pair in data[:4]:
            made.step(*pair)
        made.save(tmp_path)
        losses = [made.step(*pair).loss for pair in data[4:]]
    for workers in ("cuda", "threads"):
        with trainer(2, "xpipe", 2, workers=workers, optimizer=adam) as other:
            assert other.load(tmp_path).mini_batch == 4
            assert [other.step(*pair).loss for pair in data[4:]] == losses


@pytest.mark.usefixtures("two_gpus")
def test_rates_losses_and_seconds_are_those_of_steps() -> None:
    def halved(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    data = batches(4)
    losses, _ = reference(mlp(2), data[:1])
    with trainer(2, "1f1b", 4, workers="cuda", lr_scheduler=halved) as made:
        steps = [made.step(*pair) for pair in data]
        assert steps[0].loss == pytest.approx(losses[0], abs=1e-12)
        assert all(0 < step.seconds < 60 for step in steps)
        assert [step.loss for step in steps] == train_step_by_step(trainer(2, "1f1b", 4, lr_scheduler=halved), data)[0]


@pytest.mark.usefixtures("two_gpus")
def test_slots_of_shapes_that_do_not_come_again_are_given_up() -> None:
    with trainer(2, "1f1b", 1, workers="cuda") as made:
        for samples in range(1, 24):
            made.step(*batches(1, samples=samples)[0])
        gpus = made._engine.workers._gpus  # type: ignore[attr-defined]  # those of CUDA workers
        for gpu in gpus:
            assert 0 < len(gpu.slots._free) <= UNUSED_STEPS + 2


@pytest.mark.parametrize("name", ["1f1b", "pipedream"])
@pytest.mark.usefixtures("two_gpus")
def test_an_error_in_a_stage_is_raised_with_its_task_and_no_thread_is_left(name: str) -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.shape[0] == 3:
                raise ValueError("not three")
            return x * 1.0

    options: dict[str, Any] = {"loss": nn.functional.mse_loss, "optimizer": lambda given: torch.optim.SGD(given, lr=0.1)}
    made = Trainer([*mlp(1), Fails()], schedule=name, num_micro_batches=1, workers="cuda", **options)
    made.step(*batches(1, samples=2)[0])
    with pytest.raises(ValueError, match="not three") as raised:
        train_step_by_step(made, batches(3, samples=3))
    assert "1F1 (stage 1, micro-batch 0 of mini-batch 1)" in " ".join(raised.value.__notes__)
    with pytest.raises(RunError, match="this training has ended"):
        made.step(*batches(1)[0])
    assert alive() == []


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_that_never_comes_to_the_end_of_a_step_is_an_error_within_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    with trainer(2, "1f1b", 2, workers="cuda") as made:
        made.step(*batches(1)[0])
        monkeypatch.setattr(made._engine.stream, "_timeout_s", 0.5)  # behind a step that a busy machine may let take longer
        monkeypatch.setattr("executor.workers.cuda.workers.GpuFence.passed_at", lambda _: None)
        with pytest.raises(RunError, match=r"no task of device 0, device 1 ended for 0\.5 s: raise timeout"):
            made.step(*batches(1)[0])
    gc.collect()
    assert alive() == []


@pytest.mark.usefixtures("two_gpus")
def test_trainers_on_gpus_and_threads_take_turns_in_one_process() -> None:
    data = batches(6)
    alone = [train_step_by_step(trainer(2, name, 2), data) for name in ("xpipe", "1f1b")]
    with trainer(2, "xpipe", 2, workers="cuda") as first, trainer(2, "1f1b", 2) as second:
        steps = [(first.step(*pair), second.step(*pair)) for pair in data]
        first.drain()
        assert [step.loss for step, _ in steps] == alone[0][0]
        assert [step.loss for _, step in steps] == alone[1][0]
        assert_bit_equal(first.state_dict(), alone[0][1])
    assert alive() == []


class Silent:
    """Hears of a training, and keeps the norms of its gradients."""

    def __init__(self) -> None:
        self.norms: list[float | None] = []

    def began(self, mini_batch: int, checkpoint: Path | None) -> None:
        pass

    def evaluating(self, mini_batch: int) -> None:
        pass

    def saving(self, mini_batch: int) -> None:
        pass

    def trained(self, mini_batch: TrainedMiniBatch) -> None:
        self.norms.append(mini_batch.gradient_norm)

    def evaluated(self, evaluation: Evaluation) -> None:
        pass

    def saved(self, mini_batch: int, checkpoint: Path) -> None:
        pass


@pytest.mark.usefixtures("two_gpus")
def test_a_recipe_is_trained_evaluated_and_saved_on_gpus_as_on_threads(tmp_path: Path) -> None:
    heard = {workers: Silent() for workers in ("cuda", "threads")}

    def outcome(workers: str) -> TrainingOutcome:
        plan = TrainingPlan(
            schedule="xpipe",
            num_devices=2,
            num_micro_batches=2,
            num_stages=2,
            workers=workers,
            num_mini_batches=5,
            checkpoint_every=2,
        )
        torch.manual_seed(0)
        recipe = mlp_recipe(num_layers=4, width=8, mini_batch_size=8)
        return train_recipe(recipe, plan, folder=tmp_path / workers, resume=None, watch=heard[workers])

    found, expected = outcome("cuda"), outcome("threads")
    assert found.losses == expected.losses
    assert heard["cuda"].norms == heard["threads"].norms
    assert None not in heard["cuda"].norms
    assert found.timeline is not None
    assert found.timeline.meta["workers"] == "cuda"
    assert sorted(path.name for path in (tmp_path / "cuda").iterdir()) == sorted(
        path.name for path in (tmp_path / "threads").iterdir()
    )

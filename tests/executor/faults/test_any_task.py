"""A fault in any kind of task, on any stage: the first cause is raised and named, everything ends, nothing is left behind."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from executor.plan.actions import PlannedAction
from executor.stage.stage import StageRuntime
from executor.trainer.trainer import Trainer
from executor.training import train
from schedir.errors import RunError
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import build_program
from tests.executor.small.models import batches, compiled, mlp, pipeline_of, sgd
from tests.executor.small.trainers import alive
from tests.left_threads import left_since

METHODS = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.INPUT_GRAD: "input_grad",
    Kind.WEIGHT_GRAD: "weight_grad",
    Kind.RECOMPUTE: "recompute",
    Kind.UPDATE: "update",
    Kind.PREDICT: "predict",
}
SETUPS: list[tuple[str, dict[str, Any], tuple[Kind, ...]]] = [
    ("1f1b", {"recompute": "always"}, (Kind.FORWARD, Kind.RECOMPUTE, Kind.BACKWARD, Kind.UPDATE)),
    ("zb-h1", {}, (Kind.INPUT_GRAD, Kind.WEIGHT_GRAD)),
    ("xpipe", {"num_mini_batches": 4}, (Kind.FORWARD, Kind.PREDICT, Kind.BACKWARD, Kind.UPDATE)),
]
CASES = [(name, options, kind, stage) for name, options, kinds in SETUPS for kind in kinds for stage in range(3)]
IDS = [f"{name} {stage}{kind.letter}" for name, _, kind, stage in CASES]
BOUND_S = 60.0
"""Far more than an end may take, and far less than the timeout of a wait."""


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    before, threads = threading.enumerate(), torch.get_num_threads()
    yield
    assert left_since(before, bound_s=BOUND_S) == []
    assert torch.get_num_threads() == threads


def fails_at(patch: pytest.MonkeyPatch, kind: Kind, stage: int, *, of_micro_batch: Callable[[int], bool]) -> list[str]:
    """Let the tasks of a kind fail on a stage; return where the label of the one that does is put."""
    method: Any = getattr(StageRuntime, METHODS[kind])
    failed: list[str] = []

    def faulty(runtime: StageRuntime, action: PlannedAction, *values: Any) -> Any:
        if runtime.number == stage and of_micro_batch(action.micro_batch) and not failed:
            failed.append(f"{stage}{kind.letter}{action.micro_batch}")
            raise LookupError("the cause")
        return method(runtime, action, *values)

    patch.setattr(StageRuntime, METHODS[kind], faulty)
    return failed


def graph_of(name: str, options: dict[str, Any]) -> TaskGraph:
    return compiled(name, 3, 4, **dict(options))


@pytest.mark.parametrize(("name", "options", "kind", "stage"), CASES, ids=IDS)
def test_an_error_in_any_task_of_a_graph_is_raised_with_its_task(
    monkeypatch: pytest.MonkeyPatch, *, name: str, options: dict[str, Any], kind: Kind, stage: int
) -> None:
    failed = fails_at(monkeypatch, kind, stage, of_micro_batch=lambda micro_batch: micro_batch >= 1)
    stages = mlp(3)
    parameters = list(nn.Sequential(*stages).parameters())
    with pytest.raises(LookupError, match="the cause") as caught:
        train(graph_of(name, options), pipeline_of(stages), batches(4), workers="threads", timeout=2 * BOUND_S)

    assert any(note.startswith(f"in {failed[0]} on device {stage}") for note in caught.value.__notes__)
    assert all(ours is theirs for ours, theirs in zip(nn.Sequential(*stages).parameters(), parameters, strict=True))


@pytest.mark.parametrize(("name", "options", "kind", "stage"), CASES, ids=IDS)
def test_an_error_in_any_task_of_a_step_is_raised_with_its_task_and_closes_the_trainer(
    monkeypatch: pytest.MonkeyPatch, *, name: str, options: dict[str, Any], kind: Kind, stage: int
) -> None:
    failed = fails_at(monkeypatch, kind, stage, of_micro_batch=lambda micro_batch: micro_batch >= 5)
    stages = mlp(3)
    given = {key: value for key, value in options.items() if key != "num_mini_batches"}
    trainer = Trainer(
        stages, schedule=name, num_micro_batches=4, loss=nn.functional.mse_loss, optimizer=sgd, timeout=2 * BOUND_S, **given
    )
    with pytest.raises(LookupError, match="the cause") as caught:
        steps_and_a_drain(trainer)

    assert any(note.startswith(f"in {failed[0]} (stage {stage}, ") for note in caught.value.__notes__)
    assert all(bool(weight.isfinite().all()) for weight in trainer.state_dict().values())
    with pytest.raises(RunError, match="this training has ended: make a new Trainer, from a checkpoint if there is one"):
        trainer.step(*batches(1)[0])
    assert alive() == []


def steps_and_a_drain(trainer: Trainer) -> None:
    with trainer:
        for mini_batch in batches(4):
            trainer.step(*mini_batch)
        trainer.drain()


@pytest.mark.parametrize("half", [Kind.FORWARD, Kind.BACKWARD])
def test_an_error_in_half_of_an_overlapped_pair_is_raised_with_the_pair(monkeypatch: pytest.MonkeyPatch, half: Kind) -> None:
    program = build_program("dualpipev", num_devices=2, num_micro_batches=6)
    stages = mlp(program.num_stages)
    pairs = [task for tasks in program.orders() for task in tasks if hasattr(task, "forward")]
    assert pairs
    pair = pairs[0]
    own = pair.forward if half is Kind.FORWARD else pair.backward  # type: ignore[union-attr]  # an overlapped pair
    method = METHODS[own.kind]
    original: Any = getattr(StageRuntime, method)

    def faulty(runtime: StageRuntime, action: PlannedAction, *values: Any) -> Any:
        if (runtime.number, action.micro_batch) == (own.stage, own.micro_batch):
            raise LookupError("the cause")
        return original(runtime, action, *values)

    monkeypatch.setattr(StageRuntime, method, faulty)
    with pytest.raises(LookupError, match="the cause"):
        train(compiled("dualpipev", 2, 6), pipeline_of(stages), batches(1, samples=12), workers="threads", timeout=2 * BOUND_S)


@pytest.mark.parametrize("stage", range(3))
def test_an_error_in_an_evaluation_is_raised_with_its_stage_and_training_goes_on(stage: int) -> None:
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not self.training:
                raise LookupError("the cause")
            return x * 1.0

    stages = mlp(3)
    stages[stage] = nn.Sequential(stages[stage], Fails())
    with Trainer(stages, num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd, timeout=2 * BOUND_S) as trainer:
        trainer.step(*batches(1)[0])
        with pytest.raises(LookupError, match="the cause") as caught:
            trainer.evaluate(batches(2))
        assert trainer.step(*batches(1)[0]).loss > 0

    assert any(f"in the evaluation of stage {stage}, micro-batch 0 on device {stage}" in note for note in caught.value.__notes__)
    assert all(module.training for module in stages)
    assert alive() == []

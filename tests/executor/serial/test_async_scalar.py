"""Real training gives the numbers of the scalar cases: what is read, predicted, lost and learned."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from executor.plan.actions import PlannedAction
from executor.stage.stage import StageRuntime
from executor.stage.weights import StageWeights, WeightSet
from executor.training import Run
from schedir.compiler import compile_program
from schedir.ir.action import Kind
from schedir.schedules.registry import build_program
from tests.executor.serial.scalar_cases import ALL, TRAINED, Case, load

TOLERANCE = 1e-9

SEQUENTIAL = {
    "d29_sequential_sgd": "d29_pipedream_stash",
    "sequential_p2_T2_adam_8": "xpipe_p2_T2_exact_adam_8",
    "sequential_p3_sgdm_6": "pipeoptim_p3_sgdm",
}
"""Training one mini-batch after the other, and a case on the same weights, data and optimizer."""


class ReadValues:
    """Notes the value of the weight that every action reads, makes or predicts, on its way through the stages."""

    def __init__(self, patch: pytest.MonkeyPatch, case: Case) -> None:
        self.by_task: dict[int, float] = {}
        self._graph = case.graph
        read, predict, update = StageWeights.read, StageWeights.predict, StageRuntime.update

        def noted_update(stage: StageRuntime, action: PlannedAction, *totals: Any) -> None:
            update(stage, action, *totals)
            self.note(action, stage.weights.newest)

        patch.setattr(StageWeights, "read", lambda weights, action: self.note(action, read(weights, action)))
        patch.setattr(StageWeights, "predict", lambda weights, action: self.note(action, predict(weights, action)))
        patch.setattr(StageRuntime, "update", noted_update)

    def note(self, action: PlannedAction, weights: WeightSet) -> WeightSet:
        self.by_task[action.task] = weights.leaves[0].item()
        return weights

    def by_label(self) -> dict[str, float]:
        """By the case's names: action, with @q for replica q of a replicated stage."""
        hosts = self._graph.stage_devices()
        names = {}
        for index, value in self.by_task.items():
            task = self._graph.task(index)
            replica = f"@{hosts[task.stage].index(task.device)}" if len(hosts[task.stage]) > 1 else ""
            if task.kind is not Kind.PREDICT:
                names[f"{task}{replica}"] = value
        return names


@cache
def trained(name: str) -> tuple[Case, Run]:
    case = load(name)
    return case, case.train()


@pytest.mark.parametrize("name", TRAINED)
def test_losses_and_final_weights_are_those_worked_out(name: str) -> None:
    case, run = trained(name)

    assert case.distance() < TOLERANCE
    assert run.losses == pytest.approx([float(loss) for loss in case.values["losses"]], abs=TOLERANCE)


@pytest.mark.parametrize("name", TRAINED)
def test_every_action_reads_the_weights_worked_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = load(name)
    read = ReadValues(monkeypatch, case)
    case.train()

    values = read.by_label()
    expected = {action: float(weight) for action, _, _, weight in case.values["reads"]}
    assert {action: values[action] for action in expected} == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("name", TRAINED)
def test_what_was_read_is_what_the_graph_names(name: str) -> None:
    case, run = trained(name)
    reads = run.reads

    compute = slice(0, case.graph.num_compute_tasks)
    assert np.array_equal(reads.version, case.graph.version[compute])
    assert np.array_equal(reads.horizon, case.graph.horizon[compute])


@pytest.mark.parametrize("name", TRAINED)
def test_the_graph_names_the_versions_horizons_and_predictions_worked_out(name: str) -> None:
    case = load(name)
    hosts = case.graph.stage_devices()
    reads, predictions = {}, []
    for task in list(case.graph.tasks())[: case.graph.num_compute_tasks]:
        replica = f"@{hosts[task.stage].index(task.device)}" if len(hosts[task.stage]) > 1 else ""
        if task.kind is Kind.PREDICT:
            predictions.append([task.stage, task.direction.name[0], task.mini_batch, task.version, task.horizon])
        else:
            reads[f"{task}{replica}"] = (task.version, task.horizon)

    expected = {action: (version, horizon) for action, version, horizon, _ in case.values["reads"]}
    assert {action: reads[action] for action in expected} == expected
    assert sorted(predictions) == sorted(case.values["predictions"])


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("name", SEQUENTIAL)
def test_with_a_flush_the_final_weights_are_those_of_sequential_training(name: str, schedule: str) -> None:
    case = load(SEQUENTIAL[name])
    shape = case.graph.program
    program = build_program(
        schedule,
        num_devices=shape.num_stages,
        num_micro_batches=shape.num_micro_batches,
        num_mini_batches=shape.num_mini_batches,
    )
    case = replace(case, graph=compile_program(program))
    case.train()

    assert case.final_weights() == pytest.approx([float(weight) for weight in ALL[name]["final_16"]], abs=TOLERANCE)

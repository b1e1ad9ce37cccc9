"""What all stages decide together waits in training where it waits in the graph, so that predictions can be compared with it."""

import pytest
import torch
from torch import nn

from executor.emulation import emulate
from executor.model.pipeline import Pipeline
from executor.trainer.trainer import Trainer
from executor.trainer.updating.clipping import Clip
from executor.training import train
from schedir.compiler import compile_program
from schedir.costs.uniform import UniformCosts
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import build_program
from schedir.timeline.comparison.compare import compare
from schedir.timeline.timeline import Timeline
from simulator import simulate
from tests.executor.small.models import assert_dependencies_kept, batches, mlp, pipeline_of, sgd
from tests.programs import lane_of, written

SCHEDULES = ["gpipe", "1f1b", "interleaved-1f1b", "chimera", "zb-v"]


def common(name: str, devices: int, *, micro_batches: int = 4, mini_batches: int = 1) -> TaskGraph:
    program = build_program(name, num_devices=devices, num_micro_batches=micro_batches, num_mini_batches=mini_batches)
    return compile_program(program, common_update=True)


def trained(schedule: object, stages: int, **options: object) -> Timeline:
    """Train three steps; return the median one."""
    with Trainer(
        mlp(stages),
        schedule=schedule,  # type: ignore[arg-type]  # a name or a program
        loss=nn.functional.mse_loss,
        optimizer=sgd,
        workers="threads",
        timeout=60,
        num_micro_batches=4 if isinstance(schedule, str) else None,
        **options,  # type: ignore[arg-type]  # options of any type
    ) as trainer:
        for pair in batches(3):
            trainer.step(*pair)
        return trainer.timeline


def task_of(timeline: Timeline, label: str) -> int:
    return next(task for task in range(timeline.graph.num_compute_tasks) if timeline.graph.label(task) == label)


def test_the_last_stage_updates_behind_the_first_ones_last_backward_as_predicted() -> None:
    """F = 1, B = 2: 3B3 ends at 15, and 0B3 at 21, for which 3U3 waits: 6 of its device's 21 s, here ms, drain without it."""
    graph = common("1f1b", 4)
    measured, predicted = emulate(graph, UniformCosts(forward=1e-3, backward=2e-3)), simulate(graph, UniformCosts())
    last, first = task_of(measured, "3U3"), task_of(measured, "0B3")

    assert (predicted.start[last], predicted.end[first]) == (21.0, 21.0)
    assert measured.start[last] >= measured.end[first]
    assert_dependencies_kept(measured)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_trainer_that_clips_trains_and_measures_the_graph_with_the_edges(schedule: str) -> None:
    measured = trained(schedule, 4, clip=0.05)

    assert measured.graph.options.common_update
    assert measured.recorded.all()
    assert_dependencies_kept(measured)


def test_its_timeline_is_compared_with_the_prediction_of_the_same_graph() -> None:
    measured = trained("1f1b", 4, clip=0.05)
    graph = common("1f1b", 4)
    report = compare(simulate(graph, UniformCosts()), measured)

    assert report.order_agreement == (1.0, 1.0, 1.0, 1.0)
    assert measured.graph.edge_source.tolist() == graph.edge_source.tolist()


def test_a_scaler_that_skips_on_all_stages_compiles_the_edges_in() -> None:
    assert trained("gpipe", 2, loss_scaling="dynamic").graph.options.common_update


def test_whoever_decides_stage_by_stage_waits_for_nobody() -> None:
    assert not trained("gpipe", 2, clip=Clip(0.05, per="stage")).graph.options.common_update
    assert not trained("gpipe", 2).graph.options.common_update


def test_updates_of_a_program_of_ones_own_move_behind_all_gradients() -> None:
    program = written("0F0 2F0 2B0 2U0 0B0 0U0", "1F0 3F0 3B0 3U0 1B0 1U0", m=1, stages=4)
    measured = trained(program, 4, clip=0.05)

    assert [str(entry) for entry in measured.graph.program.order(1)] == ["1F0", "3F0", "3B0", "1B0", "1U0", "3U0"]
    assert_dependencies_kept(measured)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_train_waits_too_where_nobody_has_anything_to_decide(schedule: str) -> None:
    """Pass after pass: the meeting of one is over when the next begins."""
    graph = common(schedule, 2, mini_batches=2)
    plain = compile_program(graph.program)
    stages, again = mlp(graph.program.num_stages), mlp(graph.program.num_stages)
    run, other = (
        train(each, pipeline_of(own), batches(6), workers="threads", timeout=60) for each, own in ((graph, stages), (plain, again))
    )

    assert run.losses == other.losses
    assert len(run.timelines) == 3
    for timeline in run.timelines:
        assert timeline.recorded.all()
        assert_dependencies_kept(timeline)


def test_on_one_device_the_order_is_enough() -> None:
    graph = compile_program(written("0F0 1F0 1B0 0B0", m=1, stages=2), common_update=True)
    pipeline = Pipeline(mlp(2), loss=nn.functional.mse_loss, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    timeline = train(graph, pipeline, batches(1), workers="threads", timeout=60).timeline

    assert lane_of(timeline.graph, 0) == "0F0 1F0 1B0 0B0 0U0 1U0"
    assert timeline.recorded.all()
    assert trained(graph.program, 2, clip=0.05).recorded.all()

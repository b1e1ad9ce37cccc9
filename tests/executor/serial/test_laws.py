"""What holds when any registered schedule, and any program of no schedule, is really trained."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import nn

from executor.model.stages import Stages
from executor.training import train
from schedir.compiler import compile_program
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.program import Program
from schedir.ir.weights import Rule
from schedir.lowering.recompute import MODES
from tests.executor.serial.serial_programs import train_by_graph
from tests.executor.small.models import assert_dependencies_kept, batches, compiled, mlp, pipeline_of, reference
from tests.executor.small.skipping import fan, pipeline_with, train_whole, unet
from tests.made_up import flushed_programs, made_up_programs
from tests.strategies import compile_options, incomplete_rounds, programs

pytestmark = pytest.mark.law

TRAINED_MODES = tuple(mode for mode in MODES if mode != "selective")


PLAIN = programs(most_devices=4, most_tasks=120) | made_up_programs(recomputed=True) | flushed_programs(recomputed=True)
ALL = PLAIN | incomplete_rounds()


@st.composite
def trained_graphs(draw: st.DrawFn, source: SearchStrategy[Program] = ALL) -> TaskGraph:
    program = draw(source)
    return compile_program(program, **draw(compile_options(program, skips=False, modes=TRAINED_MODES)))


@given(trained_graphs())
def test_what_is_read_is_what_the_graph_names_and_every_task_waits_for_what_it_needs(graph: TaskGraph) -> None:
    data = batches(graph.program.num_mini_batches, samples=graph.program.num_micro_batches)
    run = train(graph, pipeline_of(mlp(graph.program.num_stages)), data, timeout=60)
    compute = slice(0, graph.num_compute_tasks)

    assert np.array_equal(run.reads.version, graph.version[compute])
    assert np.array_equal(run.reads.horizon, graph.horizon[compute])
    assert np.array_equal(run.reads.pair_version, graph.pairs.version)
    assert np.array_equal(run.reads.pair_horizon, graph.pairs.horizon)
    assert run.timeline.recorded.all()
    assert_dependencies_kept(run.timeline)


@given(trained_graphs(PLAIN).filter(lambda graph: graph.program.weights.rule is Rule.LATEST))
def test_a_synchronous_graph_trains_as_the_unpartitioned_model(graph: TaskGraph) -> None:
    data = batches(graph.program.num_mini_batches, samples=graph.program.num_micro_batches + 1)
    losses, gradients = reference(mlp(graph.program.num_stages), data)
    run = train(graph, pipeline_of(mlp(graph.program.num_stages)), data, timeout=60)

    assert run.losses == pytest.approx(losses, abs=1e-10)
    for key, gradient in gradients.items():
        assert torch.allclose(run.gradients[key], gradient, rtol=0, atol=1e-10)


@given(trained_graphs())
def test_any_graph_trains_as_a_serial_execution_of_its_versions(graph: TaskGraph) -> None:
    """Whatever its forwards, backwards and recomputations read: stashed, newest, predicted, those of a round of replicas."""
    data = batches(graph.program.num_mini_batches, samples=graph.program.num_micro_batches + 1)
    losses, weights = train_by_graph(graph, mlp(graph.program.num_stages), data)
    run = train(graph, pipeline_of(mlp(graph.program.num_stages)), data, timeout=60)

    assert run.losses == pytest.approx(losses, abs=1e-10)
    for key, value in run.state_dict().items():
        assert torch.allclose(value, weights[key], rtol=0, atol=1e-10), key


@given(st.data(), st.sampled_from([unet, fan]))
def test_stages_with_skips_train_as_the_unpartitioned_model_in_any_order(
    data: st.DataObject, make: Callable[[int], Stages]
) -> None:
    program = data.draw(flushed_programs())
    made = pipeline_with(make(program.num_stages))
    options = data.draw(compile_options(program, skips=False, modes=TRAINED_MODES))
    graph = compile_program(program, **{**options, "skips": made.skips})
    samples = batches(program.num_mini_batches, samples=program.num_micro_batches + 1)
    losses, weights = train_whole(make(program.num_stages), samples)
    run = train(graph, made, samples, timeout=60)

    assert run.losses == pytest.approx(losses, abs=1e-10)
    for key, value in run.state_dict().items():
        assert torch.allclose(value, weights[key], rtol=0, atol=1e-10), key


@given(st.data())
def test_stages_with_the_same_weights_train_as_the_unpartitioned_model_in_any_order(data: st.DataObject) -> None:
    program = data.draw(flushed_programs().filter(lambda drawn: drawn.num_stages > 1))
    numbers = st.integers(0, program.num_stages - 1)
    same = data.draw(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=3))
    made = pipeline_of(tied_mlp(program.num_stages, same))
    options = data.draw(compile_options(program, skips=False, modes=TRAINED_MODES))
    graph = compile_program(program, **options, ties=made.ties)
    samples = batches(program.num_mini_batches, samples=program.num_micro_batches + 1)
    whole = tied_mlp(program.num_stages, same)
    losses, _ = reference(whole, samples)
    run = train(graph, made, samples, timeout=60)

    assert run.losses == pytest.approx(losses, abs=1e-10)
    found = nn.Sequential(*made.stages).state_dict()
    for key, value in nn.Sequential(*whole).state_dict().items():
        assert torch.allclose(found[key], value, rtol=0, atol=1e-10), key


def tied_mlp(num_stages: int, same: list[tuple[int, int]]) -> list[nn.Module]:
    """Stages of which some have the weights of the first layer of others as those of their second."""
    stages = mlp(num_stages)
    for one, other in same:
        first, second = stages[one].get_submodule("0"), stages[other].get_submodule("2")
        assert isinstance(first, nn.Linear)
        assert isinstance(second, nn.Linear)
        second.weight = first.weight
    return stages


@given(trained_graphs())
def test_every_stage_ends_with_as_many_updates_as_the_graph_has(graph: TaskGraph) -> None:
    """With gradients of 1 and a rate of 1 a weight falls by the number of its updates."""

    class Falls(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros((), dtype=torch.float64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.w

    stages = [Falls() for _ in range(graph.program.num_stages)]
    pipeline = pipeline_of(stages, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0))
    pipeline.loss = lambda output, _: output.mean()
    train(graph, pipeline, batches(graph.program.num_mini_batches, samples=graph.program.num_micro_batches), timeout=60)
    updates = graph.kind == Kind.UPDATE

    made = [int(graph.version[updates & (graph.stage == stage)].max()) for stage in range(graph.program.num_stages)]
    assert [round(-stage.w.item(), 9) for stage in stages] == made


def test_selective_recomputation_is_refused() -> None:
    with pytest.raises(ValueError, match='recompute "selective" is known to cost models only'):
        train(compiled("gpipe", 2, 2, recompute="selective"), pipeline_of(mlp(2)), batches(1))

"""What a profile says of skip connections, tied weights and predictors is what really travels and is held."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from executor.model.pipeline import Pipeline
from executor.model.skips import Skip
from executor.model.stages import Stages
from executor.profiling.options import ProfileOptions
from executor.profiling.profiling import profile
from executor.recipe.recipe import Recipe
from executor.stage.stage import StageRuntime
from executor.training import train
from schedir.compiler import compile_program
from schedir.costs.table.meaning import Granularity
from schedir.costs.table.table import TableCosts
from schedir.ir.action import Direction, Kind
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import build_program
from schedir.timeline.timeline import MemoryClass, MemorySteps
from simulator import simulate
from tests.executor.small.models import WIDTH, batches, mlp, pipeline_of
from tests.executor.small.tied import LENGTH as WORDS_OF_SAMPLE
from tests.executor.small.tied import WIDTH as EMBEDDED
from tests.executor.small.tied import WORDS, adam, gpt, loss, texts

SIZE = 4
"""Samples of a micro-batch."""
NUMBER = 8
"""Bytes of a float64."""


class Widening(nn.Module):
    """Gives its output to the next stage, and some copies of it to stages further on."""

    def __init__(self, *copies: int) -> None:
        super().__init__()
        self.linear, self.copies = nn.Linear(WIDTH, WIDTH).double(), copies

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = torch.tanh(self.linear(x))
        return (y, *(y.repeat(1, count) for count in self.copies))


class Joining(Widening):
    def forward(self, x: Tensor, *wide: Tensor) -> Any:
        y = torch.tanh(self.linear(x)) + sum(part[:, :WIDTH] for part in wide)
        return (y, *(y.repeat(1, count) for count in self.copies)) if self.copies else y


def skipping() -> Stages:
    """Return four stages: from 0 something three times as wide as the output goes to 2, five times to 3; from 1 twice to 3."""
    torch.manual_seed(0)
    return Stages([Widening(3, 5), Joining(2), Joining(), Joining()], skips=[Skip(0, 2, 1), Skip(0, 3, 2), Skip(1, 3, 1)])


def profiled(stages: Any, by: Granularity = Granularity.STAGE, **given: Any) -> TableCosts:
    recipe: dict[str, Any] = {
        "loss": nn.functional.mse_loss,
        "optimizer": torch.optim.SGD,
        "data": lambda _: iter(batches(30)),
    } | given
    options = ProfileOptions(by=by, repeats=2, warm_up=1, num_micro_batches=2, micro_batch_size=SIZE, recompute=False)
    return profile(Recipe(stages=stages, **recipe), options)


def memory(graph: TaskGraph, costs: TableCosts) -> list[MemorySteps]:
    """Return the memory that is predicted for every device."""
    predicted = simulate(graph, costs).memory
    assert predicted is not None
    return list(predicted)


def amounts(costs: TableCosts, name: str) -> list[float | None]:
    return [getattr(row.bytes, name) for row in costs.rows]


def test_what_goes_over_skip_connections_is_no_part_of_the_output_to_the_next_stage() -> None:
    """Of two that begin at stage 0 the mean: 3 and 5 times the output make 4 times, twice."""
    costs = profiled(skipping())
    one = SIZE * WIDTH * NUMBER

    assert amounts(costs, "output") == [one] * 4
    assert amounts(costs, "skip") == [4 * one, 2 * one, None, None]
    assert amounts(costs, "tied") == [None] * 4


def test_a_skip_connection_begins_behind_the_last_layer_of_its_stage() -> None:
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(WIDTH, WIDTH).double(), Widening(3))
    costs = profiled(Stages([first, nn.Tanh(), Joining()], skips=[Skip(0, 2)]), Granularity.LAYER)
    one = SIZE * WIDTH * NUMBER

    assert amounts(costs, "skip") == [None, 3 * one, None, None]
    assert amounts(costs.cut((2, 1, 1)), "output") == [one] * 4


def sent(graph: TaskGraph, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> dict[Direction, int]:
    """Train one mini-batch, and return the bytes of all messages by their direction."""
    found = dict.fromkeys(Direction, 0)

    def watch(name: str, direction: Direction, tensors: Callable[[Any], list[Any]]) -> None:
        method = getattr(StageRuntime, name)

        def watched(stage: StageRuntime, *args: Any) -> Any:
            made = method(stage, *args)
            if direction is Direction.FORWARD or stage.number:  # no gradient goes to the data
                found[direction] += sum(tensor.nbytes for tensor in tensors(made) if tensor is not None)
            return made

        monkeypatch.setattr(StageRuntime, name, watched)

    def of_messages(made: Any) -> list[Tensor]:
        messages = made if isinstance(made, tuple) else () if made is None else (made,)
        return [tensor for message in messages for tensor in message.tensors]

    def of_gradients(made: Any) -> list[Tensor | None]:
        return [tensor for part in made for tensor in (part if isinstance(part, tuple) else (part,))]

    watch("forward", Direction.FORWARD, of_messages)
    watch("backward", Direction.BACKWARD, of_gradients)
    train(graph, pipeline, batches(1), timeout=60)
    return found


def test_transfers_have_the_bytes_that_a_training_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, costs = pipeline_of(skipping()), profiled(skipping())
    graph = compile_program(build_program("1f1b", num_devices=4, num_micro_batches=2), skips=pipeline.skips)
    sizes = costs.bytes_of_transfers(graph)
    assert sizes is not None
    direction = graph.direction[graph.num_compute_tasks : graph.num_compute_tasks + len(sizes)]

    predicted = {way: sizes[direction == way].sum() for way in Direction}
    assert predicted == sent(graph, pipeline, monkeypatch)


def test_tied_weights_are_those_that_another_stage_holds_too() -> None:
    """The embedding of stage 0 is the head of stage 2; layers count theirs."""
    one = WORDS * EMBEDDED * NUMBER
    given = {"loss": loss, "optimizer": adam, "data": lambda _: iter(texts(30))}
    for by in Granularity:
        costs = profiled(gpt(3), by, **given)
        assert amounts(costs, "tied") == [one, 0.0, one]
        assert WORDS_OF_SAMPLE * EMBEDDED * NUMBER not in amounts(costs, "tied")  # places belong to stage 0 alone


def test_stages_of_a_tie_on_one_device_are_predicted_to_hold_it_once() -> None:
    """Three stages on one device: weights, and Adam's two moments of them, of the embedding once; its gradients twice."""
    costs = profiled(gpt(3), loss=loss, optimizer=adam, data=lambda _: iter(texts(30)))
    program = build_program("interleaved-1f1b", num_devices=1, num_micro_batches=2, stages_per_device=3)
    held = [memory(compile_program(program, ties=ties), costs)[0].by_class[0] for ties in ((), ((0, 2),))]
    saved = dict(zip(MemoryClass, (held[0] - held[1]).tolist(), strict=True))
    tied = WORDS * EMBEDDED * NUMBER

    assert saved[MemoryClass.WEIGHTS] == tied
    assert saved[MemoryClass.OPTIMIZER] == pytest.approx(2 * tied, rel=0.1)  # beside the count of steps of every parameter
    assert saved[MemoryClass.GRADIENTS] == 0


OPTIMIZERS: dict[str, tuple[Callable[[list[nn.Parameter]], torch.optim.Optimizer], int]] = {
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.1), 1),
    "momentum": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 0),
    "nesterov": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), 1),
    "rmsprop": (lambda p: torch.optim.RMSprop(p, lr=0.1), 1),
    "adam": (lambda p: torch.optim.Adam(p, lr=0.1), 0),
    "adagrad": (lambda p: torch.optim.Adagrad(p, lr=0.1), 1),
}
"""What a predictor keeps of the last update, in sets of the stage's parameters."""


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_predictor_holds_what_is_predicted_with_the_optimizer_of_the_stages_that_it_predicts(name: str) -> None:
    """On stage 1 of 2 XPipe with pipeoptim's horizon p - k - 1 = 0 predicts nothing."""
    make, kept = OPTIMIZERS[name]
    one = 2 * (WIDTH * WIDTH + WIDTH) * NUMBER
    pipeline, costs = pipeline_of(mlp(2), optimizer=make), profiled(mlp(2), optimizer=make)
    assert amounts(costs, "predictor") == [kept * one] * 2
    graph = compile_program(build_program("xpipe", num_devices=2, num_micro_batches=1, num_mini_batches=5, horizon="pipeoptim"))
    assert set(graph.stage[graph.kind == Kind.PREDICT].tolist()) == {0}
    train(graph, pipeline, batches(5, samples=SIZE), timeout=60)
    held = [sum(each.nbytes for each in pipeline.copy(stage, 0).prediction_state() if each is not None) for stage in range(2)]
    assert held == [kept * one, 0]

    column = list(MemoryClass).index(MemoryClass.OPTIMIZER)
    found = [steps.by_class[:, column] for steps in memory(graph, costs)]
    state = amounts(costs, "optimizer")
    assert [np.unique(each).tolist() for each in found] == [[(own or 0) + more] for own, more in zip(state, held, strict=True)]

"""Bytes kept from I to W: counted by hand, counted in a profile, seen alive, and as the simulator has them."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from executor.boundary import Message
from executor.plan.actions import PlannedAction
from executor.profiling.footprint import LiveBytes, footprints
from executor.profiling.kept_for_weights import kept_for_weights
from executor.profiling.options import ProfileOptions
from executor.profiling.parts import Part, parts_of
from executor.profiling.profiling import profile
from executor.recipe.recipe import Recipe
from executor.stage.record import Record
from executor.stage.splitting.deferral import put_off
from executor.stage.stage import StageRuntime
from executor.stage.weights import WeightSet
from executor.training import train
from schedir.costs.table.meaning import Granularity
from schedir.costs.table.pieces import PieceBytes, PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.ir.graph import TaskGraph
from schedir.timeline.timeline import MemoryClass
from simulator import simulate
from tests.executor.small.models import batches, mlp, pipeline_of
from tests.simulator.doubles import graph_of
from tests.simulator.test_memory import column

INPUT, HIDDEN, OUTPUT = 3 * 6 * 4, 3 * 4 * 4, 3 * 2 * 4
"""Bytes of 3 samples of 6, 4 and 2 float32 numbers."""
ACTIVATIONS = INPUT + HIDDEN
"""Kept by F: the input and what tanh gives, which both tanh and the Linear behind it need."""
KEPT = INPUT + HIDDEN + HIDDEN + OUTPUT
"""Kept by I: the input of each Linear and the gradient of its output."""


def two_linears() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))


def parts(*stages: nn.Module, by: Granularity = Granularity.STAGE) -> tuple[Part, ...]:
    """Return the parts of these stages; the loss is in one of its own, so that its gradients are not among theirs."""
    data = torch.ones(3, 6), torch.ones(3, 2)
    return parts_of([*stages, nn.Identity()], data, loss=nn.functional.mse_loss, by=by)


def test_a_stage_keeps_inputs_and_output_gradients_of_its_linears() -> None:
    assert kept_for_weights(parts(two_linears()))[:1] == (KEPT,)
    assert footprints(parts(two_linears()), torch.optim.SGD)[0].activations == ACTIVATIONS


def test_layers_add_up_to_their_stage() -> None:
    assert kept_for_weights(parts(two_linears(), by=Granularity.LAYER))[:3] == (INPUT + HIDDEN, 0, HIDDEN + OUTPUT)


def test_what_the_weights_do_not_need_is_not_kept() -> None:
    """tanh, softmax and a frozen Linear between two Linears: 4 x as many numbers as the Linears' own."""
    inner = nn.Sequential(nn.Tanh(), nn.Softmax(-1), nn.Linear(4, 4).requires_grad_(False), nn.Tanh())
    wide = nn.Sequential(nn.Linear(6, 4), inner, nn.Linear(4, 2))

    assert kept_for_weights(parts(wide))[0] == KEPT


def test_of_a_norm_its_small_gradients_are_kept_and_of_a_stage_always_the_input() -> None:
    """Weight and bias of 2 numbers each; the stage's input is (3, 2)."""
    two_stages = nn.Linear(6, 2), nn.LayerNorm(2)

    assert kept_for_weights(parts(*two_stages))[1] == OUTPUT + 2 * 2 * 4


def test_memory_seen_alive_is_that_of_the_simulator() -> None:
    """Bytes after F, I and W of one micro-batch; the input and the output's gradient come from outside."""
    module, x, g = two_linears(), torch.ones(3, 6), torch.ones(3, 2)
    record = Record(Message((x,), (True,)), weights=WeightSet(list(module.parameters()), version=0))
    assert record.weights is not None
    record.weights.leaves = tuple(module.parameters())
    seen = []
    with LiveBytes() as live:
        record.inputs = record.message.with_gradients()
        record.take_roots([module(*record.inputs)])
        record.seeds = (g,)
        seen.append(INPUT + live.now)
        deferred = put_off(record)[1]  # the input's gradient goes to the stage before
        seen.append(INPUT + OUTPUT + live.now)
        made: tuple[Tensor | None, ...] | None = deferred.finish()
        weights = sum(gradient.nbytes for gradient in made or () if gradient is not None)
        seen.append(live.now - weights)
    del made

    piece = PieceCosts(
        forward=1, input_grad=1, weight_grad=1, bytes=PieceBytes(activations=ACTIVATIONS, activations_weight_grad=KEPT)
    )
    memory = simulate(graph_of("zb-h1", 1, 1), TableCosts(rows=(piece,))).memory
    assert memory is not None
    assert seen == [ACTIVATIONS, KEPT, 0]
    assert column(memory[0], MemoryClass.ACTIVATIONS).tolist()[1:] == seen


def data(_: int):  # type: ignore[no-untyped-def]  # an endless generator of pairs
    while True:
        yield torch.ones(6, 6), torch.ones(6, 2)


def recipe() -> Recipe:
    return Recipe(
        stages=[two_linears(), nn.Linear(2, 2)],
        loss=nn.functional.mse_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        data=data,
        name="two stages",
        about="ones",
    )


QUICK = ProfileOptions(num_micro_batches=2, repeats=3, warm_up=1, recompute=False, predict=False)


@pytest.mark.parametrize("by", list(Granularity))
def test_a_profile_of_the_halves_states_what_is_kept_between_them(by: Granularity) -> None:
    halves = profile(recipe(), replace(QUICK, by=by, split_backward=True))
    whole = profile(recipe(), replace(QUICK, by=by))

    assert halves.stages(2)[0].bytes.activations_weight_grad == KEPT
    assert all(row.bytes.activations_weight_grad is None for row in whole.rows)


def test_halves_are_measured_apart_for_every_stage_and_layer() -> None:
    """Stage 0's I has no input's gradient to make, and is what it is: never half of B, and never left out."""
    for by in Granularity:
        costs = profile(recipe(), replace(QUICK, by=by, split_backward=True))
        for row in costs.rows:
            assert row.input_grad is not None, row.name
            assert row.weight_grad is not None, row.name
            assert row.input_grad.samples, row.name  # type: ignore[union-attr]  # measured times are no tables
            assert row.input_grad != row.weight_grad, row.name


class Held(NamedTuple):
    """Records of a device behind a task."""

    whole: int
    """With their graph."""
    late: int
    """With what W needs."""


def held_in_training(monkeypatch: pytest.MonkeyPatch, graph: TaskGraph) -> dict[int, Held]:
    """Train and return what a task's device holds when the task has ended, on one stage a device."""
    found: dict[int, Held] = {}

    def watched(method: Any) -> Any:
        def run(stage: StageRuntime, action: PlannedAction, *values: Any) -> Any:
            result = method(stage, action, *values)
            records = stage._records.values()
            late = sum(record.deferred is not None for record in records)
            found[action.task] = Held(sum(bool(record.roots) for record in records), late)
            return result

        return run

    for name in ("forward", "recompute", "input_grad", "weight_grad"):
        monkeypatch.setattr(StageRuntime, name, watched(getattr(StageRuntime, name)))
    train(graph, pipeline_of(mlp(graph.program.num_stages)), batches(1), timeout=60)
    return found


@pytest.mark.parametrize("recompute", ["never", "always"])
@pytest.mark.parametrize("schedule", ["zb-h1", "zb-h2"])
def test_training_holds_what_the_simulator_says(schedule: str, recompute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole set counts 1000 and what W needs 1, so that the bytes behind every task tell how many of each there are."""
    graph = graph_of(schedule, 3, 6, recompute=recompute)
    stated = PieceBytes(activations=1000, boundary=0, output=0, activations_weight_grad=1)
    costs = TableCosts(default=PieceCosts(forward=1, input_grad=1, weight_grad=1, bytes=stated), dispatch_gap_s=0.25)
    predicted = simulate(graph, costs)
    assert predicted.memory is not None
    held = held_in_training(monkeypatch, graph)

    assert {Held(3, 0), Held(0, 1)} <= set(held.values()) if recompute == "never" else Held(1, 1) in held.values()
    for task, found in held.items():
        steps = predicted.memory[graph.device[task]]
        at = np.searchsorted(steps.time, predicted.end[task], side="right") - 1
        assert Held(*divmod(int(steps.total[at]), 1000)) == found, graph.label(task)

"""Versions are kept as long as somebody reads them, and no longer."""

import weakref
from collections import defaultdict
from typing import Any

import pytest
import torch
from torch import nn

from executor.plan.actions import PlannedAction
from executor.plan.plan import make_plan
from executor.stage.weights import StageWeights, WeightSet
from executor.training import train
from schedir.ir.action import Direction, Kind
from tests.executor.serial.scalar_cases import TRAINED, VERSIONS_ALIVE, load
from tests.executor.small.models import batches, compiled, mlp, pipeline_of


class Alive:
    """Counts the sets of every stage's copies whenever one is made or freed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.most: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        for method in ("read", "predict", "update"):
            self._watch(patch, method, getattr(StageWeights, method))

    def _watch(self, patch: pytest.MonkeyPatch, name: str, method: Any) -> None:
        def watched(weights: StageWeights, *args: Any, **options: Any) -> WeightSet:
            result: WeightSet = method(weights, *args, **options)
            true = 1 + len(weights._kept)
            most = self.most[id(weights)]
            most[:] = max(most[0], true), max(most[1], true + len(weights._predicted))
            return result

        patch.setattr(StageWeights, name, watched)


@pytest.mark.parametrize("name", TRAINED)
def test_as_many_sets_are_alive_as_were_counted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[true versions, all sets] of every stage and replica."""
    case = load(name)
    made: list[StageWeights] = []
    init = StageWeights.__init__

    def watched(self: StageWeights, *arguments: Any) -> None:
        made.append(self)
        init(self, *arguments)

    monkeypatch.setattr(StageWeights, "__init__", watched)
    alive = Alive(monkeypatch)
    case.train()

    assert [alive.most[id(weights)] for weights in made] == list(VERSIONS_ALIVE[name].values())


def test_an_update_is_made_in_place_where_nobody_reads_the_version_before_it() -> None:
    """A flush leaves no reader; so do backwards that read the current weights."""
    for graph in (compiled("1f1b", 2, 3), compiled("pipedream", 2, 1, num_mini_batches=4, weights="current")):
        stages = mlp(2)
        before = [parameter.data_ptr() for parameter in nn.Sequential(*stages).parameters()]
        train(graph, pipeline_of(stages), batches(4), timeout=60)

        assert [parameter.data_ptr() for parameter in nn.Sequential(*stages).parameters()] == before


def test_an_update_moves_to_new_memory_where_the_version_before_it_is_still_read() -> None:
    """PipeDream's last stage keeps one version, the others more."""
    stages = mlp(2)
    first = [next(stage.parameters()) for stage in stages]
    before = [weight.data_ptr() for weight in first]
    train(compiled("pipedream", 2, 1, num_mini_batches=4), pipeline_of(stages), batches(4), timeout=60)

    assert first[0].data_ptr() != before[0]
    assert first[1].data_ptr() == before[1]


def test_a_predicted_forward_set_is_freed_behind_its_last_forward() -> None:
    """Though recorded graphs still name its leaves: gradients are taken with respect to them."""
    graph = compiled("xpipe", 2, 2, num_mini_batches=3, horizon="pipeoptim")
    actions = [action for task in make_plan(graph).tasks for action in task]
    forwards = [action for action in actions if action.maker >= 0 and action.kind is Kind.FORWARD]

    last = [action.micro_batch for action in forwards if action.last_reader]
    assert last == [1, 3, 5]
    assert all(action.kind is Kind.FORWARD for action in actions if action.last_reader and action.maker >= 0)


def read(version: int, *, maker: int = -1, last_reader: bool = False) -> PlannedAction:
    return PlannedAction(
        task=0,
        kind=Kind.FORWARD,
        stage=0,
        micro_batch=0,
        version=version,
        horizon=0,
        maker=maker,
        direction=Direction.FORWARD,
        last_reader=last_reader,
    )


def stage_weights() -> tuple[nn.Linear, StageWeights]:
    module = nn.Linear(2, 1, bias=False)
    pipeline = pipeline_of([module], optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0))
    return module, StageWeights(pipeline.copy(0, 0), None)


def test_a_version_that_is_kept_has_its_own_tensors_and_loses_its_memory_behind_its_last_reader() -> None:
    module, weights = stage_weights()
    first = weights.read(read(0))
    value = first.leaves[0].detach().clone()
    weights.update([torch.ones(1, 2)], keep_previous=True)

    assert torch.equal(weights.read(read(0)).leaves[0], value)
    assert torch.equal(weights.read(read(1)).leaves[0], value - 1)
    assert torch.equal(module.weight, value - 1)
    weights.release(read(0))
    assert weights.read(read(0)) is first
    weights.release(read(0, last_reader=True))
    assert first.leaves[0].numel() == 0


def test_a_graph_that_saved_weights_raises_if_they_are_updated_in_place_all_the_same() -> None:
    """The graph of tasks promises that nobody reads them; a broken promise must not go unnoticed."""
    _, weights = stage_weights()
    x = torch.ones(1, 2, requires_grad=True)
    y = x @ weights.newest.leaves[0].t()
    weights.update([torch.ones(1, 2)], keep_previous=False)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad([y], [x], [torch.ones(1, 1)])


def test_a_cast_is_made_once_and_again_behind_an_update_in_place() -> None:
    """Autocast's copy of the weights before the update would give gradients of those, without a word."""
    module, weights = stage_weights()
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[0.5, -2.0]]))
    before = weights.newest.cast(0, torch.bfloat16)
    assert weights.newest.cast(0, torch.bfloat16) is before
    weights.update([torch.tensor([[1.0, 4.0]])], keep_previous=False)

    assert before.tolist() == [[0.5, -2.0]]
    assert weights.newest.cast(0, torch.bfloat16).tolist() == [[-0.5, -6.0]]


def test_a_set_that_is_let_go_of_holds_no_cast_either() -> None:
    _, weights = stage_weights()
    cast = weakref.ref(weights.newest.cast(0, torch.bfloat16))
    assert cast() is not None
    weights.newest.drop()

    assert cast() is None

"""The scalar cases can fail: with a fault put in, training ends where the fault takes it, as far off as was worked out."""

from collections.abc import Callable, Sequence

import pytest
from torch import Tensor

from executor.model.data import LossReduction, loss_scales
from executor.model.pipeline import Pipeline
from executor.plan.actions import PlannedAction
from executor.stage.weights import StageWeights, WeightSet
from schedir.ir import horizons
from schedir.ir.action import Direction, Kind
from schedir.lowering import versions
from tests.executor.serial.scalar_cases import ALL, FAULTS, load

VISIBLE = 1e-8
"""Below this distance a case cannot show a fault."""


def no_sharing(patch: pytest.MonkeyPatch, name: str) -> None:
    """Every micro-batch predicts for itself, instead of reading what its mini-batch's bellwether has predicted."""
    num_micro_batches = ALL[name]["T"]

    def read(weights: StageWeights, action: PlannedAction) -> WeightSet:
        newest, horizon = weights.newest, action.horizon
        if ALL[name]["policy"] == "exact" and action.direction is Direction.FORWARD:
            horizon = action.micro_batch // num_micro_batches - newest.version
        if horizon == 0:
            return newest
        assert weights._predictor is not None
        return WeightSet(weights._predictor.predict(newest.leaves, horizon), version=newest.version, horizon=horizon)

    patch.setattr(StageWeights, "read", read)


def backward_on_forward_weights(patch: pytest.MonkeyPatch, name: str) -> None:  # noqa: ARG001 - the same for all cases
    """B reads what its F has read."""
    read, seen = StageWeights.read, dict[tuple[int, int], WeightSet]()

    def read_once(weights: StageWeights, action: PlannedAction) -> WeightSet:
        key = action.stage, action.micro_batch
        if action.kind is Kind.FORWARD:
            seen[key] = copy_of(read(weights, action))
        return seen[key]

    patch.setattr(StageWeights, "read", read_once)


def one_update_further(patch: pytest.MonkeyPatch, name: str) -> None:
    """Predict for forwards one update too far."""
    policy = ALL[name]["policy"]
    if policy == "exact":
        own_update = versions.own_update
        patch.setattr(versions, "own_update", lambda table, round_size: own_update(table, round_size) + 1)
        return
    policy = "spectrain-paper" if policy == "spectrain" else policy
    formula = horizons.FORMULAS[policy]

    def further(p: int, k: int, T: int) -> tuple[int, int]:  # noqa: N803 - the papers' letter
        forward, backward = formula(p, k, T)
        return forward + 1, backward

    patch.setitem(horizons.FORMULAS, policy, further)


def sum_of_means(patch: pytest.MonkeyPatch, name: str) -> None:  # noqa: ARG001 - the same for all cases
    """Add up the means of micro-batches, instead of averaging them."""
    init = Pipeline.__init__

    def with_sums(pipeline: Pipeline, *args: object, **options: object) -> None:
        init(pipeline, *args, **options)  # type: ignore[arg-type]  # whatever it was called with
        patch.setattr(pipeline, "loss_scales", lambda targets: loss_scales(targets, LossReduction.SUM, None))

    patch.setattr(Pipeline, "__init__", with_sums)


def update_on_prediction(patch: pytest.MonkeyPatch, name: str) -> None:
    """Start an update from the weights that its mini-batch's forwards have read, not from the newest true ones."""
    read, update, seen = StageWeights.read, StageWeights.update, dict[tuple[int, int], WeightSet]()
    num_micro_batches = ALL[name]["T"]

    def noted_read(weights: StageWeights, action: PlannedAction) -> WeightSet:
        found = read(weights, action)
        if action.kind is Kind.FORWARD:
            seen[id(weights), action.micro_batch // num_micro_batches] = copy_of(found)
        return found

    def moved_update(weights: StageWeights, gradients: Sequence[Tensor | None], *, keep_previous: bool) -> WeightSet:
        start = seen[id(weights), weights.newest.version]
        for parameter, leaf in zip(weights._copy.parameters, start.leaves, strict=True):
            if keep_previous:
                parameter.data = parameter.data.clone()
            parameter.data.copy_(leaf)
        return update(weights, gradients, keep_previous=keep_previous)

    patch.setattr(StageWeights, "read", noted_read)
    patch.setattr(StageWeights, "update", moved_update)


def copy_of(weights: WeightSet) -> WeightSet:
    return WeightSet([leaf.detach().clone() for leaf in weights.leaves], version=weights.version, horizon=weights.horizon)


INJECTIONS: dict[str, Callable[[pytest.MonkeyPatch, str], None]] = {
    "no-sharing": no_sharing,
    "B reads F's weights": backward_on_forward_weights,
    "horizon+1": one_update_further,
    "sum of micro-batch means": sum_of_means,
    "update applied to the prediction": update_on_prediction,
}

EXPOSED = [
    (case, fault, float(distance))
    for case, faults in FAULTS.items()
    for fault, distance in faults.items()
    if float(distance) > VISIBLE
]


@pytest.mark.parametrize(("name", "fault", "distance"), EXPOSED)
def test_a_fault_moves_the_final_weights_as_far_as_it_must(
    monkeypatch: pytest.MonkeyPatch, *, name: str, fault: str, distance: float
) -> None:
    INJECTIONS[fault](monkeypatch, name)
    case = load(name)
    case.train()

    assert case.distance() == pytest.approx(distance, rel=0.005)  # the file has three digits

"""What a manifest says of optimizers, read: as it was, or refused in one line."""

from typing import Any

import pytest

from executor.checkpoint.training_state import ParameterGroup, TrainingState
from schedir.errors import FormatError


def plain(**more: Any) -> dict[str, Any]:
    return {"kind": "Adam", "values": {}, "groups": [], "schedulers": [], "scheduler_kinds": [], **more}


def state_of(told: Any) -> TrainingState:
    return TrainingState.of({}, {}, told, source="here")


def test_values_options_and_schedulers_come_back_with_their_types() -> None:
    betas = {"tuple": [0.9, 0.999]}
    found = state_of(
        plain(
            values={"0.weight/limits": betas},
            groups=[{"parameters": ["0.weight", "0.bias"], "options": {"betas": betas, "lr": 0.1}}],
            schedulers=[None, {"dict": {"milestones": {"counter": [[2, 1]]}}}],
            scheduler_kinds=[None, "MultiStepLR"],
        )
    )

    assert found.optimizer_kind == "Adam"
    assert found.values == {"0.weight/limits": (0.9, 0.999)}
    assert found.groups == (ParameterGroup(("0.weight", "0.bias"), {"betas": (0.9, 0.999), "lr": 0.1}),)
    assert found.schedulers == (None, {"milestones": {2: 1}})
    assert found.scheduler_kinds == (None, "MultiStepLR")


def test_a_checkpoint_from_before_classes_of_schedulers_were_noted_is_read() -> None:
    told = plain()
    del told["scheduler_kinds"]

    assert state_of(told).scheduler_kinds == ()


@pytest.mark.parametrize(
    ("told", "what"),
    [
        (None, "TypeError"),
        ({}, "KeyError"),
        (plain(kind=3), "TypeError: 3 is no name of a class"),
        (plain(scheduler_kinds=[["StepLR"]]), r"TypeError: \['StepLR'\] is no name of a class"),
        (plain(schedulers=[{"tuple": [1]}]), r"TypeError: \(1,\) is no state of a scheduler"),
        (plain(schedulers=[7]), "TypeError: 7 is no state of a scheduler"),
        (plain(values=[]), "AttributeError"),
        (plain(values={"a/b": {"tuple": [1], "list": [2]}}), "ValueError"),
        (plain(values={"a/b": {"set": [1]}}), "KeyError"),
        (plain(values={"a/b": {"float": "much"}}), "ValueError"),
        (plain(groups=[{"parameters": ["a"]}]), "KeyError"),
    ],
)
def test_what_says_too_little_is_refused_in_one_line(told: Any, what: str) -> None:
    with pytest.raises(FormatError, match=rf'^here: "optimizer" does not say what a checkpoint has to \({what}') as error:
        state_of(told)

    assert "\n" not in str(error.value)

"""`--timeout`: how long anybody is waited for, from the flag or a plan file to whatever trains; every command that does has it."""

import json
import threading
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from executor import Recipe
from schedir.cli.compare import training as compare_training
from schedir.cli.flags import recipes
from schedir.workflows.checking.check_gradients import GradientCheck
from tests.cli.command import Command
from tests.executor.small.models import sgd
from tests.executor.small.trainers import alive

PLAN = """
schema = "schedir.plan/1"
schedule = "1f1b"
num_devices = 2
num_micro_batches = 2
timeout = 90
"""


class Held(nn.Linear):
    """Computes nothing on a device until it and its copies may."""

    may = threading.Event()

    def __init__(self) -> None:
        super().__init__(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        # what is looked at before any device is there is no part of a training
        if threading.current_thread() is not threading.main_thread():
            self.may.wait(600)
        return super().forward(x)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Stand for the last stage of whatever model is asked for; let it end behind the test."""
    stage = Held()
    monkeypatch.setattr(Held, "may", threading.Event())
    x = torch.ones(4, 4)
    recipe = Recipe(
        stages=[nn.Linear(4, 4), stage],
        loss=nn.functional.mse_loss,
        optimizer=sgd,
        data=lambda seed: [(x, x)] * 2,  # noqa: ARG005 - its name is part of a recipe's rule
    )
    # the second has the name as its own, and is loaded above, so it is not first loaded with this one in it
    for asked in (recipes, compare_training):
        monkeypatch.setattr(asked, "find_recipe", lambda _: recipe)
    yield stage
    stage.may.set()
    assert alive() == []


COMMANDS = (
    ("train", "1f1b", "--model", "held", "--micro-batches", 1),
    ("compare", "1f1b", "--model", "held", "--micro-batches", 1),
    ("profile", "held", "--micro-batches", 1),
)


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("words", COMMANDS, ids=itemgetter(0))
def test_a_stage_that_never_ends_is_an_error_within_the_timeout_and_names_the_flag(
    words: tuple[object, ...], command: Command
) -> None:
    done = command(*words, "--timeout", 0.5)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert " 0.5 s" in done.err
    assert done.err.endswith(": raise --timeout if a task may take that long\n")


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("words", [*COMMANDS, ("check", "1f1b", "--gradients")], ids=itemgetter(0))
def test_what_is_no_time_to_wait_is_refused_alike_everywhere(words: tuple[object, ...], command: Command) -> None:
    assert command.fail(*words, "--timeout", 0) == "--timeout 0 must be a finite number above 0"
    too_long = "--timeout 10000000000 s is longer than the 1e+09 s that a wait may take: give less"
    assert command.fail(*words, "--timeout", 10**10) == too_long


def test_a_proof_is_waited_for_as_long_as_is_said(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def proved(_: object, *, timeout: float) -> GradientCheck:
        given.append(timeout)
        return GradientCheck("nothing", 1, 0.0, (0.0,))

    monkeypatch.setattr("schedir.workflows.checking.check_gradients.check_gradients", proved)
    for words in (("--timeout", 70), ()):
        command.succeed("check", "1f1b", "--gradients", *words)
    assert given == [70.0, 600.0]
    assert command.fail("check", "1f1b", "--timeout", 70) == "--timeout: without --gradients nothing is trained: leave it out"


def test_without_a_model_nobody_is_waited_for(command: Command) -> None:
    assert command.fail("compare", "1f1b", "--timeout", 70) == "--timeout: without --model nothing is trained: leave it out"


def test_a_plan_says_it_and_the_flag_goes_before_it(command: Command, held: Held) -> None:
    held.may.set()
    Path("my.plan.toml").write_text(PLAN)
    found: list[float] = []
    for words in (("--plan", "my.plan.toml"), ("--plan", "my.plan.toml", "--timeout", 70), ("1f1b",)):
        command.succeed("train", *words, "--model", "held", "--mini-batches", 1, "--out", str(len(found)))
        found.append(json.loads(Path(str(len(found)), "report.json").read_text())["plan"]["timeout"])
    assert found == [90.0, 70.0, 600.0]

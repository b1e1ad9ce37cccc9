"""`schedir train --timeout`: how long anybody is waited for, from the flag or a plan file to the trainer."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from executor import Recipe
from schedir.cli.flags import recipes
from tests.cli.command import Command
from tests.executor.models import sgd
from tests.executor.trainers import alive

PLAN = """
schema = "schedir.plan/1"
schedule = "1f1b"
num_devices = 2
num_micro_batches = 2
timeout = 90
"""


class Held(nn.Linear):
    """Computes nothing until it may."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        self.may = threading.Event()

    def forward(self, x: Tensor) -> Tensor:
        self.may.wait(600)
        return super().forward(x)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Stand for the last stage of whatever model is asked for; let it end behind the test."""
    stage = Held()
    x = torch.ones(4, 4)
    recipe = Recipe(
        stages=[nn.Linear(4, 4), stage],
        loss=nn.functional.mse_loss,
        optimizer=sgd,
        data=lambda seed: [(x, x)] * 2,  # noqa: ARG005 - its name is part of a recipe's rule
    )
    monkeypatch.setattr(recipes, "find_recipe", lambda _: recipe)
    yield stage
    stage.may.set()
    assert alive() == []


@pytest.mark.usefixtures("held")
def test_a_stage_that_never_ends_is_an_error_within_the_timeout_and_names_the_flag(command: Command) -> None:
    done = command("train", "1f1b", "--model", "held", "--micro-batches", 1, "--timeout", 0.5)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert " 0.5 s" in done.err
    assert done.err.endswith(": raise --timeout if a task may take that long\n")


def test_a_plan_says_it_and_the_flag_goes_before_it(command: Command, held: Held) -> None:
    held.may.set()
    Path("my.plan.toml").write_text(PLAN)
    found: list[float] = []
    for words in (("--plan", "my.plan.toml"), ("--plan", "my.plan.toml", "--timeout", 70), ("1f1b",)):
        command.succeed("train", *words, "--model", "held", "--mini-batches", 1, "--out", str(len(found)))
        found.append(json.loads(Path(str(len(found)), "report.json").read_text())["plan"]["timeout"])
    assert found == [90.0, 70.0, 600.0]

"""`schedir profile`: measured costs that simulate takes."""

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.command import Command

RECIPE = """
import torch
from executor import Recipe

def recipe():
    layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(3)]
    return Recipe(
        model=torch.nn.Sequential(*layers),
        loss=torch.nn.functional.mse_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        data=lambda seed: [(torch.ones(8, 8), torch.zeros(8, 8))] * 100,
        name="small",
        about="ones",
    )
"""
QUICK = ("--stages", 3, "--repeats", 2, "--warm-up", 1)


def test_stages_are_measured_and_simulated(command: Command) -> None:
    Path("mine.py").write_text(RECIPE)
    said = command.succeed("profile", "mine.py:recipe", *QUICK, "-o", "out/costs.json")
    source = json.loads(Path("out/costs.json").read_text())["source"]
    found = json.loads(command.succeed("simulate", "xpipe", "--devices", 3, "--costs", "out/costs.json", "--json"))

    assert said.splitlines()[0] == "small: ones"
    assert said.splitlines()[-1] == "wrote out/costs.json: try schedir simulate 1f1b --devices 3 --costs out/costs.json"
    assert source["command"] == "schedir profile mine.py:recipe --stages 3 --repeats 2 --warm-up 1 --output out/costs.json"
    assert found["costs"]["basis"] == "measured"
    assert min(found["costs"]["forward_s"]) > 0
    assert found["devices"][0]["peak_bytes_by_class"]["weights"] == (8 * 8 + 8) * 4


def test_layers_are_measured_and_cut_of_a_model_named_as_compare_has_it(command: Command) -> None:
    Path("mine.py").write_text(RECIPE)
    command.succeed("profile", "--model", "mine.py:recipe", *QUICK, "--by", "layer")
    words = ("gpipe", "--devices", 2, "--costs", "costs.json", "--layers-per-stage", "2,1")
    found = json.loads(command.succeed("simulate", *words, "--json"))

    assert [stage["layers"] for stage in found["stages"]] == [["0", "1"], ["2"]]


@pytest.mark.parametrize("words", [(), ("--by", "layer"), ("--stages", 3, "--by", "layer")])
def test_the_command_that_is_suggested_takes_the_file(command: Command, words: tuple[object, ...]) -> None:
    Path("mine.py").write_text(RECIPE)
    said = command.succeed("profile", "mine.py:recipe", "--repeats", 1, "--warm-up", 1, *words, "-o", "the costs.json")
    suggested = shlex.split(said.splitlines()[-1].partition("try schedir ")[2])

    devices = 3 if 3 in words else 2  # a whole model is cut in two where nobody says
    assert f"1f1b: {devices} devices, {devices} stages" in command.succeed(*suggested)

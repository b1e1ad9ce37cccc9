"""`schedir profile`: measured costs that simulate takes."""

import json
import shlex
from pathlib import Path

import pytest

import schedir.cli.profile
from schedir.cli.profile import doubts
from schedir.costs.table.pieces import PieceCosts
from schedir.costs.table.table import TableCosts
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


@pytest.mark.parametrize(
    ("noise", "ratio", "expected"),
    [
        (0.1, 1.0, ""),
        (0.02, 0.8, ""),
        (0.69, None, "the two halves of the measurement are 69.0 % apart (more than 10.0 %); predictions will be"),
        (0.02, 0.33, "layers take 0.33 times what their stages take (not 0.8 to 1.25); predictions will be"),
        (0.69, 1.3, "the two halves of the measurement are 69.0 % apart (more than 10.0 %) and layers take 1.30 times what"),
    ],
)
def test_a_measurement_that_is_far_off_is_doubted(noise: float, ratio: float | None, expected: str) -> None:
    source = {"noise_floor_fraction": noise} | ({} if ratio is None else {"layers_over_stages": ratio})
    said = doubts(TableCosts(default=PieceCosts(forward=1, backward=2), source=source))

    assert said.startswith(expected)
    assert bool(said) == bool(expected)


def test_a_doubtful_measurement_is_warned_of_before_it_is_suggested(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.py").write_text(RECIPE)
    monkeypatch.setattr(schedir.cli.profile, "MOST_NOISE", -1.0)
    lines = command.succeed("profile", "mine.py:recipe", *QUICK).splitlines()

    assert lines[-2].startswith("warning: the two halves of the measurement are ")
    assert lines[-1].startswith("wrote costs.json: try ")

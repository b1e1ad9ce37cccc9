"""The examples do on the command line what their texts say."""

import ast
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.repository import ROOT

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_every_line_to_try_in_an_example_runs(example: Path, command: Command) -> None:
    """Those that train or profile are left to `make demo` and the tests of these commands."""
    typed = re.findall(r"^ *schedir (.*)$", ast.get_docstring(ast.parse(example.read_text("utf-8"))) or "", re.MULTILINE)
    shutil.copytree(EXAMPLES, "examples")

    assert typed
    for line in typed:
        if "--model" not in line and not line.startswith("profile"):
            assert command.succeed(*line.split())


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.program.toml")), ids=lambda path: path.name)
def test_every_program_file_is_shown_or_explained(example: Path, command: Command) -> None:
    result = command("show", example)

    assert (result.code, "is wrong" in result.out or "waits for ever" in result.out) == (
        (2, True) if "broken" in example.name else (0, False)
    )


def test_costs_and_cluster_simulate(command: Command) -> None:
    words = ("--costs", EXAMPLES / "stages.costs.toml", "--cluster", EXAMPLES / "h100-64.cluster.toml")

    assert "transfers by cluster" in command.succeed("simulate", "1f1b", *words)

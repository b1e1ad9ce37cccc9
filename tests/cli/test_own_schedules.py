"""A schedule of one's own, in every form: it is checked, explained where it is wrong, simulated, drawn, trained and compared."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cli.test_profile import RECIPE
from tests.repository import ROOT

ZIGZAG = ("0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3", "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3")
"""The example of the formats page: m = 4 on two devices, F = 1, B = 2: 15 s, as 1F1B."""

FUNCTION = f"""
from schedir.ir.notation.cells import parse_action
from schedir.ir.program import Program
from schedir.ir.repetition import repeat_program
from schedir.schedules.shape import Schedule

ORDERS = {ZIGZAG}


def orders():
    return list(ORDERS)


def program(shape):
    cells = [[parse_action(cell) for cell in order.split()] for order in ORDERS]
    one = Program.from_orders("offered", cells, num_stages=2, num_micro_batches=4)
    return repeat_program(one, shape.num_mini_batches)


offered = Schedule("offered", program, "made up")
"""

SOURCES = ("zigzag.toml", "zigzag.txt", "zigzag.csv", "comms.csv", "mine.py:orders", "package_of_mine:orders", "offered")
"""TOML, text, torch's CSV in both forms, a function of a file and of a package, an entry point of a package."""

MOSTLY_SLOW = [source if "csv" in source else pytest.param(source, marks=pytest.mark.slow) for source in SOURCES]
"""What takes seconds is shown for torch's CSV, and in the full grids for all."""


@pytest.fixture(autouse=True)
def folder(command: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Fill the working folder with one schedule in every form, and a model to train."""
    here = Path.cwd()
    monkeypatch.syspath_prepend(str(here))
    for name in ("mine.py", "package_of_mine.py"):
        Path(name).write_text(FUNCTION)
    metadata = Path("package_of_mine-1.0.dist-info")
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: package-of-mine\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[schedir.schedules]\noffered = package_of_mine:offered\n")
    Path("model.py").write_text(RECIPE)
    for target in ("zigzag.toml", "zigzag.txt", "zigzag.csv"):
        command.succeed("convert", ROOT / "tests" / "data" / "zigzag.program.toml", target)
    command.succeed("convert", "zigzag.toml", "comms.csv", "--format", "compute-comms")
    yield here
    for name in ("package_of_mine", "_schedir_mine", "_schedir_model", "mine"):
        sys.modules.pop(name, None)


def shape(source: str) -> list[object]:
    """Return the flags that a name needs and that a file has itself."""
    return ["--devices", 2, "--micro-batches", 4] if source == "offered" else []


@pytest.mark.parametrize("source", MOSTLY_SLOW)
def test_it_is_proved_and_trains_right(command: Command, source: str) -> None:
    said = command.succeed("check", source, *shape(source), "--gradients").splitlines()

    assert said[0].endswith(": 2 devices, 2 stages, 1 mini-batch of 4 micro-batches; 18 tasks, 8 transfers")
    assert said[-2].startswith("valid: every action once")
    assert said[-1].startswith("gradients agree: 5 mini-batches trained in float64 against the unpartitioned model")


@pytest.mark.parametrize("source", MOSTLY_SLOW)
def test_it_is_simulated_and_drawn(command: Command, source: str) -> None:
    found = json.loads(command.succeed("simulate", source, *shape(source), "--json"))
    command.succeed("plot", source, *shape(source), "-o", "out/own.svg")

    assert found["makespan_s"] == 15
    assert "F3" in Path("out/own.svg").read_text()


@pytest.mark.parametrize("source", SOURCES)
def test_it_is_repeated_for_its_steady_state(command: Command, source: str) -> None:
    found = json.loads(command.succeed("simulate", source, *shape(source), "--mini-batches", 3, "--json"))

    assert (found["num_mini_batches"], found["makespan_s"]) == (3, 45)
    assert found["steady"]["seconds_per_mini_batch"] == 15  # device 0 works to the end of a mini-batch and begins the next at once


def test_all_forms_stand_side_by_side(command: Command) -> None:
    found = json.loads(command.succeed("compare", *SOURCES[:-1], "1f1b", "--json"))

    assert [row["makespan_s"] for row in found["schedules"]] == [15] * len(SOURCES)


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_it_is_trained_and_compared_with_its_prediction(command: Command, source: str) -> None:
    quick = ("--model", "model.py:recipe", "--rounds", 1, "--repeats", 1, "--json")
    found = json.loads(command.succeed("compare", source, "1f1b", *shape(source), *quick))

    assert [row["schedule"] for row in found["table"]][1] == "1f1b"
    assert Path("out/1f1b.trace.json").exists()
    assert len(list(Path("out").glob("*.trace.json"))) == 2


@pytest.mark.parametrize("source", ["zigzag.toml", "zigzag.txt", "zigzag.csv", "mine.py:orders"])
def test_a_circle_is_shown_with_its_culprits(command: Command, source: str) -> None:
    break_it(source, " 0B0 0F2", " 0F2 0F3 0B0", lost=" 0F3 ")
    break_it(source, "1F0 1B0 1F1", "1F0 1F1 1B0")
    break_it(source, "0F0 0F1 0F2 0F3 0B0", "0F0 0B0 0F1 0F2 0F3")
    result = command("check", source)

    assert result.code == 2
    assert result.out.count("^^^ <-- waits for ever") == 2
    assert "deadlock: device 0: 0B0 waits for 1B0 of device 1; device 1: 1F1 waits for 0F1 of device 0" in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("source", ["zigzag.toml", "zigzag.txt", "zigzag.csv", "comms.csv", "mine.py:orders"])
def test_a_missing_micro_batch_is_named(command: Command, source: str) -> None:
    break_it(source, "1F3 ", "")
    result = command("check", source)

    assert result.code == 2
    assert "device 1: 1B3 waits for ever: 1F3 is missing (micro-batches 0..3)" in result.err
    assert "1B3\n" in result.out
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("source", SOURCES)
def test_a_deadlock_under_blocking_sends_is_named(command: Command, source: str) -> None:
    result = command("check", source, *shape(source), "--sends", "rendezvous")

    assert result.code == 2
    assert "deadlock under blocking sends: device 0 sends 0F1 to device 1; device 1 sends 1B0 to device 0" in result.err
    assert result.out.count("^^^ <-- its send never ends") == 2


def test_weights_of_ones_own_are_held_against_a_serial_execution(command: Command) -> None:
    """PipeDream's order on stashed weights, written by hand."""
    Path("stash.toml").write_text(
        'schema = "schedir.program/1"\nweights = "stash"\nnum_micro_batches = 1\n'
        'order = ["0F0 0F1 0B0 0F2 0B1 0F3 0B2 0F4 0B3 0F5 0B4 0B5", "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3 1F4 1B4 1F5 1B5"]\n'
    )
    said = command.succeed("check", "stash.toml", "--gradients")

    assert "versions" in said
    assert said.splitlines()[-1].startswith("gradients agree: 6 mini-batches trained in float64 against a serial execution")
    assert "weight rule stash" in command.fail("convert", "stash.toml", "stash.csv")


def break_it(source: str, before: str, after: str, *, lost: str = "") -> None:
    """Change the orders in a file of any form; `lost` is taken away first, from the order that is changed."""
    path = Path(source.partition(":")[0])
    separator = "," if path.suffix == ".csv" else " "
    text = path.read_text()
    if lost:
        text = text.replace(lost.replace(" ", separator), separator, 1)
    assert before.replace(" ", separator) in text
    path.write_text(text.replace(before.replace(" ", separator), after.replace(" ", separator), 1))

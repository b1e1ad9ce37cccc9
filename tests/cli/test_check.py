"""`schedir check`: valid schedules are proved, invalid ones explained."""

import pytest

from schedir.workflows.checking import check_gradients
from tests.cli.command import Command
from tests.repository import ROOT


def test_a_valid_schedule_is_proved(command: Command) -> None:
    said = command.succeed("check", "1f1b", "--devices", 2, "--micro-batches", 4)

    assert said.splitlines()[0] == "1f1b: 2 devices, 2 stages, 1 mini-batch of 4 micro-batches; 18 tasks, 8 transfers"
    assert said.splitlines()[-1] == (
        "valid: every action once, no action before what it needs, no deadlock, versions as the rule says"
    )


def test_a_function_gets_the_counts_that_help_names(command: Command) -> None:
    said = command.succeed("check", f"{ROOT / 'examples' / 'grouped.py'}:grouped")

    assert said.splitlines()[0].startswith("grouped: 4 devices, 4 stages, 1 mini-batch of 8 micro-batches")


def test_blocking_sends_are_an_error_only_when_asked_for(command: Command) -> None:
    """Plain 1F1B deadlocks under rendezvous sends: device 0 stands in the send of 0F1, device 1 in that of 1B0."""
    assert "blocking sends: would deadlock" in command.succeed("check", "1f1b", "--devices", 2)

    result = command("check", "1f1b", "--devices", 2, "--micro-batches", 2, "--sends", "rendezvous")
    assert result.code == 2
    assert "^^^ <-- its send never ends" in result.out
    assert result.err.startswith("error: deadlock under blocking sends: device 0 sends 0F1 to device 1; device 1 sends 1B0 to")
    assert result.err.count("\n") == 1


def test_a_schedule_without_crossing_sends_runs_with_blocking_ones(command: Command) -> None:
    assert "blocking sends: runs to its end" in command.succeed("check", "gpipe", "--sends", "rendezvous")


def test_an_unknown_word_for_sends_is_refused(command: Command) -> None:
    assert command.fail("check", "gpipe", "--sends", "fast") == "--sends fast is unknown: use buffered, rendezvous"


def test_gradients_are_proved_in_one_line(command: Command) -> None:
    said = command.succeed("check", "pipedream", "--devices", 2, "--micro-batches", 1, "--mini-batches", 5, "--gradients")

    assert said.splitlines()[-1].startswith("gradients agree: 5 mini-batches trained in float64 against a serial execution")


def test_gradients_that_differ_end_with_1(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_gradients, "TOLERANCE", 0.0)
    result = command("check", "gpipe", "--devices", 2, "--gradients")

    assert result.code == 1
    assert result.err.startswith("error: gradients differ: 5 mini-batches")
    assert result.err.count("\n") == 1


def test_the_broken_example_is_explained_and_its_mended_twin_is_valid(command: Command) -> None:
    examples = ROOT / "examples"
    broken = command("check", examples / "broken.program.toml")

    assert broken.code == 2
    assert broken.out.count("^^^ <-- waits for ever") == 2
    assert "deadlock: device 0: 0B0 waits for 1B0 of device 1; device 1: 1F2 waits for 0F2 of device 0" in broken.err
    assert "valid: " in command.succeed("check", examples / "mended.program.toml")

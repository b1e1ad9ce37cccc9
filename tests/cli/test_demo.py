"""`schedir demo`: three acts."""

from pathlib import Path

import pytest

from schedir.cli import demo
from tests.cli.command import Command
from tests.cli.test_profile import RECIPE


def test_three_acts_end_with_the_files_and_what_to_try_next(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model and the number of rounds are smaller than in the real demo."""
    Path("mine.py").write_text(RECIPE)
    monkeypatch.setattr(demo, "TRAINING", ("--model", "mine.py:recipe", "--rounds", "1", "--repeats", "1"))
    lines = command.succeed("demo").splitlines()

    assert [line for line in lines if line.startswith("=== Act")] == [
        "=== Act 1: four schedules predicted side by side, without training anything",
        "=== Act 2: a schedule that waits for ever, and its mended twin, which trains right",
        "=== Act 3: a character transformer, predicted and really trained on two devices",
    ]
    assert any(line.startswith("error: ") and "deadlock" in line for line in lines)
    assert any(line.startswith("gradients agree: 5 mini-batches") for line in lines)
    done = next(number for number, line in enumerate(lines) if line.startswith("=== Done in"))
    pictures = ["compare", "comparison", "gpipe", "pipedream", "xpipe"]
    assert lines[done + 1 : done + 6] == [f"  out/{name}.png" for name in pictures]
    assert lines[-4] == "Try next:"
    for line in lines[-3:-1]:
        command.succeed(*line.split()[1:])


def test_a_command_that_fails_ends_the_demo(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "TRAINING", ("--model", "nothing"))
    monkeypatch.setattr(demo, "SCHEDULES", ("gpipe",))
    result = command("demo")

    assert (result.code, result.err) == (2, "")
    assert result.out.splitlines()[-1].startswith("error: model 'nothing' is unknown")

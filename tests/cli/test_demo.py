"""`schedir demo`: three acts."""

from pathlib import Path

import pytest

from schedir.cli import demo
from tests.cli.command import Command
from tests.cli.test_profile import RECIPE


def watch(command: Command) -> list[str]:
    """Run the demo and return its lines, its ending checked."""
    lines = command.succeed("demo").splitlines()
    done = next(number for number, line in enumerate(lines) if line.startswith("=== Done in"))
    files = [line.strip() for line in lines[done + 1 : -5]]

    assert [line for line in lines if line.startswith("=== Act")] == [
        "=== Act 1: four schedules predicted side by side, without training anything",
        "=== Act 2: a schedule that waits for ever, and its mended twin, which trains right",
        "=== Act 3: a character transformer, predicted and really trained on two devices",
    ]
    assert files == sorted(files, key=lambda name: not name.endswith(".png")), "pictures first"
    assert sorted(files) == sorted(str(path) for path in Path("out").iterdir())
    assert lines[-4] == "Try next:"
    assert [Path(line.split()[0]).name for line in lines[-3:]] == ["schedir"] * 3
    return lines


def test_three_acts_end_with_the_files_and_what_to_try_next(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer schedules, a smaller model and fewer rounds than in the real demo."""
    Path("mine.py").write_text(RECIPE)
    monkeypatch.setattr(demo, "SCHEDULES", ("1f1b",))
    monkeypatch.setattr(demo, "TRAINED", ("xpipe",))
    monkeypatch.setattr(demo, "TRAINING", ("--model", "mine.py:recipe", "--rounds", "1", "--repeats", "1", "--mini-batches", "5"))
    lines = watch(command)

    assert any(line.startswith("error: ") and "deadlock" in line for line in lines)
    assert any(line.startswith("gradients agree: 5 mini-batches") for line in lines)
    for line in lines[-3:-1]:
        command.succeed(*line.split()[1:])


@pytest.mark.slow
def test_the_real_demo_writes_all_its_files(command: Command) -> None:
    watch(command)

    pictures = {"compare.png", "comparison.png", "gpipe.png", "pipedream.png", "xpipe.png"}
    traces = {"gpipe.trace.json", "pipedream.trace.json", "xpipe.trace.json"}
    assert {path.name for path in Path("out").iterdir()} == pictures | traces | {"report.json", "predictions.json"}


def test_a_command_that_fails_ends_the_demo(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "TRAINING", ("--model", "nothing"))
    monkeypatch.setattr(demo, "SCHEDULES", ("gpipe",))
    result = command("demo")

    assert (result.code, result.err) == (2, "")
    assert result.out.splitlines()[-1].startswith("error: --model nothing is unknown")

"""`schedir compare --model`: schedules predicted, trained, held against each other, and drawn."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import executor.training
from schedir.cli.compare.training import print_first_loss
from schedir.compiler import load_timelines
from schedir.timeline.timeline import Source
from tests.cli.command import Command
from tests.cli.test_profile import RECIPE

QUICK = ("--model", "mine.py:recipe", "--rounds", 1, "--repeats", 1, "--micro-batches", 2, "--mini-batches", 5)


@pytest.fixture(autouse=True)
def recipe(command: Command) -> None:
    assert command is not None
    Path("mine.py").write_text(RECIPE)


def test_the_table_and_the_files(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # the table is turned where it is wider than a line
    said = command.succeed("compare", "gpipe", "xpipe", *QUICK)
    lines = [line for line in said.splitlines() if line.strip("─ ")]
    table = next(number for number, line in enumerate(lines) if line.startswith("schedule"))

    assert lines[0] == "small: ones"
    assert lines[1] == (
        "2 devices (threads), rounds of 5 mini-batches of 2 micro-batches: one to warm up, 1 measured, each predicted before"
    )
    assert lines[2] == "[ 1/10] gpipe: profile and predict (warm-up)"
    assert lines[6] == "[ 5/10] plain torch: train 5 mini-batches (warm-up)"
    assert lines[table].split()[-5:] == ["loss", "first", "last", "to", "plain"]
    assert "steady bubble predicted  steady bubble measured" in lines[table]
    assert "error: predicted / measured - 1; noise: the mini-batches of the one run against each other" in lines
    assert [line.split()[0] for line in lines[table + 1 : table + 4]] == ["gpipe", "xpipe", "plain"]
    files = ["gpipe.png", "xpipe.png", "comparison.png", "gpipe.trace.json", "xpipe.trace.json", "report.json"]
    assert lines[-len(files) :] == [f"wrote out/{name}" for name in files]
    assert sorted(path.name for path in Path("out").iterdir()) == sorted([*files, "predictions.json"])
    assert [line.source for line in load_timelines("out/xpipe.trace.json")] == [Source.SIMULATED, Source.MEASURED]


def test_the_trace_is_compared_again_and_drawn(command: Command) -> None:
    command.succeed("compare", "pipedream", *QUICK)
    again = command.succeed("compare", "out/pipedream.trace.json", "--out", "again")
    command.succeed("plot", "out/pipedream.trace.json", "-o", "again/both.svg")

    assert "1 measured" in again.splitlines()[0]
    assert sorted(path.name for path in Path("again").iterdir()) == ["both.svg", "compare.png"]


@pytest.mark.slow
def test_json_alone_is_printed_when_asked_for(command: Command) -> None:
    found = json.loads(command.succeed("compare", "gpipe", *QUICK, "--json"))

    assert found["schema"] == "schedir.training/1"
    assert found["table"][0]["schedule"] == "gpipe"


def test_a_recipe_without_a_word_about_its_data_is_named_alone(command: Command) -> None:
    Path("mine.py").write_text(RECIPE.replace('about="ones"', 'about=""'))
    assert command.succeed("compare", "gpipe", *QUICK).splitlines()[0] == "small"


def test_rounds_that_the_time_limit_left_out_are_named(command: Command) -> None:
    words = [*QUICK]
    words[words.index("--rounds") + 1] = 9
    said = command.succeed("compare", "gpipe", *words, "--time-limit", 0.001)
    report = json.loads(Path("out/report.json").read_text())

    assert "1 of 9 rounds measured: the time limit of 0.001 s" in said.splitlines()
    assert (report["rounds_asked"], report["rounds_measured"]) == (9, 1)


def test_a_second_table_says_how_sure_the_prediction_was_and_how_far_rounds_are_apart(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    words = [*QUICK]
    words[words.index("--rounds") + 1] = 2
    lines = command.succeed("compare", "gpipe", *words).splitlines()
    (head,) = [number for number, line in enumerate(lines) if re.match("schedule +step, 90 %", line)]

    assert lines[head].endswith("round of the rest")
    assert re.match(r"gpipe +\S+ to \S+ .?s +\S+ to \S+ % +[012] of 2: too few ", lines[head + 2])
    assert "all: least to most of 2 rounds; the rest, pictures and traces: of the round nearest the median error" in lines
    assert "all are medians of 2 rounds; error: of the rounds' own errors, in brackets least to most" in lines
    assert any(line.startswith("no conclusion: 2 rounds") for line in lines[: head - 4])  # before any figure


def test_an_interrupted_run_leaves_only_whole_files(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[object] = []
    train = executor.training.train

    def interrupted(*arguments: Any, **options: Any) -> Any:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(None)
        return train(*arguments, **options)

    monkeypatch.setattr(executor.training, "train", interrupted)
    words = [*QUICK]
    words[words.index("--rounds") + 1] = 3
    found = command("compare", "gpipe", *words)

    assert (found.code, found.err) == (1, "error: interrupted\n")
    assert [path.name for path in Path("out").iterdir()] == ["predictions.json"]
    assert len(json.loads(Path("out/predictions.json").read_text())["predictions"]) == 2
    assert not list(Path().glob(".partial*"))


def test_a_run_that_fails_leaves_the_folder_alone(command: Command) -> None:
    Path("out").mkdir()
    Path("out/old.txt").write_text("old")
    error = command.fail("compare", "gpipe", *QUICK[:-2], "--mini-batches", 5, "--micro-batches", 9)

    assert error == "recipe small gives 8 samples for 9 micro-batches: give more, or cut less"
    assert [path.name for path in Path("out").iterdir()] == ["old.txt"]


@pytest.mark.slow
def test_a_file_is_trained_beside_a_schedule_of_its_shape(command: Command) -> None:
    command.succeed("convert", "gpipe", "--devices", 3, "--micro-batches", 2, "--mini-batches", 2, "-o", "mine.toml")
    Path("mine.toml").write_text(Path("mine.toml").read_text().replace('"gpipe"', '"mine"'))
    said = command.succeed("compare", "mine.toml", "1f1b", *QUICK[:6])

    assert "3 devices (threads), rounds of 12 mini-batches of 2 micro-batches" in said  # repeated: 2 x 2 + 8


def test_what_is_left_out_of_a_recipe_is_said_before_anything_is_measured(command: Command) -> None:
    Path("mine.py").write_text(RECIPE.replace('about="ones"', 'about="ones", clip=1.0'))
    lines = command.succeed("compare", "gpipe", *QUICK).splitlines()

    assert lines[2] == "left out of the recipe: clip; schedir train and executor.Trainer follow the whole recipe"
    assert lines[3] == "[1/6] gpipe: profile and predict (warm-up)"
    assert not [line for line in lines if line.startswith("loss first: ")]  # without dropout both begin alike
    assert [line for line in lines if line.startswith("writing ")] == [
        f"writing {name}" for name in ("gpipe.png", "comparison.png", "gpipe.trace.json")
    ]


@pytest.mark.parametrize(("plain", "said"), [(1.084, True), (1.074, False)])
def test_another_first_loss_of_plain_torch_is_explained(plain: float, said: bool, capsys: pytest.CaptureFixture[str]) -> None:
    print_first_loss([1.074, 1.074], plain)

    assert ("draws masks of dropout" in capsys.readouterr().out) is said

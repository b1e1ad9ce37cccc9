"""`schedir train` more than once: on from where a training ended, beside another one, and never over what one has left."""

import errno
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from schedir.workflows.training.folder_lock import folder_held
from tests.cli.command import Command
from tests.cli.test_train import RECIPE

RECIPES = f"""{RECIPE}
from pathlib import Path

def breaking():
    kept, calls = recipe(), []
    def loss(output, target):
        calls.append(1)
        if len(calls) > 4 * 4:
            raise RuntimeError("no loss any more")
        return kept.loss(output, target)
    return dataclasses.replace(kept, loss=loss)

def level(step):
    kept = recipe()
    def validation(seed):
        path = Path("out/losses.csv")
        rows = len(path.read_text().splitlines()) - 1 if path.exists() else 0
        return [(SAMPLES[:4], torch.full((4, 4), 10.0 + step * rows))]
    def loss(output, target):
        first = target.flatten()[0]
        return output.square().mean() * 0 + first if (target == first).all() else kept.loss(output, target)
    metric = lambda output, target: target.flatten()[0]
    return dataclasses.replace(kept, loss=loss, validation=validation, metrics=dict(level=metric))

def rising():
    return level(1)

def falling():
    return level(-1)
"""
WORDS = ("train", "1f1b", "--model", "mine.py:recipe")
BREAKING = ("train", "1f1b", "--model", "mine.py:breaking")


@pytest.fixture(autouse=True)
def recipe(command: Command) -> None:  # noqa: ARG001 - its folder is the working directory
    Path("mine.py").write_text(RECIPES)


def numbers(folder: str = "out") -> list[int]:
    """Return the mini-batches that losses.csv has."""
    return [int(row.split(",")[0]) for row in Path(folder, "losses.csv").read_text().splitlines()[1:]]


def test_a_fault_leaves_the_losses_so_far_and_the_way_on(command: Command) -> None:
    done = command(*BREAKING, "--mini-batches", 8, "--checkpoint-every", 2)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "RuntimeError: no loss any more" in done.err
    assert numbers() == [0, 1, 2]
    assert done.out.splitlines()[-1] == (
        "stopped after 3 mini-batches, their losses are in out/losses.csv: go on with --resume out/checkpoints/mini-batch-000002 "
        "(after 2)"
    )
    assert not Path("out/train.lock").exists()
    command.succeed(*WORDS, "--mini-batches", 4, "--resume", "out/checkpoints/mini-batch-000002")
    assert numbers() == [0, 1, 2, 3]


def test_a_checkpoint_of_another_name_is_one_to_go_on_from(command: Command) -> None:
    command.succeed(*WORDS, "--mini-batches", 2)
    Path("out/checkpoints/mini-batch-000002").rename("out/checkpoints/best")
    done = command(*BREAKING, "--mini-batches", 8, "--resume", "out/checkpoints/best")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "RuntimeError: no loss any more" in done.err
    assert done.out.splitlines()[-1].endswith("go on with --resume out/checkpoints/best (after 2)")


def test_a_fault_without_a_checkpoint_says_what_would_have_saved_one(command: Command) -> None:
    done = command(*BREAKING, "--mini-batches", 8)
    assert done.out.splitlines()[-1] == (
        "stopped after 3 mini-batches, their losses are in out/losses.csv: nothing was saved to go on from: --checkpoint-every N "
        "saves every N mini-batches"
    )
    said = command.succeed(*WORDS, "--mini-batches", 1)
    assert "kept out/losses.csv of an earlier training as out/losses.1.csv" in said.splitlines()
    assert numbers() == [0]
    assert [row.split(",")[0] for row in Path("out/losses.1.csv").read_text().splitlines()[1:]] == ["0", "1", "2"]


def test_a_mistake_before_the_first_mini_batch_leaves_no_folder_and_no_advice(command: Command) -> None:
    done = command(*WORDS, "--devices", 9)
    assert done.code == 2
    assert "stopped" not in done.out
    assert not Path("out").exists()


def test_resume_auto_begins_where_there_is_no_checkpoint_and_goes_on_where_there_is_one(command: Command) -> None:
    """The same words do for the first time and for every other; they may stand in any order."""
    said = command.succeed(*WORDS, "--mini-batches", 2, "--seed", 3, "--resume", "auto")
    assert "going on" not in said
    said = command.succeed("train", "--resume", "auto", *WORDS[1:], "--mini-batches", 4, "--seed", 3)
    assert "going on from out/checkpoints/mini-batch-000002" in said.splitlines()
    assert numbers() == [0, 1, 2, 3]
    assert json.loads(Path("out/checkpoints/mini-batch-000004/checkpoint.json").read_text())["seed"] == 3
    error = command.fail(*WORDS[:2], "out/checkpoints", *WORDS[2:], "--resume", "auto")
    assert "unexpected extra argument" in error


def test_a_folder_that_holds_a_training_is_refused_with_the_ways_out(command: Command) -> None:
    command.succeed(*WORDS, "--mini-batches", 1)
    before = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    Path("out-2").mkdir()
    assert command.fail(*WORDS, "--mini-batches", 1) == (
        "out/checkpoints holds checkpoints: give --resume to go on from them, or another folder: --out out-3"
    )
    command.succeed(*WORDS, "--mini-batches", 1, "--out", "other")
    assert command.fail(*WORDS, "--mini-batches", 2, "--resume", "other/checkpoints") == (
        "out/checkpoints holds checkpoints of a training that does not go on from other/checkpoints/mini-batch-000001: leave that "
        "out to go on from them, or give another folder: --out out-3"
    )
    assert {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()} == before


def test_two_trainings_in_one_folder_at_a_time_are_kept_apart(command: Command) -> None:
    with folder_held(Path("out")):
        assert command.fail(*WORDS, "--mini-batches", 1) == (
            f"out is in use by another training, process {os.getpid()}: wait for its end, or give another --out"
        )
        command.succeed(*WORDS, "--mini-batches", 1, "--out", "other")
    command.succeed(*WORDS, "--mini-batches", 1)


def test_a_name_that_a_folder_has_is_refused_before_the_training(command: Command) -> None:
    Path("out/report.json").mkdir(parents=True)
    assert command.fail(*WORDS, "--mini-batches", 1) == (
        "out/report.json is a folder, but training writes a file of that name: give another --out"
    )


def test_a_pipe_that_has_a_name_of_ours_is_not_waited_for(command: Command) -> None:
    Path("out").mkdir()
    os.mkfifo("out/losses.csv")
    assert command.fail(*WORDS, "--mini-batches", 1) == (
        "out/losses.csv is a pipe, but training writes a file of that name: give another --out"
    )


def test_the_last_checkpoints_stay_and_evaluations_come_when_asked_for(command: Command) -> None:
    words = ("--mini-batches", 6, "--checkpoint-every", 2, "--keep-last", 2, "--evaluate-every", 3)
    said = command.succeed("train", "xpipe", *WORDS[2:], *words)
    assert sorted(path.name for path in Path("out/checkpoints").iterdir()) == ["latest", "mini-batch-000004", "mini-batch-000006"]
    told = [line.split(" mini-batches")[0] for line in said.splitlines() if line.startswith("after ")]
    assert told == ["after 0", "after 3", "after 6"]
    rows = Path("out/evaluations.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["mini_batches", "0", "3", "6"]
    # between two drains stages are an update apart: that moment is marked, on the screen and in the file
    assert [row.split(",")[1] for row in rows] == ["drained", "1", "0", "1"]
    assert "after 3 mini-batches (stages some updates apart): validation loss " in said
    last = next(line for line in said.splitlines() if line.startswith("validation loss: "))
    assert "after 6; best " in last


def test_the_best_checkpoint_stays_beside_the_last_ones_and_is_named(command: Command) -> None:
    """The validation loss is 10 and the mini-batches trained on: least after 2 of what is saved, and after 0 of all."""
    words = ("train", "1f1b", "--model", "mine.py:rising", "--checkpoint-every", 2, "--evaluate-every", 2, "--keep-last", 1)
    said = command.succeed(*words, "--mini-batches", 6)
    assert sorted(path.name for path in Path("out/checkpoints").iterdir()) == ["latest", "mini-batch-000002", "mini-batch-000006"]
    assert "validation loss: 10 after 0, 16 after 6; best 10 after 0, where no checkpoint was kept" in said.splitlines()
    assert "validation level: 10 after 0, 16 after 6; 10 where the loss is best" in said.splitlines()
    # who goes on knows it, too
    command.succeed(*words, "--mini-batches", 8, "--resume")
    assert sorted(path.name for path in Path("out/checkpoints").iterdir()) == ["latest", "mini-batch-000002", "mini-batch-000008"]


def test_a_best_checkpoint_that_is_the_last_is_named(command: Command) -> None:
    said = command.succeed("train", "1f1b", "--model", "mine.py:falling", "--mini-batches", 2)
    last = "validation loss: 10 after 0, 8 after 2; best 8 after 2, saved as out/checkpoints/mini-batch-000002"
    assert last in said.splitlines()


def test_the_last_mini_batch_is_evaluated_behind_once(command: Command) -> None:
    said = command.succeed("train", "xpipe", *WORDS[2:], "--mini-batches", 6, "--evaluate-every", 3)
    told = [line.split(" mini-batches")[0] for line in said.splitlines() if line.startswith("after ")]
    assert told == ["after 0", "after 3", "after 6"]


def test_going_on_at_the_end_of_an_epoch_evaluates_once(command: Command) -> None:
    """An epoch has three mini-batches of enough samples."""
    command.succeed(*WORDS, "--epochs", 1)
    said = command.succeed(*WORDS, "--epochs", 2, "--resume")
    told = [line.split(" mini-batches")[0] for line in said.splitlines() if line.startswith("after ")]
    assert told == ["after 3", "after 6"]
    # the evaluation that the first of the two trainings began with is not forgotten
    assert re.search(r"^validation loss: \S+ after 0, \S+ after 6; best \S+ after [036], .*$", said, re.MULTILINE)


def test_the_report_is_of_the_whole_training(command: Command) -> None:
    """The last of four mini-batches has 2 samples, fewer than the 4 micro-batches: it is left out at each epoch's end."""
    for schedule, last in (("1f1b", 2), ("gpipe", 3), ("1f1b", 5)):
        command.succeed("train", schedule, *WORDS[2:], "--mini-batches", last, "--resume", "auto")
    report = json.loads(Path("out/report.json").read_text())
    told = [(each["schedule"], each["first_mini_batch"], each["mini_batches"]) for each in report["runs"]]
    assert told == [("1f1b", 0, 2), ("gpipe", 2, 1), ("1f1b", 3, 2)]
    assert [each["checkpoint"] for each in report["runs"]] == [f"out/checkpoints/mini-batch-00000{last}" for last in (2, 3, 5)]
    rows = [row.split(",")[1] for row in Path("out/losses.csv").read_text().splitlines()[1:]]
    assert [str(loss) for loss in report["losses"]] == rows
    assert len(rows) == 5
    evaluated = [row.split(",")[0] for row in Path("out/evaluations.csv").read_text().splitlines()[1:]]
    assert [str(each["mini_batches"]) for each in report["evaluations"]] == evaluated == ["0", "2", "3", "5"]
    assert (report["mini_batches"], report["samples"]) == (5, sum(run["samples"] for run in report["runs"]))


def test_of_what_a_stopped_run_trained_the_report_has_losses_but_no_seconds(command: Command) -> None:
    command(*BREAKING, "--mini-batches", 8, "--checkpoint-every", 2)
    command.succeed(*WORDS, "--mini-batches", 4, "--resume")
    report = json.loads(Path("out/report.json").read_text())
    assert (len(report["losses"]), report["mini_batches"], report["samples"], report["seconds"]) == (4, 4, None, None)
    assert [(run["first_mini_batch"], run["mini_batches"]) for run in report["runs"]] == [(2, 2)]


def test_where_nothing_is_left_everything_is_there_all_the_same(command: Command) -> None:
    """As behind a kill between the last checkpoint and the files, and behind one while they are written."""
    command.succeed(*WORDS, "--mini-batches", 3)
    whole = json.loads(Path("out/report.json").read_text())
    kept = {name: Path("out", name).read_bytes() for name in ("losses.csv", "evaluations.csv", "train.png", "train.trace.json")}
    Path("out/loss.png").unlink()
    for _ in range(2):
        said = command.succeed(*WORDS, "--mini-batches", 3, "--resume")
        assert "nothing is left to train: out/checkpoints/mini-batch-000003 stands after 3 mini-batches" in said.splitlines()
        names = ("loss.png", "losses.csv", "evaluations.csv", "train.png", "train.trace.json", "report.json")
        assert [line for line in said.splitlines() if line.startswith("wrote out/")][-6:] == [f"wrote out/{name}" for name in names]
        assert json.loads(Path("out/report.json").read_text()) == whole
        assert {name: Path("out", name).read_bytes() for name in kept} == kept
    Path("out/report.json").unlink()
    command.succeed(*WORDS, "--mini-batches", 3, "--resume")
    report = json.loads(Path("out/report.json").read_text())
    assert (report["losses"], report["evaluations"]) == (whole["losses"], whole["evaluations"])
    assert (report["runs"], report["measured"], report["checkpoint"]) == ([], None, "out/checkpoints/mini-batch-000003")


def test_a_damaged_report_is_kept_and_the_new_one_is_written(command: Command) -> None:
    command.succeed(*WORDS, "--mini-batches", 2)
    damaged = json.dumps(json.loads(Path("out/report.json").read_text()) | {"runs": [{"checkpoint": None}]})
    Path("out/report.json").write_text(damaged)
    said = command.succeed(*WORDS, "--mini-batches", 3, "--resume")

    assert "kept out/report.json of an earlier training as out/report.1.json" in said
    assert Path("out/report.1.json").read_text() == damaged
    report = json.loads(Path("out/report.json").read_text())
    assert ([run["first_mini_batch"] for run in report["runs"]], len(report["losses"])) == ([2], 3)


def test_where_nothing_is_left_another_folder_gets_what_there_is(command: Command) -> None:
    command.succeed(*WORDS, "--mini-batches", 2)
    said = command.succeed(*WORDS, "--mini-batches", 2, "--resume", "out/checkpoints", "--out", "on")
    written = ["on/loss.png", "on/losses.csv", "on/evaluations.csv", "on/report.json"]
    assert [line for line in said.splitlines() if line.startswith("wrote ")] == [f"wrote {name}" for name in written]
    assert "no train.png, no train.trace.json: nothing was trained here, so nothing was measured" in said.splitlines()
    for name in ("losses.csv", "evaluations.csv"):
        assert Path("on", name).read_bytes() == Path("out", name).read_bytes()


def test_a_best_checkpoint_that_somebody_removed_is_not_believed_in(command: Command) -> None:
    """The loss is 10 and the mini-batches trained on: the checkpoint after 2 was the best, then the one after 6 is."""
    words = ("train", "1f1b", "--model", "mine.py:rising", "--checkpoint-every", 2, "--evaluate-every", 2, "--keep-last", 1)
    command.succeed(*words, "--mini-batches", 6)
    shutil.rmtree("out/checkpoints/mini-batch-000002")
    command.succeed(*words, "--mini-batches", 10, "--resume")
    assert sorted(path.name for path in Path("out/checkpoints").iterdir()) == ["latest", "mini-batch-000006", "mini-batch-000010"]


def test_a_checkpoint_that_was_removed_is_not_named_any_more(command: Command) -> None:
    for last in (2, 4):
        command.succeed("train", "1f1b", "--model", "mine.py:stages", "--mini-batches", last, "--keep-last", 1, "--resume", "auto")
    report = json.loads(Path("out/report.json").read_text())
    assert [each["checkpoint"] for each in report["runs"]] == [None, "out/checkpoints/mini-batch-000004"]
    assert report["checkpoint"] == "out/checkpoints/mini-batch-000004"


def test_who_asked_for_checkpoints_is_told_when_the_first_would_have_come(command: Command) -> None:
    done = command(*BREAKING, "--mini-batches", 8, "--checkpoint-every", 4)
    assert done.out.splitlines()[-1].endswith(": there is no checkpoint to go on from, since the first would have come after 4")


def test_a_checkpoint_that_cannot_be_written_is_not_advised_again(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("executor.checkpoint.folder.fill", full)
    done = command(*BREAKING, "--mini-batches", 8, "--checkpoint-every", 2)
    assert "mini-batch-000002 cannot be written: no space left on device" in done.err
    assert done.out.splitlines()[-1].endswith(": there is no checkpoint to go on from, since the first was not written to its end")

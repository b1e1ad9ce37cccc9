"""`schedir train`: from the command line to checkpoints, and on from them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from schedir.cli.flags.recipes import find_recipe
from schedir.compiler import load_timeline
from schedir.workflows.training.train_files import picture
from tests.cli.command import Command
from tests.repository import ROOT

RECIPE = """
import dataclasses
import torch
from torch import nn
from executor import Clip, Recipe

FIRST = torch.Generator().manual_seed(0)
SAMPLES = torch.randn(26, 4, generator=FIRST)

def loader(seed):
    data = torch.utils.data.TensorDataset(SAMPLES, SAMPLES.flip(1))
    return torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)

def recipe():
    layers = [nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1)) for _ in range(4)]
    return Recipe(
        model=nn.Sequential(*layers),
        loss=nn.functional.mse_loss,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
        data=loader,
        validation=lambda seed: [(SAMPLES, SAMPLES.flip(1))],
        metrics={"largest": lambda output, target: (output - target).abs().max()},
        lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 3),
        clip=Clip(1.0, per="stage"),
        autocast=torch.bfloat16,
        name="small",
        about="noise, to be mirrored",
    )

def stages():
    kept = recipe()
    return Recipe(stages=list(kept.model), loss=kept.loss, optimizer=kept.optimizer, data=kept.data)

def breaks():
    kept = recipe()
    def loss(output, target):
        raise RuntimeError("no loss today")
    return Recipe(model=kept.model, loss=loss, optimizer=kept.optimizer, data=kept.data)

def endless():
    kept = recipe()
    def data(seed):
        while True:
            yield SAMPLES[:8], SAMPLES[:8]
    return Recipe(model=kept.model, loss=kept.loss, optimizer=kept.optimizer, data=data, validation=kept.validation, name="endless")

def generated():
    kept = recipe()
    data = lambda seed: ((SAMPLES[:8], SAMPLES[:8]) for _ in range(3))
    return Recipe(model=kept.model, loss=kept.loss, optimizer=kept.optimizer, data=data, name="generated")

def spoilt():
    kept = recipe()
    data = [(SAMPLES[:8], SAMPLES[:8])] * 2 + [(SAMPLES[:8] * float("nan"), SAMPLES[:8])] + [(SAMPLES[:8], SAMPLES[:8])]
    return Recipe(model=kept.model, loss=kept.loss, optimizer=kept.optimizer, data=lambda seed: data, name="spoilt")

def clipped():
    return dataclasses.replace(spoilt(), clip=1.0)

def normed():
    kept = recipe()
    model = nn.Sequential(*(nn.Sequential(layer, nn.BatchNorm1d(4)) for layer in kept.model))
    return Recipe(model=model, loss=kept.loss, optimizer=kept.optimizer, data=kept.data)

def tiny():
    kept = recipe()
    return Recipe(model=kept.model, loss=kept.loss, optimizer=kept.optimizer, data=lambda seed: [(SAMPLES[:3], SAMPLES[:3])])

def holed():
    kept = recipe()
    data = lambda seed: [(SAMPLES[:8], SAMPLES[:8]), None, (SAMPLES[:8], SAMPLES[:8])]
    return Recipe(model=kept.model, loss=kept.loss, optimizer=kept.optimizer, data=data)

def seeding():
    def validation(seed):
        torch.manual_seed(99)
        return [(SAMPLES, torch.randn(26, 4))]
    return dataclasses.replace(recipe(), validation=validation)
"""
PLAN = """
schema = "schedir.plan/1"
schedule = "gpipe"
num_devices = 3
num_micro_batches = 2
micro_batch_size = 5
recompute = "always"

[[stages]]
stage = 0
layers = ["0", "1"]

[[stages]]
stage = 1
layers = ["2"]

[[stages]]
stage = 2
layers = ["3"]
"""


@pytest.fixture(autouse=True)
def recipe(command: Command) -> None:  # noqa: ARG001 - its folder is the working directory
    Path("mine.py").write_text(RECIPE)
    Path("my.plan.toml").write_text(PLAN)


MODEL = ("--model", "mine.py:recipe")


def weights(mini_batch: int, folder: str = "out") -> tuple[bytes, bytes]:
    place = Path(folder) / "checkpoints" / f"mini-batch-{mini_batch:06d}"
    return (place / "model.safetensors").read_bytes(), (place / "optimizer.safetensors").read_bytes()


def losses(folder: str = "out") -> list[str]:
    return (Path(folder) / "losses.csv").read_text().splitlines()


def test_it_trains_says_how_far_it_is_and_leaves_picture_trace_report_and_checkpoint(command: Command) -> None:
    said = command.succeed("train", "xpipe", *MODEL, "--devices", 2, "--epochs", 2)
    lines = said.splitlines()
    assert lines[0] == "small: noise, to be mirrored"
    assert lines[1].startswith("after 0 mini-batches: validation loss ")
    assert lines[2].startswith("mini-batch 0: loss ")
    assert any(line.startswith("trained 6 mini-batches in ") for line in lines)
    head = next(number for number, line in enumerate(lines) if ": device" in line)
    assert [lines[head + 2 + device].split()[:2] for device in range(2)] == [["0", "0"], ["1", "1"]]
    assert "left out 2 mini-batches of fewer samples than there are micro-batches" in lines
    written = ("loss.png", "losses.csv", "evaluations.csv", "train.png", "train.trace.json", "report.json")
    assert lines[-6:] == [f"wrote out/{name}" for name in written]
    assert sorted(path.name for path in Path("out").iterdir()) == sorted(["checkpoints", *written])
    assert Path("out/checkpoints/latest").read_text() == "mini-batch-000006\n"
    report = json.loads(Path("out/report.json").read_text())
    assert (report["schema"], report["mini_batches"], report["samples"]) == ("schedir.train/2", 6, 48)
    assert [each["mini_batches"] for each in report["evaluations"]] == [0, 3, 6]
    assert set(report["evaluations"][0]) == {"mini_batches", "drained", "loss", "largest"}
    assert report["plan"]["workers"] == "threads"
    timeline = load_timeline("out/train.trace.json")
    assert timeline.graph.program.name == "xpipe"
    assert picture(timeline, model="small").texts[0].get_text().startswith("small: xpipe, p = 2, m = 4, measured: mini-batch")
    assert losses()[0] == "mini_batch,loss,learning_rate,gradient_norm"
    assert [row.split(",")[0] for row in losses()[1:]] == ["0", "1", "2", "3", "4", "5"]
    assert all(row.split(",")[3] for row in losses()[1:])


@pytest.mark.parametrize("schedule", ["pipedream", pytest.param("1f1b", marks=pytest.mark.slow)])
def test_a_training_that_is_resumed_is_the_one_that_was_not_interrupted(schedule: str, command: Command) -> None:
    """Shuffled by the process's random numbers, with dropout; cut in the middle of an epoch, and once more."""
    shape = (*MODEL, "--devices", 2, "--checkpoint-every", 2)
    command.succeed("train", schedule, *shape, "--mini-batches", 8, "--seed", 3, "--out", "whole")
    command.succeed("train", schedule, *shape, "--mini-batches", 2, "--seed", 3)
    command.succeed("train", schedule, *shape, "--mini-batches", 6, "--resume")
    command.succeed("train", schedule, *shape, "--mini-batches", 8, "--resume", "out/checkpoints/mini-batch-000006")
    assert losses() == losses("whole")
    parts, whole = (Path(folder, "evaluations.csv").read_text().splitlines() for folder in ("out", "whole"))
    assert [row for row in parts if not row.startswith(("2,", "6,"))] == [row for row in whole if not row.startswith("6,")]
    assert [row.split(",")[0] for row in parts] == ["mini_batches", "0", "2", "3", "6", "8"]
    assert weights(8) == weights(8, "whole")
    assert "nothing is left to train" in command.succeed("train", schedule, *shape, "--mini-batches", 8, "--resume")


def test_it_goes_on_alike_where_making_the_validation_data_seeds_the_random_numbers(command: Command) -> None:
    shape = ("--model", "mine.py:seeding", "--devices", 2)
    command.succeed("train", "1f1b", *shape, "--mini-batches", 4, "--out", "whole")
    command.succeed("train", "1f1b", *shape, "--mini-batches", 1)
    command.succeed("train", "1f1b", *shape, "--mini-batches", 4, "--resume")
    assert weights(4) == weights(4, "whole")


def test_a_resumed_training_ends_where_all_data_are_too_small_for_its_micro_batches(command: Command) -> None:
    command.succeed("train", "1f1b", *MODEL, "--mini-batches", 1)
    error = command.fail("train", "1f1b", *MODEL, "--mini-batches", 3, "--micro-batches", 9, "--resume")
    assert error.startswith("every mini-batch has fewer samples than the 9 micro-batches")


def test_another_schedule_and_another_cut_go_on(command: Command) -> None:
    command.succeed("train", "pipedream", *MODEL, "--devices", 2, "--mini-batches", 3)
    said = command.succeed(
        "train", "gpipe", "out/checkpoints", *MODEL, "--devices", 4, "--mini-batches", 5, "--resume", "--out", "on"
    )
    assert re.search("trained 2 mini-batches in .*: loss .* at first, .*; with the 3 before the checkpoint 5 in all", said)
    assert [line.split(",")[0] for line in losses("on")] == ["mini_batch", "0", "1", "2", "3", "4"]
    assert losses("on")[:4] == losses("out")[:4]


def test_mini_batches_have_the_size_that_is_asked_for(command: Command) -> None:
    command.succeed("train", "1f1b", *MODEL, "--mini-batch-size", 12, "--epochs", 1)
    report = json.loads(Path("out/report.json").read_text())
    assert (report["mini_batches"], report["samples"], report["left_out_mini_batches"]) == (2, 24, 1)


def test_a_plan_says_schedule_shape_size_and_cuts(command: Command) -> None:
    said = command.succeed("train", "--plan", "my.plan.toml", *MODEL, "--epochs", 1)
    assert "trained 3 mini-batches" in said
    report = json.loads(Path("out/report.json").read_text())
    assert (report["samples"], report["plan"]["at"], report["plan"]["recompute"]) == (26, ["2", "3"], "always")
    assert load_timeline("out/train.trace.json").graph.program.name == "gpipe"
    manifest = json.loads(Path("out/checkpoints/mini-batch-000003/checkpoint.json").read_text())
    assert manifest["plan"] == "my.plan.toml"


def test_a_plan_for_another_model_is_refused_by_its_name(command: Command) -> None:
    Path("my.plan.toml").write_text(PLAN.replace('["3"]', '["head"]'))
    assert command.fail("train", "--plan", "my.plan.toml", *MODEL) == (
        "my.plan.toml does not fit small: at 'head' is no module of Sequential: its children are 0, 1, 2, 3"
    )
    assert not Path("out").exists()


def test_a_recipe_of_stages_says_how_many_devices_there_are(command: Command) -> None:
    command.succeed("train", "1f1b", "--model", "mine.py:stages", "--mini-batches", 1)
    assert load_timeline("out/train.trace.json").graph.program.num_devices == 4


def test_the_learning_rate_takes_the_place_of_the_recipe_s(command: Command) -> None:
    command.succeed("train", "1f1b", *MODEL, "--mini-batches", 1, "--lr", 0.5)
    manifest = json.loads(Path("out/checkpoints/mini-batch-000001/checkpoint.json").read_text())
    assert {group["options"]["initial_lr"] for group in manifest["optimizer"]["groups"]} == {0.5}


def test_epochs_of_endless_data_have_the_size_that_is_asked_for(command: Command) -> None:
    command.succeed("train", "1f1b", "--model", "mine.py:endless", "--epochs", 2, "--epoch-size", 3)
    report = json.loads(Path("out/report.json").read_text())
    assert [each["mini_batches"] for each in report["evaluations"]] == [0, 3, 6]


def test_epochs_of_our_own_models_have_an_end_and_steps_is_another_word_for_mini_batches(command: Command) -> None:
    assert "trained 3 mini-batches" in command.succeed("train", "1f1b", "--model", "mlp", "--epochs", 1, "--steps", 3)
    assert find_recipe("mlp").epoch_size == 100


def test_data_without_a_length_are_told_before_an_epoch_that_may_not_end(command: Command) -> None:
    """These data do end, but nobody can know before."""
    done = command("train", "1f1b", "--model", "mine.py:generated", "--epochs", 1)
    assert done.code == 0
    assert done.err == (
        "note: the data of generated do not say how many mini-batches they have: if they never end, nor does an epoch: give "
        "--epoch-size or --mini-batches\n"
    )


def test_a_loss_that_is_no_number_is_told_and_can_end_the_training(command: Command) -> None:
    words = ("train", "1f1b", "--model", "mine.py:spoilt", "--checkpoint-every", 1)
    done = command(*words, "--out", "on")
    assert (done.code, done.err.startswith("note: the loss of mini-batch 2 is nan on stage 1 (micro-batch 0, whose input")) == (
        0,
        True,
    )
    done = command(*words, "--on-nan", "raise")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert done.err.startswith("error: the loss of mini-batch 2 is nan on stage 1")
    assert Path("out/checkpoints/latest").read_text() == "mini-batch-000002\n"
    assert not Path("out/report.json").exists()


def test_losses_are_scaled_and_the_scale_is_kept(command: Command) -> None:
    words = ("train", "1f1b", "--model", "mine.py:recipe", "--mini-batches", 2)
    command.succeed(*words, "--loss-scaling", "dynamic", "--out", "dynamic")
    command.succeed(*words, "--loss-scaling", 1024)
    manifests = [Path(out) / "checkpoints/mini-batch-000002/checkpoint.json" for out in ("dynamic", "out")]
    assert [json.loads(path.read_text())["loss_scale"]["scale"] for path in manifests] == [65536.0, 1024.0]
    assert losses("dynamic") == losses()
    report = json.loads(Path("out/report.json").read_text())
    assert (report["skipped_updates"], report["loss_scale"]) == ([], 1024.0)
    assert "has no moment at which all stages" in command.fail(
        "train", "xpipe", *MODEL, "--loss-scaling", "dynamic", "--out", "new"
    )
    assert command.fail("train", "1f1b", *MODEL, "--loss-scaling", "big") == (
        "--loss-scaling big must be dynamic or a finite number above 0"
    )


def test_updates_that_were_left_out_are_told(command: Command) -> None:
    """The recipe clips stage by stage: an input that is no number leaves both updates out, and weights stay finite."""
    done = command("train", "1f1b", "--model", "mine.py:clipped", "--on-nan", "continue")
    assert done.code == 0
    assert "note: gradients of mini-batch 2 are not finite on stage" in done.err
    assert "left out 1 update whose gradients were not finite, of mini-batch 2" in done.out.splitlines()
    report = json.loads(Path("out/report.json").read_text())
    assert (report["skipped_updates"], report["loss_scale"]) == ([2], None)
    assert report["losses"][2] is None
    assert report["losses"][3] is not None


def test_mini_batches_move_batch_norm_once_if_that_is_wanted(command: Command) -> None:
    from safetensors.torch import load_file

    moved = []
    for way in ("plain", "deferred"):
        words = ("--model", "mine.py:normed", "--mini-batches", 2, "--micro-batches", 4, "--batch-norm", way, "--out", way)
        command.succeed("train", "1f1b", *words)
        moved.append(load_file(f"{way}/checkpoints/mini-batch-000002/model.safetensors")["3.1.num_batches_tracked"].item())
    assert moved == [8, 2]


def test_a_damaged_checkpoint_is_an_error_of_one_line(command: Command) -> None:
    command.succeed("train", "1f1b", *MODEL, "--mini-batches", 1)
    place = Path("out/checkpoints/mini-batch-000001/model.safetensors")
    place.write_bytes(place.read_bytes()[:-1])
    error = command.fail("train", "1f1b", *MODEL, "--mini-batches", 2, "--resume")
    assert error == f"{place} is damaged: its SHA-256 is not the one in checkpoint.json: take another checkpoint"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("train", "1f1b"), "train needs a model: give --model RECIPE, a model of ours or file.py:function"),
        (("train", *MODEL), "train needs a schedule: give SCHEDULE, as 1f1b or xpipe, or --plan FILE"),
        (
            ("train", "1f1b", *MODEL, "--resume"),
            (
                "--resume: nothing was saved in out/checkpoints: leave it out to begin anew, or give --resume auto, which begins "
                "where nothing was saved"
            ),
        ),
        (
            ("train", "1f1b", *MODEL, "--mini-batch-size", 3),
            "--mini-batch-size 3 is less than the 4 micro-batches: give 4 samples at least, or fewer micro-batches",
        ),
        (("train", "1f1b", ".", *MODEL, "--resume"), ". holds no checkpoint: give a folder with mini-batch-000001 or the like"),
        (("train", "1f1b", "out", *MODEL), "CHECKPOINT out is given, but not --resume: give both or none"),
        (("train", "1f1b", *MODEL, "--resume", "--seed", 3), "--seed: a training that is resumed has its own: leave it out"),
        (("train", "1f1b", *MODEL, "--timeout", 0), "--timeout 0 must be a finite number above 0"),
        (
            ("train", "1f1b", *MODEL, "--timeout", 2e9),
            "--timeout 2000000000.0 s is longer than the 1e+09 s that a wait may take: give less",
        ),
        (("train", "1f1b", *MODEL, "--lr", 0), "--lr 0 must be a finite number above 0"),
        (("train", "1f1b", *MODEL, "--devices", 5), "a model of 4 layers does not cut into 5 stages: ask for 1..4"),
        (
            ("train", "1f1b", "--plan", "my.plan.toml", *MODEL),
            "SCHEDULE 1f1b is given, but --plan my.plan.toml has one: leave one of them out",
        ),
        (("train", "--plan", "my.plan.toml", "--devices", 2, *MODEL), "--devices: --plan my.plan.toml says it: leave it out"),
        (
            ("train", "--plan", "mine.py", *MODEL),
            "mine.py is no TOML file: Expected '=' after a key in a key/value pair (at line 2, column 8)",
        ),
        (
            ("train", "1f1b", "--model", "mine.py:tiny"),
            "every mini-batch has fewer samples than the 4 micro-batches: make them larger, or use fewer micro-batches",
        ),
        (
            ("train", "1f1b", "--model", "mine.py:tiny", "--mini-batches", 4),
            "every mini-batch has fewer samples than the 4 micro-batches: make them larger, or use fewer micro-batches",
        ),
        (
            ("train", "1f1b", "--model", "mine.py:endless", "--mini-batches", 3, "--micro-batches", 9),
            "every mini-batch has fewer samples than the 9 micro-batches: make them larger, or use fewer micro-batches",
        ),
        (
            ("train", "1f1b", "--model", "mine.py:holed", "--mini-batches", 3),
            "a mini-batch is a NoneType, not a pair: give (input, target)",
        ),
        (("train", "1f1b", *MODEL, "--out", "mine.py"), "mine.py is no folder for files: mine.py is a file: name another place"),
        (
            ("train", "1f1b", *MODEL, "--out", "/proc/schedir"),
            "/proc/schedir cannot be written: no such file or directory: name a place you may write to",
        ),
        (
            ("train", "1f1b", "--model", "mine.py:stages", "--evaluate-every", 2),
            "--evaluate-every 2: model has no validation: give the recipe one, or leave it out",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_errors_of_one_line(words: tuple[str, ...], error: str, command: Command) -> None:
    assert command.fail(*words) == error
    assert not Path("out/report.json").exists()


def test_an_error_of_the_recipe_ends_the_run_with_its_own_line(command: Command) -> None:
    error = command.fail("train", "1f1b", "--model", "mine.py:breaks", "--mini-batches", 3)
    assert "RuntimeError: no loss today (mine.py:37 in loss): mend what you gave" in error
    assert not Path("out/report.json").exists()


@pytest.mark.slow
def test_it_runs_as_a_program(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(RECIPE)
    command = [sys.executable, "-m", "schedir", "train", "xpipe", *MODEL, "--mini-batches", "3"]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=False, timeout=600)
    assert (done.returncode, done.stderr) == (0, b"")

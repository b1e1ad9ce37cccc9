"""`schedir train` when something goes wrong on the way: one line, nothing half-written, no thread left, on from the checkpoint."""

import errno
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command
from tests.executor.small.trainers import alive
from tests.repository import ROOT

RECIPE = """
import _thread, os
import torch
from torch import nn
from executor import Recipe

SAMPLES = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
INTERRUPTED = os.environ.get("INTERRUPTED", "")

class Stage(nn.Linear):
    calls, interrupted = 0, False

    def forward(self, x):
        Stage.calls += 1
        if INTERRUPTED == ("training" if self.training else "evaluation") and Stage.calls > 30 and not Stage.interrupted:
            Stage.interrupted = True  # once: a second one would interrupt the end that the first has begun
            _thread.interrupt_main()
            torch.ones(1)
        return super().forward(x)

def recipe():
    torch.manual_seed(0)
    Stage.calls = 0
    return Recipe(
        model=nn.Sequential(*(Stage(4, 4) for _ in range(4))),
        loss=nn.functional.mse_loss,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
        data=lambda seed: [(x, x) for x in SAMPLES.split(8)],
        validation=lambda seed: [(SAMPLES, SAMPLES)] * 3,
    )
"""
WORDS = ("train", "1f1b", "--model", "mine.py:recipe", "--epochs", 1, "--checkpoint-every", 2)


@pytest.fixture(autouse=True)
def recipe(command: Command) -> None:  # noqa: ARG001 - its folder is the working directory
    Path("mine.py").write_text(RECIPE)


def left_in(folder: str) -> list[str]:
    """Return the names of files that are half-written, and of results that only a whole training leaves."""
    files = [path.name for path in Path(folder).rglob("*")]
    return [name for name in files if name.startswith(".") or name in {"report.json", "train.png"}]


def goes_on_as_if_nothing_had_been(command: Command) -> bool:
    """Finish from the newest checkpoint, and compare with a training that was never interrupted."""
    command.succeed(*WORDS, "--resume")
    command.succeed(*WORDS, "--out", "whole")
    places = [Path(out) / "checkpoints/mini-batch-000008" for out in ("out", "whole")]
    names = ("model.safetensors", "optimizer.safetensors")
    return all((places[0] / name).read_bytes() == (places[1] / name).read_bytes() for name in names)


@pytest.mark.parametrize("moment", ["training", "evaluation"])
def test_ctrl_c_ends_a_training_in_one_line(moment: str, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERRUPTED", moment)
    done = command(*WORDS)
    assert (done.code, done.err) == (1, "error: interrupted\n")
    assert left_in("out") == []
    assert alive() == []


def test_ctrl_c_while_a_checkpoint_is_written_leaves_the_one_before(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice something comes to the disk for losses and evaluations, five times for a checkpoint: the tenth is of the second one."""
    with monkeypatch.context() as patch:
        fails_from(patch, 9, KeyboardInterrupt())
        done = command(*WORDS)
    assert (done.code, done.err) == (1, "error: interrupted\n")
    assert left_in("out") == []
    assert alive() == []
    assert Path("out/checkpoints/latest").read_text() == "mini-batch-000002\n"
    assert goes_on_as_if_nothing_had_been(command)


def test_a_full_disk_ends_a_training_in_one_line_and_it_goes_on_when_there_is_room(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        fails_from(patch, 9, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        done = command(*WORDS)
    assert done.code == 1
    assert done.err == (
        "error: checkpoint out/checkpoints/mini-batch-000004 cannot be written: no space left on device: make room there; the "
        "checkpoints before it stay\n"
    )
    assert left_in("out") == []
    assert alive() == []
    assert goes_on_as_if_nothing_had_been(command)


def fails_from(patch: pytest.MonkeyPatch, number: int, error: BaseException) -> None:
    """Let nothing come to the disk any more behind so many times."""
    original, seen = os.fsync, [0]

    def failing(handle: Any) -> None:
        seen[0] += 1
        if seen[0] > number:
            raise error
        original(handle)

    patch.setattr(os, "fsync", failing)


DISK = ("mkdir", "rename", "replace", "fsync")
"""Calls that come to the disk. A training of `WORDS` makes some 75 of them."""


@pytest.mark.slow
@pytest.mark.parametrize("first", [1, 5])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))], ids=["ctrl-c", "full"])
def test_a_training_that_is_stopped_at_any_call_of_the_disk_goes_on_as_if_nothing_had_been(
    error: BaseException, first: int, command: Command
) -> None:
    command.succeed(*WORDS, "--out", "whole")
    for number in range(first, 200, 8):
        out = f"out-{number}"
        with pytest.MonkeyPatch.context() as patch:
            calls = fails_at(patch, number, error)
            done = command(*WORDS, "--out", out)
        if len(calls) < number:
            break
        assert (done.code, done.err.count("\n")) == (1, 1), (number, done.err)
        assert re.match("error: interrupted$|error: .*make room", done.err), (number, done.err)
        assert list(Path(out).rglob(".*")) == [], number
        command.succeed(*WORDS, "--out", out, "--resume", "auto")
        assert weights_in(out) == weights_in("whole"), number
    assert 60 < number < 190


def fails_at(patch: pytest.MonkeyPatch, number: int, error: BaseException) -> list[str]:
    """Let one call that comes to the disk fail, on a full disk all behind it too; return the names of those that were made."""
    calls: list[str] = []

    def failing(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            calls.append(name)
            if len(calls) == number or (len(calls) > number and isinstance(error, OSError)):
                raise error
            return real(*arguments, **named)

        patch.setattr(os, name, call)

    for name in DISK:
        failing(name)
    return calls


def weights_in(out: str) -> list[bytes]:
    """Return what the last checkpoint holds of model and optimizers."""
    return [path.read_bytes() for path in sorted(Path(out, "checkpoints/mini-batch-000008").glob("*.safetensors"))]


@pytest.mark.slow
def test_a_process_that_may_write_no_larger_file_says_so_and_leaves_no_part_of_one(tmp_path: Path) -> None:
    """No file beyond 2 kB: the model's 500 bytes fit, Adam's state does not."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    (tmp_path / "mine.py").write_text(RECIPE)
    done = subprocess.run(
        [sys.executable, "-m", "schedir", *map(str, WORDS)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        preexec_fn=limited,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1
    assert "mini-batch-000002 cannot be written: file too large: make room there" in done.stderr
    assert left_in(str(tmp_path / "out")) == []


DATA = "lambda seed: [(torch.ones(8, 4), torch.ones(8, 4))]"
FAULTS = {
    "data=lambda: []": "data does not take (seed), too many positional arguments: give a function of (seed)",
    "data=[1]": "data [1] is of type list, which cannot be called: give a function of (seed)",
    "data=lambda seed: None": (
        "data returns None, of type NoneType: return an iterable of (input, target), such as a list or a DataLoader"
    ),
    "data=lambda seed: []": "data give no mini-batches: let them give at least one (input, target)",
    "data=stops": "data raised StopIteration: return an iterable of (input, target), or use yield (faulty.py:9 in stops)",
    "data=ends": (
        "in data: StopIteration (faulty.py:13 in ends): mend what you gave; SCHEDIR_TRACEBACK=1 in the environment shows the way "
        "there"
    ),
    f"data={DATA}, validation=lambda seed: 5": (
        "validation returns 5, of type int: return an iterable of (input, target), such as a list or a DataLoader"
    ),
    f"data={DATA}, validation={DATA}, metrics={{'x': lambda *_: 'x'}}": "metric x returns 'x', of type str: return one real number",
    f"data={DATA}, validation={DATA}, metrics={{'x': lambda *_: torch.ones(3)}}": (
        "metric x returns a tensor of shape [3], float32: return one real number"
    ),
    f"data={DATA}, loss_weight=lambda target: 'x'": "loss_weight returns 'x', of type str: return one real number",
    f"data={DATA}, autocast='bf16'": "autocast 'bf16' is no type to compute in: give torch.bfloat16 or torch.float16",
    f"data={DATA}, stages=[None, None], model=None": "stages hold NoneType: give at least one stage, each an nn.Module",
}


@pytest.mark.parametrize("fields", FAULTS)
def test_what_a_recipe_does_wrong_is_the_user_s_and_said_in_one_line(fields: str, command: Command) -> None:
    """Never a fault of ours."""
    Path("faulty.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "from executor import Recipe\n"
        "\n"
        "SGD = lambda parameters: torch.optim.SGD(parameters, lr=0.1)\n"
        "MODEL = {'model': nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))}\n"
        "\n"
        "def stops(seed):\n"
        "    raise StopIteration\n"
        "\n"
        "def ends(seed):\n"
        "    yield torch.ones(8, 4), torch.ones(8, 4)\n"
        "    raise StopIteration\n"
        "\n"
        "def recipe():\n"
        f"    return Recipe(**MODEL | dict(loss=nn.functional.mse_loss, optimizer=SGD, {fields}))\n"
    )
    assert command.fail("train", "1f1b", "--model", "faulty.py:recipe", "--epoch-size", 4, "--epochs", 1) == FAULTS[fields]
    assert alive() == []

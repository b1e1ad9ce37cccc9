"""Real launches by torchrun, whose agent keeps the store. Slow: torch is imported in every process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from executor.training import train
from tests.cli.test_train import RECIPE
from tests.executor.small.models import batches, compiled, mlp, pipeline_of

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
LIMIT_S = 600


SCRIPT = str(Path(__file__).parent / "programs" / "script.py")
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def python_m(*words: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_processes_of_torchrun_train_as_threads_do_without_being_told_to() -> None:
    done = python_m(*TORCHRUN, SCRIPT)
    expected = train(compiled("1f1b", 2, 4), pipeline_of(mlp(2)), batches(2), workers="threads").losses

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"distributed {expected}"


def test_an_error_ends_torchrun_with_the_first_cause_and_a_code_that_is_not_0() -> None:
    done = python_m(*TORCHRUN, SCRIPT, "raise")

    assert done.returncode != 0
    assert "LookupError: the cause" in done.stderr
    assert "RunError: process 1 (host " in done.stderr


def test_a_killed_process_ends_torchrun_with_a_code_that_is_not_0() -> None:
    done = python_m(*TORCHRUN, SCRIPT, "kill")

    assert done.returncode != 0
    assert "SIGKILL" in done.stderr  # torchrun's own report; a script takes no SIGTERM, so its agent may end it before it can speak


DEADLY = """
import os
import signal

import torch
from torch import nn
from executor import Recipe
from executor.workers.environment import process_number


class Deadly(nn.Module):
    def __init__(self, whom):
        super().__init__()
        self.layer, self.whom, self.calls = nn.Linear(4, 4), whom, 0

    def forward(self, x):
        self.calls += 1
        if process_number() == 1 and self.calls > 9:
            os.kill(self.whom(), signal.SIGKILL)
        return self.layer(x)


def descent(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def recipe(whom):
    torch.manual_seed(0)
    data = [(torch.ones(4, 4), torch.ones(4, 4))] * 100000
    return Recipe(stages=[nn.Linear(4, 4), Deadly(whom)], loss=nn.functional.mse_loss, optimizer=descent, data=lambda seed: data)


def itself(): return recipe(os.getpid)
def its_agent(): return recipe(os.getppid)
"""
TRAIN = ("-m", "schedir", "train", "1f1b", "--micro-batches", "2", "--mini-batches", "100000", "--out", "out", "--model")


def test_the_survivors_of_a_killed_process_name_it_though_the_agent_ends_them(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(DEADLY, encoding="utf-8")
    done = python_m(*TORCHRUN, *TRAIN, "mine.py:itself", folder=tmp_path)

    assert done.returncode != 0
    [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: process 1 (host ")
    assert ", device 1) is gone" in line


def test_processes_whose_agent_is_killed_end_by_themselves(tmp_path: Path) -> None:
    """`run` returns when the last of them has closed its output."""
    (tmp_path / "mine.py").write_text(DEADLY, encoding="utf-8")
    done = python_m(*TORCHRUN, *TRAIN, "mine.py:its_agent", folder=tmp_path)

    assert done.returncode == -signal.SIGKILL
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) in {1, 2}  # one alone if both find the same words for it
    assert all("torchrun's agent" in line for line in lines)


@pytest.mark.parametrize("schedule", ["nothing", "interleaved-1f1b"])
def test_a_mistake_that_all_processes_find_is_said_and_nobody_speaks_of_an_interrupt(schedule: str, tmp_path: Path) -> None:
    """The second is found when torch is loaded. On a machine that is busy enough both may say it: nobody waits for ever."""
    (tmp_path / "mine.py").write_text(RECIPE, encoding="utf-8")
    train = ("schedir", "train", schedule, "--model", "mine.py:tiny", "--stages-per-device", "3")
    done = python_m(*TORCHRUN, "-m", *train, folder=tmp_path)

    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(set(lines)) == 1, lines
    assert "interrupted" not in lines[0]
    assert len(lines) <= 2


def test_schedir_train_under_torchrun_leaves_the_checkpoint_of_schedir_train(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(RECIPE, encoding="utf-8")
    train = ("schedir", "train", "xpipe", "--model", "mine.py:tiny", "--micro-batches", "2", "--mini-batches", "4", "--out")
    alone = python_m(*train, "alone", folder=tmp_path)
    together = python_m(*TORCHRUN, "-m", *train, "together", folder=tmp_path)

    assert alone.returncode == 0, alone.stderr
    assert together.returncode == 0, together.stderr
    assert together.stdout.count("wrote ") == alone.stdout.count("wrote ")  # by one process
    files = sorted(path.relative_to(tmp_path / "alone") for path in (tmp_path / "alone").rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(tmp_path / "together") for path in (tmp_path / "together").rglob("*") if path.is_file())
    same = [file for file in files if file.suffix in {".safetensors", ".csv"}]
    assert {file.name for file in same} >= {"model.safetensors", "losses.csv"}
    for file in same:
        assert (tmp_path / "alone" / file).read_bytes() == (tmp_path / "together" / file).read_bytes()

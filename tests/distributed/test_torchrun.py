"""Real launches by torchrun, whose agent keeps the store. Slow: torch is imported in every process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from executor.training import train
from tests.executor.models import batches, compiled, mlp, pipeline_of

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
LIMIT_S = 180


def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = str(Path(__file__).with_name("script.py"))
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [*command, script, *arguments],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_processes_of_torchrun_train_as_threads_do_without_being_told_to() -> None:
    done = torchrun()
    expected = train(compiled("1f1b", 2, 4), pipeline_of(mlp(2)), batches(2), workers="threads").losses

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"distributed {expected}"


def test_an_error_ends_torchrun_with_the_first_cause_and_a_code_that_is_not_0() -> None:
    done = torchrun("raise")

    assert done.returncode != 0
    assert "LookupError: the cause" in done.stderr
    assert "RunError: process 1 (host " in done.stderr


def test_a_killed_process_ends_torchrun_with_a_code_that_is_not_0() -> None:
    done = torchrun("kill")

    assert done.returncode != 0
    assert "SIGKILL" in done.stderr  # torchrun's own report; the other process may be ended before it can say so itself

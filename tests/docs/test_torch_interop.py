"""The commands of docs/torch_interop.md run, and its table is what torch and we really do."""

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from schedir.cli import main
from schedir.errors import RefusedError
from schedir.interop.torch_limits import check_torch_runs
from schedir.schedules.registry import SCHEDULES, build_program
from tests.repository import ROOT

PAGE = (ROOT / "docs" / "torch_interop.md").read_text(encoding="utf-8")
COMMANDS = [re.split(r" {2,}", line)[0].split() for line in re.findall(r"^schedir (.*)$", PAGE, re.MULTILINE)]


def test_the_commands_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert [command[0] for command in COMMANDS] == ["convert", "convert", "check", "compare", "convert"]
    assert [main(command) for command in COMMANDS] == [0] * len(COMMANDS)
    assert (tmp_path / "zb-h1.toml").exists()


def test_the_table_says_what_torch_can_run() -> None:
    rows = re.findall(r"^\| ([\w, -]+) \| [^|]* \| [^|]* \| (yes|no)", PAGE, re.MULTILINE)
    said = {name: answer == "yes" for names, answer in rows for name in names.split(", ")}

    assert said == {name: _runs(name) for name in SCHEDULES}


def _runs(name: str) -> bool:
    try:
        check_torch_runs(build_program(name, num_devices=4, num_micro_batches=8))
    except RefusedError:
        return False
    return True


@pytest.mark.slow
def test_the_example_trains_in_torch(tmp_path: Path) -> None:
    (line,) = re.findall(r"^torchrun (.*)$", PAGE, re.MULTILINE)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    command = [sys.executable, "-m", "torch.distributed.run", *line.split()]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    run = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        said, errors = run.communicate(timeout=600)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    losses = [float(loss) for loss in re.findall(r"^mini-batch \d: loss ([\d.]+)$", said, re.MULTILINE)]

    assert run.returncode == 0, errors
    assert len(losses) == 3
    assert losses == sorted(losses, reverse=True)

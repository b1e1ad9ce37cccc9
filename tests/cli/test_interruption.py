"""Ctrl-C and SIGTERM, once and again: one line, exit code 1, whatever the command is at."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from schedir import __main__ as entry
from schedir.__main__ import LAST_LINE, Interruption
from schedir.cli import run
from schedir.errors import RunError
from tests.cli.command import Command
from tests.distributed.programs.work import LAUNCH_S
from tests.repository import ROOT


class Left(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bytes]]:
    """Return what was written at once; an end at once is an exception."""
    found: list[tuple[int, bytes]] = []

    def leave(code: int) -> None:
        raise Left(code)

    monkeypatch.setattr(os, "write", lambda file, text: found.append((file, text)))
    monkeypatch.setattr(os, "_exit", leave)
    return found


def test_the_second_signal_says_the_line_and_ends_at_once(written: list[tuple[int, bytes]]) -> None:
    made = Interruption()
    with pytest.raises(KeyboardInterrupt):
        made(signal.SIGINT, None)
    assert written == []
    with pytest.raises(Left, match=r"^1$"):
        made(signal.SIGTERM, None)
    assert written == [(2, LAST_LINE.encode())]


def test_signals_behind_the_last_line_say_nothing_more(written: list[tuple[int, bytes]]) -> None:
    made = Interruption()
    with pytest.raises(KeyboardInterrupt):
        made(signal.SIGINT, None)
    made.end()
    made(signal.SIGINT, None)
    with pytest.raises(Left, match=r"^1$"):
        made(signal.SIGINT, None)
    assert written == []


LATE = """
import os, signal
from schedir.__main__ import Interruption

class Late:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGNAL)
        print("removed", flush=True)

Interruption().listen()
late = Late()
raise SystemExit(3)
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_python_removes_its_last_objects_changes_no_exit_code(sent: signal.Signals) -> None:
    words = [sys.executable, "-c", LATE.replace("SIGNAL", sent.name)]
    done = subprocess.run(
        words, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, check=False, timeout=LAUNCH_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "removed\n", "")


def test_a_process_that_was_forked_is_interrupted_as_any_other(
    written: list[tuple[int, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Interruption()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            made(signal.SIGINT, None)
    assert written == []


def test_the_line_of_an_error_is_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[bool] = []

    def fail(words: list[str]) -> int:
        raise RunError(f"no {words}")

    def end(made: Interruption) -> None:
        said.append(made is signal.getsignal(signal.SIGTERM))

    monkeypatch.setattr(run, "_run", fail)
    monkeypatch.setattr(Interruption, "end", end)
    monkeypatch.setattr(sys, "argv", ["schedir"])
    assert entry.main() == 1
    assert said[0]


def test_an_interrupt_of_an_end_by_an_error_shows_the_error(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is under torchrun: a process that has heard who died is ended by the agent while it takes its leave."""

    def fail(words: list[str]) -> int:
        try:
            raise RunError(f"process 1 is gone, says {words[0]}")
        finally:
            raise KeyboardInterrupt

    monkeypatch.setattr(run, "_run", fail)
    result = command("train")

    assert (result.code, result.err) == (1, "error: process 1 is gone, says train\n")


def test_an_interrupt_says_for_what_the_process_waited(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(words: list[str]) -> int:
        raise KeyboardInterrupt(f"while {words[0]} waited")

    monkeypatch.setattr(run, "_run", fail)
    result = command("process 1")

    assert (result.code, result.err) == (1, "error: interrupted while process 1 waited\n")


ENDS = """
import atexit, sys, tempfile
from schedir.__main__ import main

class Circle:
    def __init__(self):
        self.itself, self.file = self, open("late.txt", "w")
        self.file.write("all of it")

    def __del__(self):
        print("collected")

sys.argv = ["schedir", "--version"]
code = main()
atexit.register(print, "at exit")
kept = tempfile.TemporaryDirectory(dir=".")
Circle()
raise SystemExit(code + 3)
"""


def test_the_end_leaves_the_collector_out_but_nothing_that_was_to_be_done(tmp_path: Path) -> None:
    """The object goes by the collector alone, which would look at all others, too: seconds where torch is loaded."""
    words = [sys.executable, "-W", "ignore", "-c", ENDS]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=600)

    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.splitlines()[1:] == ["at exit"]
    assert [(path.name, path.read_text(encoding="utf-8")) for path in tmp_path.iterdir()] == [("late.txt", "all of it")]


RECIPE = """
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from executor import Recipe


class Sleeps(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, number):
        try:
            print("sleeps", file=sys.stderr, flush=True)
            time.sleep(600)
        finally:
            print("sleeps again", file=sys.stderr, flush=True)
            time.sleep(600)


def recipe():
    return Recipe(
        stages=[nn.Linear(4, 4), nn.Linear(4, 4)],
        loss=nn.functional.mse_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        data=lambda seed: DataLoader(Sleeps(), batch_size=4),
    )
"""


@pytest.mark.slow
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_two_signals_while_a_data_loader_sleeps_end_in_one_line(tmp_path: Path, second: signal.Signals) -> None:
    (tmp_path / "made.py").write_text(RECIPE, encoding="utf-8")
    words = [
        sys.executable,
        "-m",
        "schedir",
        "train",
        "1f1b",
        "--model",
        "made.py:recipe",
        "--devices",
        "2",
        "--micro-batches",
        "2",
    ]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=pipe, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        for word, sent in (("sleeps", signal.SIGINT), ("sleeps again", second)):
            while process.stderr.readline().strip() != word:
                assert process.poll() is None
            process.send_signal(sent)
        _, said = process.communicate(timeout=LAUNCH_S)

    assert (process.returncode, said) == (1, LAST_LINE)

"""Exit codes, and the one line that says what went wrong."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from schedir import __main__ as entry
from schedir import cli
from schedir.cli import run
from schedir.cli.app import COMMANDS
from schedir.errors import ProgramError, RunError
from tests.cli.command import Command
from tests.repository import ROOT

USAGE = [
    (
        ["shw", "1f1b"],
        (
            "there is no command 'shw', did you mean show?: "
            "use show, check, simulate, compare, search, profile, train, plot, convert, demo"
        ),
    ),
    (["show"], "missing argument 'SCHEDULE': schedir show --help shows what there is"),
    (
        ["show", "1f1b", "--device", "2"],
        "no such option: --device, did you mean --devices?: schedir show --help shows what there is",
    ),
    (
        ["train", "1f1b", "--resum", "auto"],
        "no such option: --resum, did you mean --resume?: schedir train --help shows what there is",
    ),
    (["show", "1f1b", "--devices"], "option '--devices' requires an argument: schedir show --help shows what there is"),
    (["show", "1f1b", "gpipe"], "got unexpected extra argument (gpipe): schedir show --help shows what there is"),
    (["show", "1f1b", "--devices", "2.5"], "--devices 2.5 must be an integer of at least 1"),
    (["show", "1f1b", "--devices", "0"], "--devices 0 must be an integer of at least 1"),
    (["show", "1f1b", "--devices", ""], "--devices '' must be an integer of at least 1"),
    (["show", "1f1b", "--micro-batches", "four"], "--micro-batches four must be an integer of at least 1"),
    (["show", "pipedream", "--replicas", "2,x"], "--replicas 2,x must be integers of at least 1, comma-separated"),
    (
        ["show", "gpipe", "--horizon", "exact"],
        "schedule gpipe has no option --horizon: it has order; leave it out, or use xpipe, spectrain or pipeoptim, which have it",
    ),
    (["show", "1f1b", "--qqq"], "no such option: --qqq: schedir show --help shows what there is"),
    (["show", "1f1b", "--hel"], "no such option: --hel: schedir show --help shows what there is"),
]


@pytest.mark.parametrize(("words", "message"), USAGE, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_a_wrong_command_line_exits_with_2_and_one_line(command: Command, words: list[str], message: str) -> None:
    assert command.fail(*words) == message


@pytest.mark.parametrize(("alias", "ours"), [("--pp", "--devices"), ("--vpp", "--stages-per-device")])
def test_flags_of_other_tools_are_understood(command: Command, alias: str, ours: str) -> None:
    expected = command.succeed("show", "1f1b", ours, "1")

    assert command.succeed("show", "1f1b", alias, "1") == expected
    assert command.succeed("show", "1f1b", f"{alias}=1") == expected
    assert alias not in command.succeed("show", "--help")


def test_the_help_names_every_command(command: Command) -> None:
    for words in ([], ["--help"], ["-h"]):
        listed = command.succeed(*words)
        assert [name for name in COMMANDS if f"│ {name} " not in listed] == []


def raising(error: BaseException) -> Callable[..., int]:
    """Return a stand-in that raises as if it stood in our own code."""
    ours: dict[str, Any] = {"__name__": "schedir.cli.made_up", "error": error}
    exec("def stand_in(*words, **options): raise error", ours)
    stand_in: Callable[..., int] = ours["stand_in"]
    return stand_in


OURS = "this is a fault of schedir, not yours: report it with what SCHEDIR_TRACEBACK=1 in the environment shows"
ENDINGS = [
    (RunError("worker 1 stopped:\n  no memory"), 1, "worker 1 stopped:; no memory"),
    (KeyboardInterrupt(), 1, "interrupted"),
    (SystemExit(7), 1, f"SystemExit: 7: {OURS}"),
    (KeyError("x"), 1, f"KeyError: 'x': {OURS}"),
    (AssertionError(), 1, f"AssertionError: {OURS}"),
    (PermissionError(13, "Permission denied", "/far/x"), 1, f"PermissionError: [Errno 13] Permission denied: '/far/x': {OURS}"),
    (FileNotFoundError("gone"), 1, f"FileNotFoundError: gone: {OURS}"),
    (
        ImportError("cannot import name 'x' from 'schedir'", name="schedir"),
        1,
        f"ImportError: cannot import name 'x' from 'schedir': {OURS}",
    ),
    (
        ModuleNotFoundError("No module named 'schedir.x'", name="schedir.x"),
        1,
        f"ModuleNotFoundError: No module named 'schedir.x': {OURS}",
    ),
    (OSError(28, "No space left on device"), 1, "no space left on device: make room and run this again"),
    (MemoryError(), 1, "not enough memory for this: give fewer devices, micro-batches, mini-batches or samples"),
    (
        ModuleNotFoundError("No module named 'torch'", name="torch"),
        2,
        "this needs torch, which is not installed: pip install 'schedir[train]'",
    ),
]


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: type(ending[0]).__name__)
def test_whatever_is_raised_ends_in_one_line(
    command: Command, monkeypatch: pytest.MonkeyPatch, ending: tuple[BaseException, int, str]
) -> None:
    error, code, line = ending
    monkeypatch.setattr(run, "_run", raising(error))
    result = command("show", "1f1b")

    assert (result.code, result.out, result.err) == (code, "", f"error: {line}\n")


def test_the_grid_of_an_invalid_program_goes_to_stdout(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_run", raising(ProgramError("0B1 is missing", "device 0  F0 B0")))
    result = command("show", "1f1b")

    assert (result.code, result.out, result.err) == (2, "device 0  F0 B0\n", "error: 0B1 is missing\n")


@pytest.mark.parametrize("words", [["show", "1f1b"], ["compare", "--help"]])
def test_a_reader_who_leaves_ends_the_command_quietly(words: list[str]) -> None:
    words = [sys.executable, "-m", "schedir", *words]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # long before the first line comes
        said = process.stderr.read()

        assert (process.wait(timeout=600), said) == (1, "")


def test_an_interruption_while_importing_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "main", raising(KeyboardInterrupt()))

    assert entry.main() == 1
    assert capsys.readouterr() == ("", "error: interrupted\n")


def test_a_closed_stdout_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)

    assert cli.main(["show", "1f1b"]) == 2
    assert capsys.readouterr().err == "error: stdout is closed: send it to a file or to /dev/null\n"

"""Run one command line, and turn whatever goes wrong into an exit code and one line.

0    done
2    a user's mistake (SchedirError, usage, whatever their own code raises), or a package that is left to the user to install:
     `error: …` on stderr
1    the run itself failed or was interrupted, or schedir has a fault: `error: …` on stderr

Files that cannot be read or written are SchedirErrors, raised where they are opened; any other OSError is unforeseen.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from io import TextIOWrapper
from typing import Any

import typer
from typer.main import get_command

from schedir.cli.blame import refusal, users_error
from schedir.errors import ArgumentError, ProgramError, RunError, SchedirError, SchedirWarning
from schedir.together import INTERRUPTED, is_said_by_another

_USAGE_ERROR = typer.BadParameter.__mro__[1]
"""The base of what typer raises for a wrong command line; it exports only this one child."""

OPTIONAL = {"ortools": "schedir[search]", "torch": "schedir[train]", "safetensors": "schedir[train]"}
"""Packages that are not installed with schedir, with what to install."""

ALIASES = {
    "--pp": "--devices",
    "--vpp": "--stages-per-device",
    "--mbs": "--micro-batch-size",
    "--gbs": "--mini-batch-size",
    "--steps": "--mini-batches",
}
"""Names of flags in other tools; hidden, and not shown by --help."""


def _go_on() -> None:
    """Do nothing."""


def main(arguments: Sequence[str] | None = None, *, ending: Callable[[], None] = _go_on) -> int:
    """Run the command line (without the program's name; sys.argv if not given) and return its exit code.

    `ending` is called when only the line is left to be printed that says what went wrong.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without ×, – or … is no reason to fail
    try:
        _check_stdout(sys.stdout)
        return _run(words)
    except BrokenPipeError:
        return _leave_pipe()
    except BaseException as error:  # whatever it is, it ends in one line
        if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
            return _leave_pipe()  # rich leaves so where nobody reads its help
        if "SCHEDIR_TRACEBACK" in os.environ:
            raise
        return _fail(error, words, ending)


def _check_stdout(stdout: object) -> None:
    """Refuse to run without a stdout (`>&-`): Python has None there."""
    if stdout is None:
        raise ArgumentError("stdout is closed: send it to a file or to /dev/null")


def _run(words: list[str]) -> int:
    from schedir.cli.app import app  # all commands: late, so that an interruption while they load is one line, too

    command = get_command(app)
    try:
        with _warnings_in_one_line(), command.make_context("schedir", _without_aliases(words), obj=main) as context:
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as stop:
        return stop.exit_code
    return 0


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Print our own warnings as `note: …` on stderr, without the place in our code."""
    before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, SchedirWarning):
            print(f"note: {message}", file=sys.stderr)
        else:
            before(message, category, *place, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("default", SchedirWarning)
        warnings.showwarning = show
        yield


def _without_aliases(words: list[str]) -> list[str]:
    """Spell flags that other tools name differently as ours."""
    last = words.index("--") if "--" in words else len(words)
    return [_spelled(word) for word in words[:last]] + words[last:]


def _spelled(word: str) -> str:
    name, equals, value = word.partition("=")
    return ALIASES.get(name, name) + equals + value


def _fail(error: BaseException, words: list[str], ending: Callable[[], None]) -> int:
    """Print what went wrong and return the exit code."""
    if isinstance(error, ProgramError) and error.grid:
        print(error.grid, flush=True)
    code, text = _explain(error, words)
    line = "; ".join(part.strip() for part in text.splitlines() if part.strip()) or type(error).__name__
    ending()
    if not is_said_by_another(line):
        print(f"error: {line}", file=sys.stderr, flush=True)
    return code


def _explain(error: BaseException, words: list[str]) -> tuple[int, str]:
    match error:
        case SchedirError():
            return 2, refusal(error)
        case ModuleNotFoundError(name=str(name)) if name in OPTIONAL:
            return 2, f"this needs {name}, which is not installed: pip install '{OPTIONAL[name]}'"
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return 1, f"{str(error.strerror).lower()}: make room and run this again"
        case MemoryError():
            return 1, "not enough memory for this: give fewer devices, micro-batches, mini-batches or samples"
        case RunError():
            return 1, str(error)
        case KeyboardInterrupt():
            return 1, _explain_interrupt(error)
    if isinstance(error, _USAGE_ERROR):
        return 2, _explain_usage(error, words)
    return _explain_unforeseen(error)


def _explain_interrupt(error: KeyboardInterrupt) -> str:
    """Say what was interrupted; a run that was about to end by an error is that error's, whoever interrupted its end."""
    before: BaseException | None = error
    while before is not None:
        if isinstance(before, RunError):
            return str(before)
        before = before.__context__
    return f"{INTERRUPTED} {error}".rstrip()


def _explain_unforeseen(error: BaseException) -> tuple[int, str]:
    theirs = users_error(error)
    if theirs is not None:
        return 2, theirs
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    return 1, f"{what}: this is a fault of schedir, not yours: report it with what SCHEDIR_TRACEBACK=1 in the environment shows"


_MEANT = {
    ("compare", "--plot"): "compare always draws: --out FOLDER says where its picture goes",
    ("compare", "--output"): "compare writes several files: --out FOLDER says where they go",
    ("compare", "-o"): "compare writes several files: --out FOLDER says where they go",
    ("compare", "--trace"): "compare writes traces with --model alone, into --out FOLDER: use simulate --trace for one schedule",
}
"""Flags of other commands, by the command that has something else in their place."""


def _explain_usage(error: BaseException, words: list[str]) -> str:
    """Say what is wrong with the command line, and which help shows what is right."""
    from schedir.cli.app import COMMANDS

    command = next((word for word in words if not word.startswith("-")), "")
    if command and command not in COMMANDS:
        close = get_close_matches(command, COMMANDS, n=1)
        hint = f", did you mean {close[0]}?" if close else ""
        return f"there is no command {command!r}{hint}: use {', '.join(COMMANDS)}"
    path = f"schedir {command}" if command else "schedir"
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    meant = _MEANT.get((command, getattr(error, "option_name", "")))
    if meant is not None:
        text = f"{text.split(' (')[0].split(' Did ')[0]}, but {meant}"
    elif hasattr(error, "possibilities"):
        text = text.split(" (")[0].split(" Did ")[0] + _suggestion(error)
    text = " ".join(text.split()).rstrip(".").replace("argument(s)", "argument")
    return f"{text[:1].lower()}{text[1:]}: {path} --help shows what there is"


def _suggestion(error: Any) -> str:
    """Return the flag of the command that a word that is none comes closest to, as the end of a sentence; empty if none does.

    Of all flags that are spelled alike (`--resume` and `--workers` for `--resum`) the first alone is of help, and typer
    names none in some of its versions.
    """
    command = getattr(getattr(error, "ctx", None), "command", None)
    flags = [name for parameter in getattr(command, "params", ()) for name in parameter.opts if name.startswith("--")]
    close = get_close_matches(error.option_name, sorted(set(flags) - {"--help"}), n=1)
    return f", did you mean {close[0]}?" if close else ""


def _leave_pipe() -> int:
    """Whoever read our output has gone: be quiet, also when Python flushes at the end."""
    with suppress(OSError, ValueError):  # a stdout without a file, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1

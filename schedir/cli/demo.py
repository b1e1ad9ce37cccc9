"""`schedir demo`: the main job in three acts, each made of commands that can be typed again."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import typer

import schedir
from schedir.cli.flags.flags import as_command, flag
from schedir.cli.flags.values import path
from schedir.errors import ArgumentError

OUT = Path("out")
"""Where files go if no folder is named."""

SCHEDULES = ("gpipe", "1f1b", "pipedream", "xpipe")
TRAINED = ("gpipe", "pipedream", "xpipe")
TRAINING = ("--model", "character-transformer", "--devices", "2", "--time-limit", "120")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOutput:
    """Output."""

    out: Path | None = flag("--out", path, "FOLDER", f"Where pictures, traces and report.json go; {OUT} if not given.")


RunCommand = Callable[[Sequence[str]], int]
"""Runs a command line and returns its exit code."""


@as_command
def demo(context: typer.Context, *, output: DemoOutput) -> None:
    """Show all of it in three acts, some two minutes: predict, check, train and compare; pictures and traces in a folder."""
    # whoever runs the demo says how commands are run: the module that does it imports all commands, so none may import it
    stage = _Stage(context.obj)
    begun, out, examples = monotonic(), output.out or OUT, find_examples()
    broken, mended = (_short(examples / f"{name}.program.toml") for name in ("broken", "mended"))
    _act("1", "four schedules predicted side by side, without training anything")
    stage.run("compare", *SCHEDULES, "--devices", "4", "--micro-batches", "4", "--out", str(out))
    _act("2", "a schedule that waits for ever, and its mended twin, which trains right")
    stage.run("check", broken, expected=2)
    stage.run("check", mended, "--gradients")
    _act("3", "a character transformer, predicted and really trained on two devices")
    stage.run("compare", *TRAINED, *TRAINING, "--out", str(out))
    _close(out, mended, seconds=monotonic() - begun)


def find_examples() -> Path:
    """Return the folder of examples, of a checkout or of an installed package."""
    package = Path(schedir.__file__).parent
    for folder in (package.parent / "examples", package / "examples"):
        if (folder / "mended.program.toml").exists():
            return folder
    raise ArgumentError(f"{package}: the examples are missing: install schedir again, or run the demo in a checkout")


def _short(file: Path) -> str:
    """Return the path as it is best typed: relative to here, if it lies below."""
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)


def _act(number: str, text: str) -> None:
    print(f"\n=== Act {number}: {text}", flush=True)


@dataclass(frozen=True, slots=True)
class _Stage:
    """Where the acts are played."""

    run_command: RunCommand

    def run(self, *words: str, expected: int = 0) -> None:
        """Run a command as if it were typed; its error line, which one act is about, stands with the rest."""
        print(f"\n$ schedir {' '.join(words)}", flush=True)
        with redirect_stderr(sys.stdout):
            code = self.run_command(words)
        if code != expected:
            raise typer.Exit(code or 1)


def _close(out: Path, mended: str, *, seconds: float) -> None:
    """Print what lies in the folder, pictures first, and what to try next."""
    print(f"\n=== Done in {seconds:.0f} s. In {out}/:")
    files = sorted(out.iterdir(), key=lambda file: (file.suffix != ".png", file.name))
    for file in files:
        print(f"  {file}")
    print("\nTry next:")
    command = _own_command()
    print(f"  {command} plot {out / 'xpipe.trace.json'} -o {out / 'xpipe.pdf'}")
    print(f"  {command} simulate {mended} --recompute always --plot {out / 'mended.svg'}")
    print(f"  {command} compare 1f1b xpipe --model mlp --devices 2 --micro-batches 8 --time-limit 60 --out {out / 'mlp'}")


def _own_command() -> str:
    """Return how this command is called here: by its name if that is on the PATH, else by its place."""
    if shutil.which("schedir"):
        return "schedir"
    place = Path(sys.executable).with_name("schedir")
    return str(place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place)

"""The first cause of a failed run, from the error that a process had to the error that the others raise."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from schedir import errors
from schedir.errors import RunError, SchedirError


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a run ends; plain values, since it goes through the store as JSON."""

    process: int
    """Who failed."""
    text: str
    """One line, with the process's name."""
    error: str = ""
    """Class of the error, if it was one of Python's."""
    message: str = ""
    """Its text."""
    trace: str = ""
    """Its traceback, for people."""
    waited_for: int = -1
    """Process for which it waited too long."""


def cause_of(error: BaseException, number: int, name: str, *, waited_for: int = -1) -> Cause:
    """Describe the error of process `number`, called `name`."""
    kind, message = type(error).__name__, " ".join(str(error).split())
    where = next((f" {note}" for note in getattr(error, "__notes__", ()) if note.startswith("in ")), "")
    how = f"failed{where}: {kind}" if isinstance(error, Exception) else f"was ended{where} by {kind}"
    return Cause(
        process=number,
        text=f"{name} {how}" + (f": {message}" if message else ""),
        error=kind,
        message=message,
        trace="".join(traceback.format_exception(error)),
        waited_for=waited_for if isinstance(error, RunError) else -1,
    )


def error_of(cause: Cause) -> Exception:
    """Return what a process raises for another's failure: a user's mistake stays one, anything else is a RunError."""
    kind = getattr(errors, cause.error, RunError)
    mistake = isinstance(kind, type) and issubclass(kind, SchedirError)
    error: Exception = kind(cause.text) if mistake else RunError(cause.text)
    if cause.trace:
        error.add_note(f"its traceback:\n{cause.trace}")
    return error


def is_interrupt(cause: Cause) -> bool:
    """Return True if a process was the first to be interrupted: whoever interrupts them all, each in its turn."""
    return cause.error == KeyboardInterrupt.__name__


def same_mistake(error: BaseException, cause: Cause) -> bool:
    """Return True if a process made the same mistake as the one that was first: then it shows its own."""
    return isinstance(error, SchedirError) and " ".join(str(error).split()) == cause.message

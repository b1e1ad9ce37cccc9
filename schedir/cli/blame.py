"""Whose code raised an error: the user's, with file and line, or ours.

An error inside a task is the user's also where only a library's lines are left: the task ran what they gave.
"""

from __future__ import annotations

import re

from schedir.errors import SchedirError
from schedir.interop.user_code import users_calls, users_file, users_place

_WORKER = re.compile(r"Caught \w+ in (DataLoader worker process \d+)\.\s+Original Traceback[^\n]*\n(.*)", re.DOTALL)
"""How torch raises anew what was raised in another process: it has no traceback but this text."""
_CALL = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)


def users_error(error: BaseException) -> str | None:
    """Return one line on an error that the user's model, data or recipe raised; None if it is none of theirs."""
    notes = getattr(error, "__notes__", [])
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, StopIteration):
        error = error.__cause__  # raised in a generator of theirs, which Python leaves out of the other's traceback
    inner, place = users_calls(error), users_place(error)
    if worker := _WORKER.search(str(error)):
        return _in_worker(worker[1], worker[2])
    if not place and not (inner and notes):
        return None
    what = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".rstrip(": ")
    where = "".join(f"{note}: " for note in notes)
    return f"{where}{what}{place}{_REMEDY}"


_REMEDY = ": mend what you gave; SCHEDIR_TRACEBACK=1 in the environment shows the way there"


def _in_worker(worker: str, told: str) -> str:
    """Return one line on an error in a process that loads the user's data, given its traceback as text."""
    calls = list(_CALL.finditer(told))
    own = [call for call in calls if users_file(call[1])]
    place = f" ({users_file(own[-1][1])}:{own[-1][2]} in {own[-1][3]})" if own else ""
    # behind the last call and its line of code
    lines = told[calls[-1].end() :].splitlines() if calls else told.splitlines()
    what = " ".join(word for line in lines if not line.startswith(" ") for word in line.split())
    return f"{worker}: {what[:300]}{place}{_REMEDY}"


def refusal(error: SchedirError) -> str:
    """Return what a refusal says, with the user's line that it stands for, where it stands for one and does not name it itself."""
    place = users_place(_first_cause(error))
    return str(error) if place in str(error) else f"{error}{place}"


def _first_cause(error: BaseException) -> BaseException | None:
    """Return the error that a refusal stands for; None if it stands for itself."""
    cause = error.__cause__
    while cause is not None and cause.__cause__ is not None:
        cause = cause.__cause__
    return None if isinstance(cause, SchedirError) else cause

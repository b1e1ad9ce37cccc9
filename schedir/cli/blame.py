"""Whose code raised an error: the user's, with file and line, or ours.

Read from the innermost call outwards, libraries left out:

    … ── executor/stage/module.py ── my_recipe.py:12 forward ── torch/nn/functional.py       the user's, at line 12
    … ── executor/stage/module.py ── torch/nn/modules/linear.py                             the user's too, if a task was running
    … ── my_recipe.py:3 recipe ── executor/plan/plan.py                                          ours
"""

from __future__ import annotations

import sys
import sysconfig
import traceback
from itertools import takewhile
from pathlib import Path
from types import FrameType

from schedir.errors import SchedirError

OURS = frozenset({"schedir", "simulator", "executor", "plots"})
LIBRARIES = sys.stdlib_module_names | {
    *("numpy", "torch", "simpy", "networkx", "matplotlib", "rich", "typer", "click", "pydantic", "pydantic_core")
}
"""Packages that only do what they are told: the error is that of their caller."""

_MODES = {"__torch_dispatch__", "__torch_function__"}
"""Ours, but called by torch for every operation of the user's: what lies further in belongs to the operation."""
_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


def users_error(error: BaseException) -> str | None:
    """Return one line on an error that the user's model, data or recipe raised; None if it is none of theirs."""
    inner, place, notes = _inner(error), users_place(error), getattr(error, "__notes__", [])
    if not place and not (inner and notes):
        return None
    what = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".rstrip(": ")
    where = "".join(f"{note}: " for note in notes)
    return f"{where}{what}{place}: mend what you gave; SCHEDIR_TRACEBACK=1 in the environment shows the way there"


def first_cause(error: BaseException) -> BaseException | None:
    """Return the error that a refusal stands for; None if it stands for itself."""
    cause = error.__cause__
    while cause is not None and cause.__cause__ is not None:
        cause = cause.__cause__
    return None if isinstance(cause, SchedirError) else cause


def users_place(error: BaseException | None) -> str:
    """Return ` (FILE:LINE in FUNCTION)`, where the user's code raised an error; nothing if it did not.

    One of the user's own files is named rather than one of a package that they installed.
    """
    users = [(frame, line) for frame, line in _inner(error) if _package(frame) not in LIBRARIES]
    own = [(frame, line) for frame, line in users if not frame.f_code.co_filename.startswith(_INSTALLED)]
    for frame, line in (own or users)[:1]:
        path = Path(frame.f_code.co_filename)
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        return f" ({shown}:{line} in {frame.f_code.co_name})"
    return ""


def _inner(error: BaseException | None) -> list[tuple[FrameType, int]]:
    """Return the calls inside the innermost of ours, with their lines, the innermost first."""
    if error is None:
        return []
    calls = list(takewhile(lambda call: call[0].f_code.co_name not in _MODES, traceback.walk_tb(error.__traceback__)))
    return list(takewhile(lambda call: _package(call[0]) not in OURS, reversed(calls)))


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]

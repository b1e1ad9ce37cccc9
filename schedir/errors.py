"""The errors of schedir, one tree.

SchedirError (also a ValueError)     what a user can cause and mend: exit code 2
├── ArgumentError                    a value that an argument does not take
├── RefusedError                     a shape or model that a schedule or executor cannot serve, with the reason
├── FormatError                      a file that cannot be read as what it should be
└── ProgramError                     a schedule that is not valid; carries its grid with the culprit marked
    └── DeadlockError                actions that wait for each other for ever; names them
RunError (a RuntimeError)            a run that failed by itself: exit code 1
"""

from __future__ import annotations


class SchedirError(ValueError):
    """A user's mistake. Its text names the value, the rule and the remedy in one line."""


class ArgumentError(SchedirError):
    """An argument has a value that its rule excludes."""


class RefusedError(SchedirError):
    """A schedule, a simulator or an executor cannot serve this shape or model; the text gives the reason."""


class FormatError(SchedirError):
    """A file cannot be read as the kind of file it should be; the text starts with `file:line:` where known."""


class ProgramError(SchedirError):
    """A schedule breaks a rule of the IR.

    `grid` is the program as a table, one line per device, with the culprit marked; empty where no grid helps.
    """

    def __init__(self, message: str, grid: str = "") -> None:
        super().__init__(message)
        self.grid = grid


class DeadlockError(ProgramError):
    """Actions wait for each other for ever; the text names them."""


class RunError(RuntimeError):
    """A run failed by itself (not by a mistake that can be mended in its input)."""


class SchedirWarning(UserWarning):
    """Something was done otherwise than asked, and the result says so."""

"""Progress of long work: a bar on a terminal, a line per step elsewhere, nothing where only the result is wanted."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Steps:
    """Shows how far the work is while it is open."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bar: Progress | None = None
        self._job: TaskID

    def __enter__(self) -> Self:
        if not self._quiet and sys.stdout.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, transient=True, auto_refresh=False)  # a thread of its own would disturb what is timed
            self._bar.start()
            self._job = self._bar.add_task("", total=None)
        return self

    @property
    def has_bar(self) -> bool:
        """Somebody looks at a terminal."""
        return self._bar is not None

    def status(self, text: str) -> None:
        """Say what begins now and takes a while, nobody knows in how many steps."""
        if self._bar is not None:
            self._bar.update(self._job, total=None, description=text, refresh=True)
        elif not self._quiet:
            print(text, flush=True)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        elif not self._quiet:
            print(text, flush=True)

    def show(self, done: int, total: int, text: str) -> None:
        """Say what begins now, as step `done` + 1 of `total`."""
        if self._bar is not None:
            self._bar.update(self._job, completed=done, total=total, description=text, refresh=True)
        elif not self._quiet:
            print(f"[{done + 1:{len(str(total))}}/{total}] {text}", flush=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

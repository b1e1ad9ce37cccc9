"""Progress of long work, on stderr where that is a terminal, so that output to a file or pipe stays whole.

Steps      work whose steps are known: a bar; where nobody sees one, a line per step, on stdout; a step that nobody knows to be long
           gets its line once it has taken two seconds
Underway    work that computes in one go: what is done and for how long, once it has taken two seconds; where nobody sees that, one
           line on stderr, but only of work behind the last that a user's mistake could end: an error is the only line there
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

QUIET = 2.0
"""Seconds before anything is shown of work that may be done at once."""


class Steps:
    """Shows how far the work is while it is open."""

    def __init__(self, *, quiet: bool = False, lines: bool = True) -> None:
        """Show nothing at all if `quiet`; without `lines` only the bar, since something else is printed."""
        self._quiet, self._lines = quiet, lines and not quiet
        self._late: threading.Timer | None = None
        """Prints a line about what has been under way for long."""
        self._printing = threading.Lock()
        self._bar: Progress | None = None
        self._job: TaskID

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
            # no refreshing of its own: a thread more would disturb what is timed
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False, redirect_stdout=False)
            self._bar.start()
            self._job = self._bar.add_task("", total=None)
        return self

    @property
    def has_bar(self) -> bool:
        """Somebody looks at a terminal, and lines beside the bar would only repeat it."""
        return self._bar is not None and sys.stdout.isatty()

    def status(self, text: str) -> None:
        """Say what begins now and may take a while, nobody knows in how many steps; where there is no bar, in two seconds."""
        self._forget_late()
        self._describe(text)
        if self._lines and not self.has_bar:
            self._late = threading.Timer(QUIET, self._say_late, (text,))
            self._late.daemon = True
            self._late.start()

    def stage(self, text: str) -> None:
        """Say what begins now and takes seconds: where there is no bar at once, so that no thread wakes up while it is timed."""
        self._forget_late()
        self._describe(text)
        if self._lines and not self.has_bar:
            self._print(text)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._forget_late()
        if self._lines:
            self._print(text)

    def show(self, done: int, total: int, text: str) -> None:
        """Say what begins now, as step `done` + 1 of `total`."""
        self.done(done, total, text)
        if self._lines and not self.has_bar:
            print(f"[{done + 1:{len(str(total))}}/{total}] {text}", flush=True)

    def done(self, count: int, total: int, text: str) -> None:
        """Say how far the work is; nothing where there is no bar."""
        self._forget_late()
        if self._bar is not None:
            self._bar.update(self._job, completed=count, total=total, description=text, refresh=True)

    def _describe(self, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self._job, description=text, refresh=True)

    def _print(self, text: str) -> None:
        if self._bar is not None:
            self._bar.stop()  # the bar may stand on the line that is printed now
        print(text, flush=True)
        if self._bar is not None:
            self._bar.start()

    def _say_late(self, text: str) -> None:
        """Print a line, from the timer's thread, unless what it is about is done meanwhile."""
        # whoever read our output may have gone: the main thread finds out, too, and ends in its own way
        with self._printing, suppress(OSError, ValueError):
            if self._late is threading.current_thread():
                self._print(text)

    def _forget_late(self) -> None:
        with self._printing:
            if self._late is not None:
                self._late.cancel()
                self._late = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._forget_late()
        if self._bar is not None:
            self._bar.stop()


class Underway:
    """Shows what is done while it is open, and for how long already; nothing is to be printed meanwhile.

        with Underway("simulates 1f1b") as underway:
            ...
            underway.now("draws out/fig.png")

    Not for work that is timed: its thread wakes up ten times a second.
    """

    def __init__(self, text: str, *, logged: bool = False) -> None:
        """Begin with what is done now; `logged`: also where stderr is no terminal."""
        self._text, self._logged, self._began = text, logged, time.monotonic()
        self._bar: Progress | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._begin_timer(self._start)
        elif self._logged:
            self._begin_timer(self._log)
        return self

    def now(self, text: str, *, logged: bool = False) -> None:
        """Say what begins now; `logged`: also where stderr is no terminal, in two seconds from here on."""
        with self._lock:
            self._text = text
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], description=text)
        if logged and not sys.stderr.isatty():
            self._begin_timer(self._log)

    def _begin_timer(self, then: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(QUIET, then)
        self._timer.daemon = True
        self._timer.start()

    def _log(self) -> None:
        # whoever read stderr may have gone, which is no reason for an error in this thread
        with self._lock, suppress(OSError, ValueError):
            if not self._closed:
                print(self._text, file=sys.stderr, flush=True)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._closed:
                return
            columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
            self._bar.add_task(self._text, total=None)
            self._bar.tasks[0].start_time = self._began  # rich counts by the same clock
            self._bar.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar.stop()

"""Progress of a search: a line on stderr that is redrawn on a terminal, nothing elsewhere, nor for what is done in two seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from schedir.cli.screen.progress import QUIET
from schedir.cli.screen.screen import seconds
from schedir.timeline.percent import percent

if TYPE_CHECKING:
    from rich.status import Status

    from schedir.search.found import Progress

EVERY = 0.2
"""Seconds between two redrawings."""


class SearchProgress:
    """Shows how far a search is while it is open."""

    def __init__(self) -> None:
        self._quiet = not sys.stderr.isatty()
        self._status: Status | None = None
        self._began = time.monotonic()
        self._next = self._began + QUIET

    def __enter__(self) -> Self:
        return self

    def show(self, progress: Progress) -> None:
        """Redraw the line, if it is time to."""
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        self._next = now + EVERY
        text = describe(progress, now - self._began)
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status(text)
            self._status.start()
        self._status.update(text)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._status is not None:
            self._status.stop()


def describe(progress: Progress, elapsed: float) -> str:
    """Return one line: how long, what, how many orders, the best and how far it may be from the best there is."""
    gap = progress.value / progress.bound - 1 if progress.bound > 0 else 0.0
    return (
        f"{elapsed:.0f} s, {progress.doing}, {progress.steps} orders tried: best {seconds(progress.value)}, "
        f"at most {percent(max(0.0, gap))} above the bound {seconds(progress.bound)} (Ctrl-C ends with the best)"
    )

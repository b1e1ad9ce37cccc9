"""Calls of torch that wait in C++, where neither an interrupt nor a limit of ours reaches them.

    caller   start ── waits in Python, POLL_S at a time: interrupted? lost? too long? ──▶ value, or an error that names the wait
    thread     └── waits in C++ ─────────────────────────────────────────▶ value

The thread is a daemon: if its call never returns, it ends with the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TypeVar

from schedir.errors import RunError

T = TypeVar("T")
POLL_S = 0.05
"""How often the caller looks around."""


def nothing_wrong() -> None:
    """Look at nothing."""


def interruptible(
    call: Callable[[], T], *, about: Callable[[], str], timeout_s: float, look: Callable[[], None] = nothing_wrong
) -> T:
    """Return what a call returns, raise what it raises; meanwhile the process can be interrupted.

    `about` says who waits for what at this moment. `look` is called again and again, and may raise what ends the wait. Raises
    RunError after `timeout_s`; a KeyboardInterrupt gets the wait as its text.
    """
    answers: SimpleQueue[Callable[[], T]] = SimpleQueue()
    thread = threading.Thread(target=lambda: answers.put(_outcome(call)), name="wait in C++", daemon=True)
    limit = monotonic() + timeout_s
    try:
        # inside of the `try`: an interrupt that comes while the thread starts interrupts this wait, too
        thread.start()
        while (outcome := _next(answers)) is None:
            look()
            if monotonic() > limit:
                raise RunError(f"{about()}, and nothing came within {timeout_s:g} s: look at its output")
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt(f"while {about()}") from interrupt
    return outcome()


def _next(answers: SimpleQueue[Callable[[], T]]) -> Callable[[], T] | None:
    """Return an answer, None if there is none within POLL_S."""
    try:
        return answers.get(timeout=POLL_S)
    except Empty:
        return None


def _outcome(call: Callable[[], T]) -> Callable[[], T]:
    """Make a call; return what gives its value, or raises its error, in the caller's thread."""
    try:
        value = call()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the caller shall see it
        failure = error

        def fail() -> T:
            raise failure

        return fail
    return lambda: value

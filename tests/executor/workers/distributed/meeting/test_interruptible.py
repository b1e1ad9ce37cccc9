"""Waits for C++ that can be interrupted, have a limit, and say for whom they are."""

import _thread
import threading

import pytest

from executor.workers.distributed.meeting.interruptible import interruptible
from schedir.errors import RunError

LONG_S = 300.0
"""Nothing here waits so long."""


def about() -> str:
    return "process 1 waited for the store"


def test_what_a_call_gives_is_returned_and_what_it_raises_is_raised() -> None:
    assert interruptible(lambda: 5, about=about, timeout_s=LONG_S) == 5
    with pytest.raises(LookupError, match="the call's own"):
        interruptible(lambda: exec('raise LookupError("the call\'s own")'), about=about, timeout_s=LONG_S)


def test_an_interrupt_ends_the_wait_and_names_it() -> None:
    """A call in C++ hears of no interrupt; this one waits in its thread as long as the test does."""
    begun, never = threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        never.wait(LONG_S)

    def interrupt() -> None:
        begun.wait(LONG_S)
        _thread.interrupt_main()

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt, match=r"^while process 1 waited for the store$"):
        interruptible(call, about=about, timeout_s=LONG_S)
    never.set()


def test_a_wait_ends_after_its_limit_and_names_it() -> None:
    never = threading.Event()
    with pytest.raises(RunError, match=r"^process 1 waited for the store, and nothing came within 0\.2 s: look at its output$"):
        interruptible(lambda: never.wait(LONG_S), about=about, timeout_s=0.2)
    never.set()


def test_a_wait_ends_when_it_is_known_to_be_in_vain() -> None:
    never = threading.Event()

    def look() -> None:
        raise RunError("process 2 is gone")

    with pytest.raises(RunError, match=r"^process 2 is gone$"):
        interruptible(lambda: never.wait(LONG_S), about=about, timeout_s=LONG_S, look=look)
    never.set()

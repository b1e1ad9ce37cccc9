"""How soon a thread goes on when another hands over to it: how it waits, and how long the other keeps Python's lock.

    A  ── task ──▶ put ── Python of its next task ──┤ first long operation
    B  waits ───────┊── wakes up ── Python's lock? ─┴─▶ task

A thread that sleeps on a lock lets its core sleep, the deeper the longer. On a virtual machine B then takes 70 µs to wake up, and
A 40 µs to wake it. If B naps for 50 µs at a time instead, that is 35 µs and 1 µs, for a fifth of a core while it waits; so only
short waits are napped through, and only where every device has a core of its own.

Awake, B needs Python's lock, which A holds in the Python of its next task. A gives it up with every operation of torch, but takes
it again before B is there; B has to ask, after Python's own 5 ms, which is as long as a task.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep

NAPPED_S = 0.003
"""How much of a wait is napped through; that of a balanced pipeline is shorter, but in its start-up and drain."""
_NAP_S = 1e-6
"""Asked for; an operating system makes about 50 µs of it."""
SWITCH_S = 5e-5
"""How long a thread may keep Python's lock while another waits: hand-overs take 0.13 ms instead of 0.19 ms by it. Stages of many
small operations gain too; those that compute in Python itself, which nobody should want in a pipeline, lose a fifth.
"""


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def nap_until(arrived: threading.Lock) -> bool:
    """Acquire a lock that another thread will release soon; return whether it was within NAPPED_S."""
    # the lock is tried without waiting: to wait on it is what lets the core sleep
    limit = monotonic() + NAPPED_S
    while not arrived.acquire(blocking=False):
        if monotonic() > limit:
            return False
        sleep(_NAP_S)
    return True


class _Switching:
    """Python has one interval for the whole process: whoever is first sets it, whoever is last puts it back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0.0

    @contextmanager
    def quick(self) -> Iterator[None]:
        with self._lock:
            self._users += 1
            # trainings in several threads of one process share the interval
            if self._users == 1:
                self._before = sys.getswitchinterval()
                # never longer than the user has set it
                if self._before > SWITCH_S:
                    sys.setswitchinterval(SWITCH_S)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    sys.setswitchinterval(self._before)


_SWITCHING = _Switching()

quick_switching = _SWITCHING.quick
"""A context in which a thread that waits for Python's lock gets it within SWITCH_S."""

"""Threads that something has started and left behind. Those of others, of an earlier test say, may end at any moment."""

import threading
from collections.abc import Collection
from time import monotonic

BOUND_S = 60.0
"""Far more than a thread needs to come to its end, on however busy a machine."""


def left_since(before: Collection[threading.Thread], *, bound_s: float = BOUND_S) -> list[threading.Thread]:
    """Return the threads that were not there before, and are still there when they have had some time to end."""
    limit = monotonic() + bound_s
    started = [thread for thread in threading.enumerate() if thread not in before]
    for thread in started:
        if thread.ident is not None:  # one that is being started cannot be joined yet
            thread.join(max(limit - monotonic(), 0.0))
    return [thread for thread in started if thread.is_alive()]

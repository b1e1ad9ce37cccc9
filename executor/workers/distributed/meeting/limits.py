"""How long the processes of a run wait for each other, and how soon all have ended behind the first failure. Needs no torch.

    failure ── known to all ──▶ connections are down ──▶ leave is taken
               lost_after       BREAK_OFF_S              LINGER_S

A broken connection is known at once; only silence takes `lost_after`.
"""

from __future__ import annotations

from math import inf

LOST_S = 20.0
"""How long a process may be silent, at most; a computation does not make it silent."""
LEAST_LOST_S = 2.0
"""And at least, however short a timeout is: a busy host gives a thread its turn late."""
BREAK_OFF_S = 5.0
"""How long lanes that were broken off have to end."""
LINGER_S = 3.0
"""How long process 0, which may keep the store, waits for the others before it leaves."""


LEAST_START_S, MOST_CONNECT_S = 20.0, 60.0
"""However short a timeout is, a process has so long to come to the start; however long, connections are there within so long."""


def lost_after(timeout_s: float) -> float:
    """Return after how many seconds of silence a process is lost, if nobody waits longer than `timeout_s` for it."""
    return min(LOST_S, max(timeout_s / 2, LEAST_LOST_S))


def come_after(timeout_s: float) -> float:
    """Return how many seconds the processes of a run have to come to its start: some import longer than others."""
    return max(timeout_s, LEAST_START_S)


def connected_after(timeout_s: float) -> float:
    """Return how many seconds the processes of a run have to connect, once all have come."""
    return min(come_after(timeout_s), MOST_CONNECT_S)


def nccl_after(timeout_s: float) -> float:
    """Return after how many seconds NCCL gives up a hand-over by itself: behind everybody who waits for one, and can name it."""
    return timeout_s + ended_after(timeout_s)


def ended_after(timeout_s: float = inf) -> float:
    """Return within how many seconds of a failure all processes have ended, but for what a stage computes at that moment."""
    return lost_after(timeout_s) + BREAK_OFF_S + LINGER_S

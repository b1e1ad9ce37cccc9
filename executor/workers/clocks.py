"""Times of one clock on another: of a process on that of process 0, of a GPU on that of its host.

    this clock    t0 ─────────╮              ╭──▶ t3        θ = (other clock) − (this clock)
    other clock               ╰─▶ t1 ··· t2 ─╯              t2 − t3 ≤ θ ≤ t1 − t0,  since nothing arrives before it is sent

Of several round trips the bounds are intersected (Cristian 1989; the four times are NTP's, RFC 5905, 8). One sync before a pass
over the graph and one behind it give offset and drift: θ is a straight line between the two. What is left of the bounds is the
error of a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from executor.run.clock import Times

NUM_ROUND_TRIPS = 8


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """Four times in nanoseconds: sent and received back here, received and sent back there. Either message may be the first."""

    sent: int
    received_there: int
    sent_there: int
    received: int


@dataclass(frozen=True, slots=True)
class Offset:
    """What must be added to times of this clock, around one moment."""

    at: float
    """That moment on this clock, in nanoseconds."""
    offset: float
    bound: float
    """Its error is at most this."""


SAME_CLOCK = Offset(0.0, 0.0, 0.0)


def estimate(trips: Sequence[RoundTrip]) -> Offset:
    """Return the offset that several round trips allow."""
    #   θ on a line    ├───── trip 0 ─────┤
    #                        ├──── trip 1 ─────┤      all trips saw one θ, which lies where they overlap; half of that is the error
    #                        ├ overlap ───┤
    least = max(trip.sent_there - trip.received for trip in trips)
    most = min(trip.received_there - trip.sent for trip in trips)
    # A clock that drifts by more than the shortest round trip within the burst leaves no value: the bound then covers both.
    return Offset((trips[0].sent + trips[-1].received) / 2, (least + most) / 2, abs(most - least) / 2)


@dataclass(frozen=True, slots=True)
class AlignedClock:
    """This clock against the other, between two syncs."""

    before: Offset
    behind: Offset

    @property
    def drift(self) -> float:
        """Seconds by which this clock falls behind in a second."""
        length = self.behind.at - self.before.at
        return (self.behind.offset - self.before.offset) / length if length else 0.0

    @property
    def bound_s(self) -> float:
        """Largest error of a corrected time, in seconds, if the drift is constant between the syncs."""
        return max(self.before.bound, self.behind.bound) * 1e-9

    @property
    def offset_s(self) -> float:
        return self.before.offset * 1e-9

    def corrected(self, times: Times) -> Times:
        """Return times of this clock as times of the other."""
        # The offset is added as a small number: nanoseconds since the start of a host have more digits than a float.
        shift = self.before.offset + self.drift * (times - self.before.at)
        return np.asarray(times + np.rint(shift).astype(np.int64))

"""All processes' times on the clock of process 0.

    process k   t0 ─────────╮              ╭──▶ t3        θ = (clock of 0) − (clock of k)
    process 0               ╰─▶ t1 ··· t2 ─╯              t2 − t3 ≤ θ ≤ t1 − t0,  since no message arrives before it is sent

Of several round trips the bounds are intersected (Cristian 1989; the four times are NTP's, RFC 5905, 8). One sync before a pass
over the graph and one behind it give offset and drift: θ is a straight line between the two. What is left of the bounds is the
error of a time, and a message that seems to arrive before it was sent shows that it was not zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
"""int64, in nanoseconds."""

NUM_ROUND_TRIPS = 8


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """Four times in nanoseconds: sent and received back here, received and sent back there."""

    sent: int
    received_there: int
    sent_there: int
    received: int


@dataclass(frozen=True, slots=True)
class Offset:
    """What must be added to times of this process's clock, around one moment."""

    at: float
    """That moment on this process's clock, in nanoseconds."""
    offset: float
    bound: float
    """Its error is at most this."""


SAME_CLOCK = Offset(0.0, 0.0, 0.0)


def estimate(trips: Sequence[RoundTrip]) -> Offset:
    """Return the offset that several round trips allow."""
    least = max(trip.sent_there - trip.received for trip in trips)
    most = min(trip.received_there - trip.sent for trip in trips)
    # A clock that drifts by more than the shortest round trip within the burst leaves no value: the bound then covers both.
    return Offset((trips[0].sent + trips[-1].received) / 2, (least + most) / 2, abs(most - least) / 2)


@dataclass(frozen=True, slots=True)
class AlignedClock:
    """This process's clock against that of process 0, between two syncs."""

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
        """Return times of this clock as times of process 0's."""
        # The offset is added as a small number: nanoseconds since the start of a host have more digits than a float.
        shift = self.before.offset + self.drift * (times - self.before.at)
        return np.asarray(times + np.rint(shift).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Flight:
    """A message between two processes, in corrected nanoseconds."""

    sender: int
    receiver: int
    sent: int
    received: int


def shifts(flights: Iterable[Flight], num_processes: int) -> list[int] | None:
    """Return the least delays of the processes' times with which no message arrives before it was sent.

    None if there are none, because some clock did not drift evenly. All 0 where the times were right already.
    """
    shortest: dict[tuple[int, int], int] = {}
    for flight in flights:
        link = flight.sender, flight.receiver
        shortest[link] = min(shortest.get(link, flight.received - flight.sent), flight.received - flight.sent)
    # longest paths by Bellman and Ford: delays only grow, and if they still do after as many rounds as there are processes, some
    # circle of messages asks for more than there is
    delays = [0] * num_processes
    for _ in range(num_processes):
        changed = False
        for (sender, receiver), length in shortest.items():
            needed = delays[sender] - length  # received + delay of the receiver >= sent + delay of the sender
            if needed > delays[receiver]:
                delays[receiver], changed = needed, True
        if not changed:
            return delays
    return None

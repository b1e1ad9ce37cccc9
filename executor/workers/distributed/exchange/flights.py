"""Messages between processes as a test of their clocks: one that seems to arrive before it was sent shows an error."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


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

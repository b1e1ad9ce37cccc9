"""What the passes over a graph gave: losses and timelines, put together from what each process knows of them.

    pass 0      note ── exchange        a mistake in the data is told before anything is learned from it for long
    pass 1      note                    nobody waits for anybody: a pass begins as soon as its data are there
    …           note
    pass n      note ── exchange        behind as many passes as are kept, and behind the last

Every exchange is a round trip to process 0, for which all devices stand still; that is as long as a task of 1 ms takes. One process
knows everything at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from executor.run.checksums import checksum
from executor.run.clock import in_seconds
from executor.run.machine import this_machine
from executor.stage.feed import Feed
from executor.workers.team import PassTimes, ReadTimes, Team
from schedir.errors import ArgumentError
from schedir.ir.graph import TaskGraph
from schedir.timeline.timeline import Source, Timeline

MOST_KEPT = 64
"""Passes between two exchanges; so long other data in another process may stay unseen, if the first pass had the same."""
MOST_KEPT_BYTES = 2**20
"""Of their times, in every process; graphs of many tasks have fewer passes, and those take long."""


@dataclass(frozen=True, slots=True)
class PassPart:
    """What one process knows of a pass, beside its times."""

    shares: list[float]
    """By micro-batch: what it gives to its mini-batch's loss, 0 where another process knows."""
    data: int
    """A checksum of inputs and targets."""


class PassResults:
    """Losses and timelines of one call of `train`."""

    def __init__(self, graph: TaskGraph, team: Team, *, seed: int) -> None:
        self._graph, self._team, self._seed = graph, team, seed
        self.losses: list[float] = []
        """By mini-batch."""
        self.timelines: list[Timeline] = []
        """By pass."""
        self._parts: list[PassPart] = []
        """Of the passes behind the last exchange."""
        self._times: list[PassTimes] = []
        size = 2 * np.dtype(np.int64).itemsize * max(graph.num_tasks, 1)
        # the same in every process, or they would not meet
        self._kept = 1 if team.num_processes == 1 else max(1, min(MOST_KEPT, MOST_KEPT_BYTES // size))

    def note(self, feed: Feed, read: ReadTimes) -> None:
        """Take down what this process knows of the pass that has ended; let the others know if it is time to.

        Raises ArgumentError if the processes have read other data.
        """
        data = checksum(feed.micro_batches) if self._team.num_processes > 1 else 0
        self._times.append(self._team.taken(read))
        self._parts.append(PassPart(feed.shares(), data))
        if not self.timelines or len(self._parts) == self._kept:
            self.exchange()

    def exchange(self) -> None:
        """Put together what all processes know of the passes since the last exchange; every process calls it behind the same pass.

        Raises ArgumentError if they have read other data.
        """
        if not self._parts:
            return
        # the number is compared too: a process that has fewer passes would otherwise pass for one that has come as far
        about = f"end of pass {len(self.timelines) + len(self._parts)}"
        of_all = self._team.of_all(about, self._parts)
        times = self._team.merged(f"times at the {about}", self._graph, self._times)
        for parts, merged in zip(zip(*of_all, strict=True), times, strict=True):
            self._take(parts, merged)
        self._parts, self._times = [], []

    def _take(self, parts: tuple[PassPart, ...], times: PassTimes) -> None:
        """Take what every process knows of a pass."""
        for number, part in enumerate(parts):
            if part.data != parts[0].data:
                raise ArgumentError(
                    f"process {number} has trained on other data than process 0: let every process read the same mini-batches in "
                    "the same order (shuffle with a seed)"
                )
        m = self._graph.program.num_micro_batches
        # one process has computed a micro-batch's loss, so all but one term of a sum are 0, and it is exact
        shares = [sum(known) for known in zip(*(part.shares for part in parts), strict=True)]
        self.timelines.append(self._timeline(times))
        self.losses += [sum(shares[first : first + m]) for first in range(0, len(shares), m)]

    def _timeline(self, times: PassTimes) -> Timeline:
        number = len(self.timelines)
        meta = {
            "pass": number,
            "first_mini_batch": number * self._graph.program.num_mini_batches,
            "warm_up": number == 0,
            "seed": self._seed,
            "machine": this_machine(),
        } | times.about
        return Timeline(self._graph, *in_seconds(times.start, times.end), Source.MEASURED, meta=meta)

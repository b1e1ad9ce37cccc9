"""What every process tells the store of itself, again and again: how often it has, what it is at, for whom it waits."""

from __future__ import annotations

import json
from dataclasses import dataclass

from torch.distributed import Store  # type: ignore[attr-defined]  # torch lists no names


@dataclass(slots=True)
class Position:
    """What this process's compute lane is at; written by it, read by the watch."""

    task: int = -1
    waits_for: int = -1
    """Process whose value it waits for, -1 if it computes."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a process last told of itself."""

    count: int = 0
    """How often it has told something: as long as it grows, the process is alive, however long its task takes."""
    where: str = ""
    """The task that its compute lane is at; nothing before the first."""
    waits_for: int = -1
    """Process whose value it waits for, -1 if it computes."""


class Beats:
    """The beats of all processes, in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(self, number: int, beat: Beat) -> None:
        """Tell what a process is at."""
        self._store.set(_key(number), json.dumps([beat.count, beat.where, beat.waits_for]))

    def text(self, number: int) -> str:
        """Return what a process has written last, as it stands in the store; nothing before its first beat."""
        # asked for first: a store waits for a key that is not there
        return self._store.get(_key(number)).decode() if self._store.check([_key(number)]) else ""

    def last(self, number: int) -> Beat:
        """Return a process's last beat."""
        text = self.text(number)
        return Beat(*json.loads(text)) if text else Beat()

    def position(self, number: int) -> str:
        """Return text that changes as long as a process's compute lane goes on, and stays while only its count grows."""
        return self.text(number).partition(",")[2]

    def last_of_row(self, number: int) -> int:
        """Return for whom a process waits in the end: the last in a row of processes that wait for each other."""
        # beats of different moments may form a circle, though no processes do
        seen: set[int] = set()
        while number not in seen:
            seen.add(number)
            waits_for = self.last(number).waits_for
            number = waits_for if waits_for >= 0 else number
        return number


def _key(number: int) -> str:
    return f"beat/{number}"

"""Values on their way from lanes to ports, whichever is there first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from executor.run.clock import now
from executor.workers.distributed.messages.lanes import Key

Arrive = Callable[[Any, int], None]
"""Takes a value and when it arrived."""


class Inbox:
    """Takes what lanes deliver. A port gets the value of its key once, or, if it is to stay, whenever one comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ports: dict[Key, tuple[Arrive, bool]] = {}
        self._early: dict[Key, tuple[Any, int]] = {}

    def expect(self, key: Key, arrive: Arrive, *, stays: bool = False) -> None:
        """Give the values of a key to a port."""
        with self._lock:
            early = self._early.pop(key, None)
            if early is None or stays:
                self._ports[key] = arrive, stays
        # without the lock, here and below: what a port does with a value may take as long as it likes
        if early is not None:
            arrive(*early)

    def deliver(self, key: Key, value: Any) -> None:
        """Take a value that has arrived; runs in its lane's thread."""
        # before the lock: a wait for it is no time of the message
        arrived = now()
        with self._lock:
            port, stays = self._ports.get(key, (None, False))
            if port is None:
                self._early[key] = value, arrived
            elif not stays:
                del self._ports[key]
        if port is not None:
            port(value, arrived)

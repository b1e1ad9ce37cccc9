"""How the host waits for a GPU: never without a bound and a name."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic, sleep

from executor.workers.cuda.driver import Event
from schedir.errors import RunError

PAUSE_S = 20e-6
"""Between two looks at an event that is not done."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Waits that end."""

    timeout_s: float

    def await_event(self, event: Event, name: str) -> None:
        """Return once an event is done; raise RunError after the time limit."""
        limit = monotonic() + self.timeout_s
        while not event.query():
            if monotonic() > limit:
                raise RunError(f"waited {self.timeout_s:g} s for {name}: raise timeout if a task may take that long")
            sleep(PAUSE_S)

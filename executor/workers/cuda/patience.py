"""How the host waits for a GPU: never without a bound and a name."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic, sleep

from executor.workers.cuda.driver import Event
from schedir.errors import RunError

PAUSE_S = 20e-6
"""Between two looks at an event that is not done."""
SPIN_S = 100e-6
"""How long the host looks without a pause: a mark's bound is as wide as the wait for its event."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Waits that end."""

    timeout_s: float

    def await_event(self, event: Event, name: str) -> None:
        """Return once an event is done; raise RunError after the time limit."""
        began = monotonic()
        while not event.query():
            waited = monotonic() - began
            if waited > self.timeout_s:
                raise RunError(f"waited {self.timeout_s:g} s for {name}: raise timeout if a task may take that long")
            if waited > SPIN_S:
                sleep(PAUSE_S)

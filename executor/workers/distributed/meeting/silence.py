"""How long somebody has been silent, as far as this process can tell."""

from __future__ import annotations

from time import monotonic


class Silence:
    """Counts the time in which a sign of life has not changed.

    Only time counts in which this process looked: one that was stopped itself, or whose host gave it no turn, would take the
    others for dead when it goes on.
    """

    def __init__(self, *, limit_s: float, look_s: float) -> None:
        """Begin to count. `look_s`: how much time lies between two looks; a longer pause is this process's own."""
        self.limit_s = limit_s
        self._look_s = look_s
        self._sign: object = None
        self._silent_s = 0.0
        self._looked = monotonic()

    def is_too_long(self, sign: object) -> bool:
        """Look at a sign of life; return whether it has stayed the same for the limit."""
        now = monotonic()
        self._silent_s = self._silent_s + min(now - self._looked, 2 * self._look_s) if sign == self._sign else 0.0
        self._sign, self._looked = sign, now
        return self._silent_s > self.limit_s

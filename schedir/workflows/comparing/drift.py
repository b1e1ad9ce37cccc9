"""How much a machine's speed differs from one stretch of time to the next: what an interval adds to the scatter inside a profile.

A profile and its run follow each other within seconds, and yet differ by more than the scatter between the profile's repeats
explains: other programs, other guests of the host, where a run's memory happens to lie. Longer profiles do not help much. On the
machine of docs/validation.md neighbouring stretches of 1, 2 and 4 steps differ by 9, 10 and 11 % (root mean square), a profile and
its run by 14 %: noise like 1/f, whose differences stay as large however long one averages. One profile cannot show it; what was
predicted and measured before can.

    levels        log p0, log m0, log p1, log m1, …   predicted and measured seconds of a step, in the order of time
    differences   d_i = level_(i+1) - level_i         each between two stretches of time that follow each other
    drift         s² = mean of max(0, d_i² - v_i)     v_i: variance of the draws of the prediction in d_i, which they hold already
    interval      9 of 10 draws x exp(s t)            t: Student's, 2n/3 degrees of freedom for n differences

What is to be covered, log m - log p of the next round, is the next difference of the same series. Their mean square, the mean
square successive difference (von Neumann, Kent, Bellinson and Hart 1941, Ann. Math. Stat. 12), is right whether the noise is white,
drifts slowly or anything between, since it compares neighbours only. Neighbouring differences share a level, so that n of them
estimate it as well as 2n/3 independent values would (ibid., for white noise): these are the degrees of freedom. The interval is
predictive: few differences make Student's t wide. A prediction that is always wrong the same way widens it, too. Nothing is fitted
to the run that is predicted.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from schedir.ir.arrays import Floats

DEGREES_PER_DIFFERENCE = 2 / 3
"""How many independent values a successive difference is worth."""

PER_DRAW = 40
"""Factors that each draw is multiplied by: an interval's ends are quantiles of Student's far tails."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Drift between a profile and its run, as far as it is known."""

    scale: float = 0.0
    """Standard deviation of log(measured / predicted) beyond the draws' own."""
    differences: int = 0
    """Successive differences that it is estimated from; 0: nothing is known, and nothing is added."""

    def spread(self, log_draws: Floats, seed: int) -> Floats:
        """Return the draws (logarithms of seconds, any number) with drift on top, float64 (draws x PER_DRAW)."""
        if not self.differences or not self.scale:
            return log_draws
        generator = np.random.default_rng([seed, self.differences])
        t = generator.standard_t(DEGREES_PER_DIFFERENCE * self.differences, len(log_draws) * PER_DRAW)
        return np.repeat(log_draws, PER_DRAW) + self.scale * t


@dataclass(slots=True)
class DriftSoFar:
    """The levels of all schedules that one machine predicted and measured in turn, and what they say about its drift."""

    _level: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    """By schedule: its last level, and the variance of the draws behind it."""
    _excess: list[float] = field(default_factory=list)
    """d_i² - v_i of every difference, at least 0: one profile that scattered widely says nothing against the other differences."""

    def follow(self, schedule: Hashable, seconds: float, variance: float = 0.0) -> None:
        """Take what a schedule's step was predicted to take (with the variance of its draws' logarithms), or took (with none)."""
        level = float(np.log(seconds))
        if schedule in self._level:
            last, other = self._level[schedule]
            self._excess.append(max(0.0, (level - last) ** 2 - max(variance, other)))
        self._level[schedule] = level, variance

    def now(self) -> Drift:
        """Return what is known now."""
        if not self._excess:
            return Drift()
        return Drift(float(np.sqrt(np.mean(self._excess))), len(self._excess))

"""The noise floor: how well the measurement predicts itself. No prediction can be held to less."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedir.timeline.metrics.steady import mini_batch_end, steady_range
from schedir.timeline.timeline import Timeline


def noise_words(measurements: int) -> str:
    """Say what is held against what in the noise floor of so many measurements."""
    return "rounds against each other" if measurements > 1 else "the mini-batches of the one run against each other"


def noise_floor(timelines: Sequence[Timeline], steps: Sequence[float]) -> float | None:
    """Return the median error when each measured step is predicted by the median of all others; None for a single step.

    `steps` are the seconds of a step in each timeline. A single timeline is taken apart into the mini-batches of its steady
    state.
    """
    seconds = list(steps) if len(steps) > 1 else _steps_within(timelines[0])
    if len(seconds) < 2 or min(seconds) <= 0:
        return None
    # each against all others: what a prediction that knows the machine as well as the machine itself would be off by
    others = [float(np.median(seconds[:index] + seconds[index + 1 :])) for index in range(len(seconds))]
    return float(np.median([abs(guess / step - 1.0) for guess, step in zip(others, seconds, strict=True)]))


def _steps_within(timeline: Timeline) -> list[float]:
    found = steady_range(timeline.graph)
    if found is None:
        return []
    # mini-batches of a round end side by side (replicas), so single ones have no length of their own
    whole_rounds = int(np.lcm.reduce(timeline.graph.round_size))
    ends = [mini_batch_end(timeline, mini_batch) for mini_batch in range(found[0], found[1] + 1, whole_rounds)]
    if None in ends:
        return []
    # of whole rounds: the errors are ratios, so it does not matter how many mini-batches a step has
    return [float(step) for step in np.diff(np.array(ends, np.float64))]

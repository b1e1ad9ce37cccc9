"""What the figures say, in sentences that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.validation.causes import CAUSES, RoundCauses, shares
from benchmarks.validation.configurations import Configuration
from benchmarks.validation.figures import Row, Summary
from schedir.ir.arrays import Floats
from schedir.timeline.metrics.steady import step_seconds

GOAL_MEDIAN, GOAL_P95 = 0.02, 0.08
"""Goals for the step: median at most this or the noise floor, whichever is larger; 95th percentile."""

GOAL_GPU_MEAN, GOAL_GPU_MOST = 0.02, 0.05
"""The same on GPUs: mean, and the largest."""

FEWEST = 3
"""Configurations that a group needs to have an error of its own."""

SURE = 2.0
"""From so many standard errors on an error counts as systematic."""

GROUPS: dict[str, Callable[[Configuration], str]] = {
    "model": lambda one: one.model,
    "schedule": lambda one: one.schedule,
    "recompute": lambda one: f"recompute {one.recompute}",
}


@dataclass(frozen=True, slots=True)
class Group:
    """Configurations that share something."""

    name: str
    mean: float
    """Of their errors."""
    standard_error: float
    """Of that mean, from how far they are apart."""

    @property
    def systematic(self) -> bool:
        """Whether the mean is too far from 0 for chance."""
        return abs(self.mean) > SURE * self.standard_error


def groups(rows: Sequence[Row]) -> Iterator[Group]:
    """Yield all groups of enough configurations: by model, schedule and way to recompute."""
    for key in GROUPS.values():
        names = dict.fromkeys(key(row.record.configuration) for row in rows)
        for name in names:
            errors = np.array([row.error for row in rows if key(row.record.configuration) == name])
            if len(errors) >= FEWEST:
                yield Group(name, float(errors.mean()), float(errors.std(ddof=1) / np.sqrt(len(errors))))


def conclusions(rows: Sequence[Row], rounds: Sequence[RoundCauses]) -> str:
    """Return one paragraph, without the goals, which differ by the kind of workers."""
    return " ".join([_causes(rounds), _neighbours(rows), _systematic(rows)])


def _causes(rounds: Sequence[RoundCauses]) -> str:
    found = sorted(zip(shares(rounds).tolist(), CAUSES, strict=True), reverse=True)
    (most, cause), *others = found
    rest = ", ".join(f"{name} {share:.0%}" for share, name in others)
    return f"Of the variance of a round's error {most:.0%} is the {cause} ({rest})."


def _neighbours(rows: Sequence[Row]) -> str:
    """Say how far a run is from the run before it, beside how far a prediction is from its run."""
    steps = [np.log([[step_seconds(pair.predicted), step_seconds(pair.measured)] for pair in row.record.pairs]) for row in rows]
    apart = root_mean_square([own[:, 0] - own[:, 1] for own in steps])
    runs, profiles = (root_mean_square([np.diff(own[:, side]) for own in steps]) for side in (1, 0))
    near = "no further from its run than runs are from each other" if apart <= runs else "further from its run than that"
    return (
        f"A run differs from the run before it by {runs:.1%} (root mean square), a prediction from the prediction before it by "
        f"{profiles:.1%}, a prediction from its own run by {apart:.1%}: {near}."
    )


def root_mean_square(values: Sequence[Floats]) -> float:
    """Return the root mean square of all values together; 0 of none."""
    together = np.concatenate(values)
    return float(np.sqrt(np.mean(together**2))) if len(together) else 0.0


def _systematic(rows: Sequence[Row]) -> str:
    all_groups = list(groups(rows))
    found = [f"{one.name} {one.mean:+z.1%} ± {one.standard_error:.1%}" for one in all_groups if one.systematic]
    if not found:
        return f"None of {len(all_groups)} models, schedules and ways to recompute is wrong by more than {SURE:g} standard errors."
    of = f"of {len(all_groups)} models, schedules and ways to recompute"
    return f"Wrong by more than {SURE:g} standard errors, {of}: {', '.join(found)}."


def goals_on_threads(rows: Sequence[Row]) -> str:
    """Say whether the goals for a CPU, whose noise nobody can predict, are met."""
    error, noise = Summary.of(row.error for row in rows), Summary.of(row.noise for row in rows)
    allowed = max(GOAL_MEDIAN, noise.median)
    median, p95 = ("met" if met else "missed" for met in (error.median <= allowed, error.p95 <= GOAL_P95))
    return (
        f"Goals: median at most {allowed:.1%} (2 % or the noise floor): {median}, {error.median:.1%}; "
        f"p95 at most {GOAL_P95:.0%}: {p95}, {error.p95:.1%}."
    )


def goals_on_gpus(rows: Sequence[Row]) -> str:
    """Say whether the goals for a GPU are met."""
    error = Summary.of(row.error for row in rows)
    mean, most = ("met" if met else "missed" for met in (error.mean <= GOAL_GPU_MEAN, error.most <= GOAL_GPU_MOST))
    return (
        f"Goals: mean at most {GOAL_GPU_MEAN:.0%}: {mean}, {error.mean:.1%}; "
        f"most at most {GOAL_GPU_MOST:.0%}: {most}, {error.most:.1%}."
    )

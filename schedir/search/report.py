"""The object that `search --json` prints: schedir.search/1, with the best order's own report and its program text in it.

No wall times, so that the same seed and iterations print the same bytes. Null means there is none, never 0.
"""

from __future__ import annotations

from typing import Any

from schedir.search.found import Found
from schedir.search.judge import Judged, rounded
from schedir.search.problem.problem import Problem
from schedir.timeline.metrics.report import simulate_report

SCHEMA = "schedir.search/1"


def search_report(found: Found, problem: Problem, *, seed: int) -> dict[str, Any]:
    """Return what was searched, what was found and how far it may be from the best, as plain JSON values."""
    return {
        "schema": SCHEMA,
        "objective": problem.objective.value,
        "value_s": rounded(found.best.value),
        "bound_s": rounded(found.bound),
        "bound_by": found.bound_by.value,
        "gap_fraction": round(found.gap, 6),
        "optimal": found.optimal,
        "registered": _registered(found.registered),
        "placement": found.placement.value,
        "activation_limit": problem.limits.live(problem.num_devices),
        "memory_limit": problem.limits.bytes,
        "seed": seed,
        "iterations": found.steps,
        "stopped": found.stopped.value,
        "notes": [*found.notes, *found.two_ways],
        "found": simulate_report(found.best.timeline, found.best.figures),
        "program": str(found.best.program),
    }


def _registered(judged: Judged | None) -> dict[str, Any] | None:
    return None if judged is None else {"schedule": judged.program.name, "value_s": rounded(judged.value)}

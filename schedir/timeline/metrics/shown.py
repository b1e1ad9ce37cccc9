"""Which bubble a table or picture shows, and its name: one run has several, and none stands anywhere without its name.

bubble of the whole run     1 - busy / (devices x makespan), start-up and drain included
steady bubble               the same of the steady state, which only runs of enough mini-batches have
"""

from __future__ import annotations

from collections.abc import Sequence

from schedir.timeline.metrics.metrics import Metrics
from schedir.timeline.timeline import Timeline

WHOLE, STEADY = "bubble of the whole run", "steady bubble"


def shown_bubble(figures: Metrics) -> float:
    """Return the bubble of the steady state where there is one, else that of the whole run: as `Metrics.step_s` is chosen."""
    return figures.bubble_fraction if figures.steady is None else figures.steady.bubble_fraction


def bubble_name(rows: Sequence[Metrics]) -> str:
    """Return the name of the bubble that is shown of these runs; plain `bubble` where it is not the same of all."""
    steady = {figures.steady is not None for figures in rows}
    return "bubble" if len(steady) > 1 else STEADY if True in steady else WHOLE


def whole_name(timeline: Timeline) -> str:
    """Return the name of the bubble over all that a timeline has: what a trainer has measured is no whole run."""
    if "measured_mini_batches" not in timeline.meta:
        return WHOLE
    return "bubble of the mini-batch" if timeline.graph.program.num_mini_batches == 1 else "bubble of these mini-batches"


def basis_words(rows: Sequence[Metrics]) -> str:
    """Say what the shown times and bubbles of these runs are of."""
    steady = {figures.steady is not None for figures in rows}
    if True not in steady:
        return "of the whole run"
    return "in steady state" if len(steady) == 1 else "in steady state where there is one, else of the whole run"

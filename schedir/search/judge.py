"""What a program is worth: compiled, simulated and measured as `schedir simulate` does, held against the limits."""

from __future__ import annotations

from dataclasses import dataclass

from schedir.compiler import compile_with
from schedir.ir.program import Program
from schedir.search.problem.problem import Objective, Problem
from schedir.timeline.metrics.metrics import Metrics, metrics
from schedir.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A program with what is said of it."""

    program: Program
    timeline: Timeline
    figures: Metrics
    value: float
    """The objective, in seconds."""
    fits: bool
    """No device holds more than it may."""

    @property
    def merit(self) -> tuple[float, float, float, int]:
        """Programs sort by it: the objective, then the other one, then idleness, then activations."""
        live = sum(row.peak_live_activations for row in self.figures.devices)
        span = self.figures.makespan_s + self.figures.device_span_s
        return (rounded(self.value), rounded(span), rounded(self.figures.bubble_fraction), live)

    @property
    def excess(self) -> tuple[int, ...]:
        """Bytes of each device beyond its limit; 0 where it fits, or where no limit is known."""
        return tuple(max(0, (row.peak_bytes or 0) - row.limit_bytes) if row.limit_bytes else 0 for row in self.figures.devices)


def rounded(seconds: float) -> float:
    """Return seconds without what float arithmetic leaves behind."""
    return float(f"{seconds:.12g}")


class Judge:
    """Judges programs of one problem."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._live = problem.limits.live(problem.num_devices)

    def __call__(self, program: Program) -> Judged:
        """Return a program with its figures; raise SchedirError where the costs do not fit it."""
        from simulator import simulate  # noqa: PLC0415 - SimPy is loaded when a search runs

        problem = self._problem
        graph = compile_with(program, problem.lowering)
        timeline = simulate(graph, problem.costs, cluster=problem.cluster, memory_limit=problem.limits.bytes)
        figures = metrics(timeline)
        # the very figures that simulate prints, so that a search never promises what another command denies
        value = figures.makespan_s if problem.objective is Objective.MAKESPAN else figures.device_span_s
        return Judged(program, timeline, figures, value, self._fits(figures))

    def _fits(self, figures: Metrics) -> bool:
        if figures.fits is False:
            return False
        live = self._live
        return live is None or all(row.peak_live_activations <= most for row, most in zip(figures.devices, live, strict=True))

"""What an evaluation hears of its micro-batches: losses and metrics, or what went wrong.

    stage 0 ── micro-batch 3 fails ──▶ noted; a message without content goes on, so that no device waits for one in vain
    stage 1 ── micro-batch 3 ────────▶ not computed
    caller  ◀── the first failure, by micro-batch, is raised when all devices have done their part

So an evaluation that fails ends on devices that are ready for the next step of training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor

from executor.model.data import MicroBatch
from executor.real_number import real_number
from executor.workers.team import Team
from schedir.errors import ArgumentError, RefusedError
from schedir.expect import expect, expect_function

MetricFunction = Callable[[Any, Any], Tensor | float]
"""(output, target) of some samples -> the mean over them."""
TAKEN_NAMES = ("loss", "mini_batches", "mini_batch", "drained")
"""What an evaluation, and the files of a training, have beside the metrics: a second one would hide the first."""
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Result:
    """What the last stage gives for one micro-batch."""

    loss: float
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class EvaluatedPart:
    """A micro-batch of an evaluation."""

    number: int
    part: MicroBatch


@dataclass(frozen=True, slots=True)
class Tally:
    """Takes what stages give; each entry is written by one thread only."""

    metrics: Mapping[str, MetricFunction]
    results: dict[int, Result] = field(default_factory=dict)
    failures: dict[int, tuple[int, Exception]] = field(default_factory=dict)
    """By micro-batch: the first stage that failed, and how."""

    def tried(self, piece: EvaluatedPart, place: tuple[int, int], compute: Callable[[], Made]) -> Made | None:
        """Compute a micro-batch at a place (stage, device); return None, and note what was raised, where that fails."""
        if piece.number in self.failures:
            return None
        stage, device = place
        try:
            return compute()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is raised in the caller's thread
            error.add_note(f"in the evaluation of stage {stage}, micro-batch {piece.number} on device {device}")
            self.failures[piece.number] = stage, error
            return None

    def take(self, piece: EvaluatedPart, output: object, loss: float) -> None:
        """Compute the metrics of a micro-batch."""
        values = {name: real_number(metric(output, piece.part.target), f"metric {name}") for name, metric in self.metrics.items()}
        self.results[piece.number] = Result(loss, values)

    def results_of_all(self, team: Team) -> dict[int, Result]:
        """Return the results of all processes; raise on each of them the first failure of any."""
        if team.num_processes == 1:
            self._raise_own()
            return self.results
        told = {number: (stage, _in_words(error)) for number, (stage, error) in self.failures.items()}
        parts = team.of_all("evaluation", (self.results, told))
        failed = [(number, *failure) for _, failures in parts for number, failure in failures.items()]
        if failed:
            _, stage, text = min(failed)
            # a user's mistake on all of them: no process may go on while another ends
            raise RefusedError(f"the evaluation failed in stage {stage} ({text}): mend data, stages or metrics")
        return {number: result for results, _ in parts for number, result in results.items()}

    def _raise_own(self) -> None:
        if self.failures:
            _, error = self.failures[min(self.failures)]
            raise error


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")


def check_metrics(metrics: object) -> dict[str, MetricFunction]:
    """Return metrics by name, none for None; raise ArgumentError for what an evaluation could not call."""
    if metrics is None:
        return {}
    expect(metrics, Mapping, "metrics", remedy='give a dict of functions, say {"accuracy": function}')
    assert isinstance(metrics, Mapping)
    for name, metric in metrics.items():
        expect(name, str, "name of a metric", remedy="give metrics names that are text")
        expect_function(metric, f"metric {name}", ("output", "target"))
    for name in TAKEN_NAMES:
        if name in metrics:
            what = "as the loss is" if name == "loss" else "as a column of evaluations.csv is"
            raise ArgumentError(f'a metric is called "{name}", {what}: give it another name')
    return dict(metrics)

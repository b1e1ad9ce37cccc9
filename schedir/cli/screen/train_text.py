"""What `schedir train` prints at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from schedir.cli.screen.screen import counted, seconds
from schedir.cli.screen.simulate_text import print_devices
from schedir.timeline.metrics.metrics import metrics
from schedir.timeline.metrics.shown import STEADY, shown_bubble, whole_name
from schedir.timeline.percent import percent
from schedir.timeline.timeline import Timeline
from schedir.workflows.training.measured import measured_text

if TYPE_CHECKING:
    from executor.recipe.training_outcome import TrainingOutcome
    from schedir.workflows.training.train_log import EvaluationRow


def print_outcome(outcome: TrainingOutcome, evaluations: Sequence[EvaluationRow]) -> None:
    """Print what was trained, how fast, and what all evaluations gave, those before a checkpoint too."""
    if outcome.losses:
        _print_run(outcome)
    if outcome.timeline is not None:
        _print_measured(outcome.timeline)
    if outcome.left_out:
        print(f"left out {counted(outcome.left_out, 'mini-batch')} of fewer samples than there are micro-batches")
    if outcome.skipped:
        scale = "" if outcome.loss_scale is None else f"; the loss scale is {outcome.loss_scale:g} now"
        print(
            f"left out {counted(len(outcome.skipped), 'update')} whose gradients were not finite, {_places(outcome.skipped)}{scale}"
        )
    if len(evaluations) > 1:
        _print_evaluations(evaluations, outcome)


def _print_run(outcome: TrainingOutcome) -> None:
    rate = outcome.samples / outcome.seconds if outcome.seconds else 0.0
    first, last = outcome.losses[0], outcome.losses[-1]
    in_all = outcome.first_mini_batch + len(outcome.losses)
    losses = f"loss {first:.4g}" + (f" at first, {last:.4g} at last" if len(outcome.losses) > 1 else "")
    after = f"; with the {outcome.first_mini_batch} before the checkpoint {in_all} in all" if outcome.first_mini_batch else ""
    print(
        f"trained {counted(len(outcome.losses), 'mini-batch')} in {seconds(outcome.seconds)} ({rate:.4g} samples/s): "
        f"{losses}{after}"
    )


def _print_measured(timeline: Timeline) -> None:
    figures, meta = metrics(timeline), timeline.meta
    name = whole_name(timeline) if figures.steady is None else STEADY
    print(
        f"measured: {seconds(figures.step_s)} for {meta['mini_batch_size']} samples, {name} {percent(shown_bubble(figures))} "
        f"({measured_text(timeline)}; workers: {meta['workers']})"
    )
    print_devices(figures)


def _print_evaluations(evaluations: Sequence[EvaluationRow], outcome: TrainingOutcome) -> None:
    """Print the first, the last and the best loss, and each metric at these moments: which of its values is best, nobody says.

    Each was printed when it came, so here is only what they say together.
    """
    best = best_of(evaluations)
    for name in evaluations[-1].figures:
        # another recipe, before a checkpoint, may have had other metrics
        known = [row for row in evaluations if name in row.figures]
        ends = known if len(known) < 2 else (known[0], known[-1])
        course = ", ".join(f"{row.figures[name]:.4g} after {row.mini_batches}" for row in ends)
        print(f"validation {name}: {course}{_at_best(name, best, outcome)}")


def _at_best(name: str, best: EvaluationRow | None, outcome: TrainingOutcome) -> str:
    """Say what a figure is where the loss is best."""
    if best is None:
        return "; none is best, since none is a finite number" if name == "loss" else ""
    if name not in best.figures:
        return ""
    if name != "loss":
        return f"; {best.figures[name]:.4g} where the loss is best"
    return f"; best {best.figures[name]:.4g} after {best.mini_batches}, {_saved_after(best.mini_batches, outcome)}"


def _saved_after(mini_batches: int, outcome: TrainingOutcome) -> str:
    """Say where the checkpoint of the best evaluation is: none may have been saved just there, or it was removed since."""
    from executor.checkpoint.folder import folder_name

    assert outcome.checkpoint is not None
    place = outcome.checkpoint.parent / folder_name(mini_batches)
    return f"saved as {place}" if place.exists() else "where no checkpoint was kept"


def best_of(evaluations: Sequence[EvaluationRow]) -> EvaluationRow | None:
    """Return the evaluation of least loss, the first of equal ones; None if no loss is a finite number."""
    finite = [row for row in evaluations if math.isfinite(row.figures.get("loss", math.nan))]
    return min(finite, key=lambda row: row.figures["loss"], default=None)


def _places(mini_batches: tuple[int, ...]) -> str:
    first = f"of mini-batch {mini_batches[0]}"
    return first if len(mini_batches) == 1 else f"the first {first}, the last {mini_batches[-1]}"

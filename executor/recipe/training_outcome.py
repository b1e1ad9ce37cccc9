"""What a training gave, and who hears of it meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from executor.trainer.step_result import Step
from schedir.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The figures of one evaluation."""

    mini_batch: int
    """How many mini-batches the model was trained on."""
    figures: dict[str, float]


@dataclass(slots=True)
class TrainingOutcome:
    """What a training gave."""

    first_mini_batch: int = 0
    """Trained on before, by the training whose checkpoint it goes on from."""
    losses: list[float] = field(default_factory=list)
    samples: int = 0
    seconds: float = 0.0
    """Of training, evaluations and checkpoints left out."""
    left_out: int = 0
    """Mini-batches of fewer samples than there are micro-batches."""
    skipped: tuple[int, ...] = ()
    """Mini-batches whose update was left out, since gradients were not finite."""
    loss_scale: float | None = None
    """At the end; None without loss scaling."""
    evaluations: list[Evaluation] = field(default_factory=list)
    checkpoint: Path | None = None
    timeline: Timeline | None = None
    """None if there was nothing left to train on."""


class Watcher(Protocol):
    """Hears how far the training is."""

    def trained(self, step: Step, samples: int) -> None:
        """Hear of a step that is done."""
        ...

    def evaluated(self, evaluation: Evaluation) -> None:
        """Hear of an evaluation."""
        ...

    def saved(self, checkpoint: Path) -> None:
        """Hear of a checkpoint."""
        ...

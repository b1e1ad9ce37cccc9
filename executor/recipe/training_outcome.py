"""What a training gave, and who hears of it meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from schedir.ir.program import Program
from schedir.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class TrainedMiniBatch:
    """What is known of a mini-batch that was trained on."""

    mini_batch: int
    """Its number, counted over the whole training from 0."""
    loss: float
    samples: int
    learning_rate: float | None = None
    """Of its update; None if no stage has an optimizer, or if training ended before that update."""
    gradient_norm: float | None = None
    """Over all stages, before clipping; None if training ended before its update."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The figures of one evaluation."""

    mini_batch: int
    """How many mini-batches the model was trained on."""
    figures: dict[str, float]
    drained: bool = True
    """All stages had had all updates; without a flush they are some apart unless the pipeline is empty."""


@dataclass(slots=True)
class TrainingOutcome:
    """What a training gave."""

    program: Program
    """That it trained by: of a continuous schedule the part that repeats itself."""
    workers: str
    """What devices were: threads, processes, GPUs."""
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
    """Of the mini-batches that were measured last, of full size; None if there was nothing left to train on."""


class Watcher(Protocol):
    """Hears how far the training is."""

    def began(self, mini_batch: int, checkpoint: Path | None) -> None:
        """Hear from where it begins: how many mini-batches were trained on before, and the checkpoint that it goes on from."""
        ...

    def trained(self, mini_batch: TrainedMiniBatch) -> None:
        """Hear of a mini-batch whose update is made on all stages, each once and in order; at a fault of the last ones earlier."""
        ...

    def evaluating(self, mini_batch: int) -> None:
        """Hear that an evaluation begins, after so many mini-batches."""
        ...

    def evaluated(self, evaluation: Evaluation) -> None:
        """Hear of an evaluation; one of as many mini-batches as the one before takes its place."""
        ...

    def saving(self, mini_batch: int) -> None:
        """Hear that a checkpoint is about to be written, after so many mini-batches; it fails where no `saved` follows."""
        ...

    def saved(self, mini_batch: int, checkpoint: Path) -> None:
        """Hear of a checkpoint, after so many mini-batches."""
        ...


@dataclass(frozen=True, slots=True)
class Watchers:
    """Several who hear of one training, in turn."""

    each: tuple[Watcher, ...]

    def began(self, mini_batch: int, checkpoint: Path | None) -> None:
        """Tell all from where it begins."""
        for watcher in self.each:
            watcher.began(mini_batch, checkpoint)

    def trained(self, mini_batch: TrainedMiniBatch) -> None:
        """Tell all of a mini-batch."""
        for watcher in self.each:
            watcher.trained(mini_batch)

    def evaluating(self, mini_batch: int) -> None:
        """Tell all that an evaluation begins."""
        for watcher in self.each:
            watcher.evaluating(mini_batch)

    def evaluated(self, evaluation: Evaluation) -> None:
        """Tell all of an evaluation."""
        for watcher in self.each:
            watcher.evaluated(evaluation)

    def saving(self, mini_batch: int) -> None:
        """Tell all that a checkpoint is about to be written."""
        for watcher in self.each:
            watcher.saving(mini_batch)

    def saved(self, mini_batch: int, checkpoint: Path) -> None:
        """Tell all of a checkpoint."""
        for watcher in self.each:
            watcher.saved(mini_batch, checkpoint)

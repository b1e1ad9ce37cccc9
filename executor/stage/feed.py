"""What all stages of a run share: the data of the pass over the graph that is running, its losses, and what was read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from executor.boundary import Message, Value
from executor.model.data import MicroBatch
from executor.model.pipeline import Loss
from executor.stage.loss_guard import LossGuard, Seen
from schedir.ir.arrays import Ints, frozen_array
from schedir.ir.graph import TaskGraph


@dataclass(frozen=True, slots=True)
class Autocast:
    """The autocast state of the thread that starts a run; workers enter it again, since it is local to a thread."""

    enabled: bool
    dtype: torch.dtype
    device_type: str = "cpu"

    @classmethod
    def current(cls, device_type: str = "cpu") -> Autocast:
        """Return the state of this thread for a type of devices."""
        return cls(torch.is_autocast_enabled(device_type), torch.get_autocast_dtype(device_type), device_type)

    @classmethod
    def of(cls, dtype: torch.dtype | None, device_type: str = "cpu") -> Autocast:
        """Return autocast to a type on a type of devices; for None the state of this thread."""
        return cls.current(device_type) if dtype is None else cls(enabled=True, dtype=dtype, device_type=device_type)

    def same_as(self, other: Autocast) -> bool:
        """Tell whether tensors get the same types; where it is off its type means nothing."""
        return (self.enabled, self.enabled and self.dtype) == (other.enabled, other.enabled and other.dtype)

    @property
    def words(self) -> str:
        """Words for the state."""
        return f"under autocast to {str(self.dtype).removeprefix('torch.')}" if self.enabled else "without autocast"

    def __call__(self) -> torch.autocast:
        """Return the context for one forward; leaving it drops the cast copies, which belong to one version."""
        return torch.autocast(self.device_type, dtype=self.dtype, enabled=self.enabled)


@dataclass(frozen=True, slots=True, eq=False)
class RecordedReads:
    """Which weights every compute task really read (of an update: made; of a prediction: started from)."""

    version: Ints
    """int32 (num_compute_tasks)."""
    horizon: Ints
    """int16 (num_compute_tasks): updates that the weights read were predicted over."""
    pair_version: Ints
    """int32, of the backward halves of overlapped tasks, in their order."""
    pair_horizon: Ints


class ReadLog:
    """Takes down what tasks read; each entry is written by one thread only."""

    def __init__(self, graph: TaskGraph) -> None:
        self._reads: list[list[tuple[int, int]]] = [[(-1, 0)] * graph.num_compute_tasks for _ in range(2)]
        self._paired = graph.pairs.task.tolist()

    def note(self, task: int, half: int, read: tuple[int, int]) -> None:
        """Note (version, horizon) of what an action read."""
        self._reads[half][task] = read

    def part(self, tasks: range) -> list[list[tuple[int, int]]]:
        """Return the notes of some tasks, whole ones and backward halves."""
        return [half[tasks.start : tasks.stop] for half in self._reads]

    def take_part(self, tasks: range, part: list[list[tuple[int, int]]]) -> None:
        """Take over the notes of some tasks that another process has taken down."""
        for half, notes in zip(self._reads, part, strict=True):
            half[tasks.start : tasks.stop] = notes

    def reads(self) -> RecordedReads:
        """Return all notes."""
        # without a single pair numpy would make an array that has no second axis
        whole = np.array(self._reads[0]).reshape(-1, 2)
        halves = np.array([self._reads[1][task] for task in self._paired]).reshape(-1, 2)
        return RecordedReads(
            frozen_array(whole[:, 0], np.int32),
            frozen_array(whole[:, 1], np.int16),
            frozen_array(halves[:, 0], np.int32),
            frozen_array(halves[:, 1], np.int16),
        )


class Log(Protocol):
    """Takes down what tasks read."""

    def note(self, task: int, half: int, read: tuple[int, int]) -> None:
        """Note (version, horizon) of what an action read."""
        ...


class Supply(Protocol):
    """What stages ask for: data, the loss and its share, and how to compute. Changed by the caller's thread only."""

    seed: int
    autocast: Autocast
    num_micro_batches: int
    trainable: bool
    """Some stage has parameters to train, so a loss without a gradient is an error."""
    first_mini_batch: int
    """Number of micro-batch 0's mini-batch, counted over the whole training."""

    @property
    def loss(self) -> Loss:
        """(output, target) of a micro-batch -> its mean loss."""
        ...

    @property
    def log(self) -> Log:
        """Where stages note what they read."""
        ...

    def inputs(self, micro_batch: int) -> Message:
        """Return the model's input."""
        ...

    def target(self, micro_batch: int) -> Value:
        """Return the target."""
        ...

    def loss_scale(self, micro_batch: int) -> float:
        """Return what the loss is multiplied with; 0: it counts nothing."""
        ...

    def note_loss(self, micro_batch: int, loss: Tensor) -> None:
        """Note a loss, at the weights that its forward read."""
        ...


@dataclass(slots=True)
class Feed:
    """The data of one pass over a graph, and its losses; changed between passes only."""

    loss: Loss
    seed: int
    autocast: Autocast
    log: ReadLog
    num_micro_batches: int
    trainable: bool = False
    """Some stage has parameters to train, so a loss without a gradient is an error."""
    first_mini_batch: int = 0
    """Number of this pass's first mini-batch, counted over the whole run."""
    micro_batches: list[MicroBatch] = field(default_factory=list)
    losses: list[Tensor | None] = field(default_factory=list)
    """By micro-batch: its loss at the weights that its forward read; None if it counts nothing."""
    guard: LossGuard = field(default_factory=LossGuard)
    """Looks at losses that are not finite."""

    def load(self, micro_batches: Sequence[MicroBatch], first_mini_batch: int) -> None:
        """Take the data of the next pass."""
        self.micro_batches, self.first_mini_batch = list(micro_batches), first_mini_batch
        self.losses = [None] * len(micro_batches)

    def inputs(self, micro_batch: int) -> Message:
        """Return the model's input."""
        return self.micro_batches[micro_batch].inputs

    def target(self, micro_batch: int) -> Value:
        """Return the target."""
        return self.micro_batches[micro_batch].target

    def loss_scale(self, micro_batch: int) -> float:
        """Return what the loss is multiplied with; 0: it counts nothing."""
        return self.micro_batches[micro_batch].loss_scale

    def note_loss(self, micro_batch: int, loss: Tensor) -> None:
        """Note a loss, at the weights that its forward read."""
        mini_batch, place = divmod(micro_batch, self.num_micro_batches)
        part = self.micro_batches[micro_batch]
        self.guard.look(self.first_mini_batch + mini_batch, place, loss=loss, part=part, micro_batch=micro_batch)
        # as a tensor: asking for its number here would let the host wait for a GPU in the middle of the pass
        self.losses[micro_batch] = loss

    def shares(self) -> list[float]:
        """Return what every micro-batch gives to its mini-batch's loss, 0 where another process knows; look at the losses."""
        m, parts = self.num_micro_batches, self.micro_batches
        # only here, behind the pass: asking a GPU for a number waits for it
        losses = [None if loss is None else float(loss) for loss in self.losses]
        for first in range(0, len(losses), m):
            known = [(j, loss) for j, loss in enumerate(losses[first : first + m], first) if loss is not None]
            self.guard.tell(self.first_mini_batch + first // m, [Seen(j - first, loss, parts[j]) for j, loss in known])
        return [0.0 if loss is None else loss * part.loss_scale for loss, part in zip(losses, parts, strict=True)]

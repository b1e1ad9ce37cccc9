"""What a schedule orders a device to do: the kinds of work, single actions and overlapped pairs.

The letter B means the full backward here and in torch, but the input-gradient half alone in the zero-bubble papers.
Inside schedir only the enum `Kind` is used; letters appear in text and in file formats.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Kind(IntEnum):
    """Kinds of work. The first five may stand in a schedule's order; the rest is added by lowering."""

    FORWARD = 0
    """F: one stage forward on one micro-batch."""
    BACKWARD = 1
    """B: the full backward, input and weight gradients together."""
    INPUT_GRAD = 2
    """I: the half of the backward that the previous stage waits for."""
    WEIGHT_GRAD = 3
    """W: the half of the backward that only the update waits for."""
    OVERLAPPED = 4
    """A forward and a backward of two micro-batches run as one, with a cost of its own."""
    RECOMPUTE = 5
    """R: the forward once more, from the stage's saved input."""
    UPDATE = 6
    """U: one optimizer step of one stage."""
    PREDICT = 7
    """P: compute the weights that are expected some updates ahead."""
    TRANSFER = 8
    """An activation or a gradient on its way to another device."""
    REDUCE = 9
    """Sum gradients over the replicas of a stage."""
    GATHER = 10
    """Collect the shards of a stage's weights (reserved for sharded optimizers)."""
    RELEASE = 11
    """Drop gathered shards again (reserved for sharded optimizers)."""

    @property
    def letter(self) -> str:
        """The kind in a cell of a grid or a program text: `F`, `B`, `I`, `W`, …"""
        return _LETTERS[self]

    @property
    def word(self) -> str:
        """The kind in records, JSON and legends: `forward`, `input_grad`, …"""
        return self.name.lower()


_LETTERS = dict(zip(Kind, "FBIWORUPTSGX", strict=True))
KIND_OF_LETTER = {kind.letter: kind for kind in Kind}

ORDERED_KINDS = (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD, Kind.OVERLAPPED)
"""Kinds that every schedule may order; U and R are accepted too, from programs that place them themselves."""

COMPUTE_KINDS = (*ORDERED_KINDS, Kind.RECOMPUTE, Kind.UPDATE, Kind.PREDICT)
"""Kinds that occupy a device's compute lane and count as busy."""


class Direction(IntEnum):
    """Which way through the model a task belongs: a prediction or transfer serves forwards or backwards."""

    FORWARD = 0
    BACKWARD = 1


@dataclass(frozen=True, slots=True, order=True)
class Action:
    """One stage's work on one micro-batch; `str(action)` is its text form, `2F0` = stage 2, F, micro-batch 0."""

    stage: int
    """0-based stage of the model."""
    kind: Kind
    """What is computed."""
    micro_batch: int
    """0-based and global: micro-batch j belongs to mini-batch j // num_micro_batches."""

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.letter}{self.micro_batch}"


@dataclass(frozen=True, slots=True)
class Overlapped:
    """A forward and a backward (or input gradient) that one device runs as one piece of work."""

    forward: Action
    """The action of kind FORWARD."""
    backward: Action
    """The action of kind BACKWARD or INPUT_GRAD."""

    def __str__(self) -> str:
        return f"({self.forward};{self.backward})OVERLAP_F_B"


Entry = Action | Overlapped
"""One entry of a device's order."""

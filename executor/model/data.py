"""Mini-batches: cut into micro-batches along dim 0, each with its share of the mini-batch's loss.

    {"input_ids": [4, 16], "mask": [4, 16], "scale": 0.5}     in 2:     twice  {"input_ids": [2, 16], "mask": [2, 16], "scale": 0.5}

What is no tensor with samples goes to every micro-batch as it is.

    loss of the mini-batch = sum over its micro-batches of  scale_j * loss(output_j, target_j)
    mean:  scale_j = weight_j / sum of the mini-batch's weights,  weight = samples, or loss_weight(target)
    sum:   scale_j = 1

So unequal micro-batches, and targets of which only a part counts, give the loss of the whole mini-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from executor.boundary import Message, Value, input_message
from executor.real_number import real_number
from executor.structure import put_together, take_apart, tensors_in, with_tensors
from schedir.errors import ArgumentError
from schedir.expect import kind_of, shown

LossWeight = Callable[[Any], float | Tensor]
"""Of a micro-batch's target."""


class LossReduction(StrEnum):
    """How the losses of micro-batches make that of a mini-batch."""

    MEAN = "mean"
    SUM = "sum"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One micro-batch, with its share of the loss."""

    inputs: Message
    target: Value
    loss_scale: float
    """What its loss is multiplied with; 0 sends zero gradients."""

    @property
    def samples(self) -> int:
        """Number of samples."""
        return samples(self.target)


def check_mini_batches(data: object, name: str) -> None:
    """Raise ArgumentError for data that no mini-batches can be taken of."""
    # a dataset of torch that is looked into by number has no __iter__, and can still be iterated over
    if not (hasattr(data, "__iter__") or hasattr(data, "__getitem__")):
        raise ArgumentError(f"{name} {shown(data)} cannot be iterated over: give pairs (input, target)")


def cut(
    mini_batch: object,
    num_micro_batches: int,
    weigh: Callable[[list[Value]], list[float]],
    *,
    own: bool = False,
) -> list[MicroBatch]:
    """Cut one mini-batch (input, target); sizes are those of torch.tensor_split, so they differ by 1 at most.

    `weigh` returns the loss scale of every micro-batch, given their targets. `own`: in memory of their own, so that the caller may
    use his for something else while they are still needed. Raises ArgumentError naming what does not fit.
    """
    if not isinstance(mini_batch, tuple | list) or len(mini_batch) != 2:
        raise ArgumentError(f"a mini-batch is {kind_of(mini_batch)}, not a pair: give (input, target)")
    inputs, targets = (_cut_value(value, num_micro_batches, name, own=own) for value, name in zip(mini_batch, _SIDES, strict=True))
    _check_counts(_samples(inputs), _samples(targets))
    scales = weigh(targets)
    return [MicroBatch(input_message(x), y, scale) for x, y, scale in zip(inputs, targets, scales, strict=True)]


_SIDES = ("the model's input", "the target")


def _cut_value(value: object, num_parts: int, name: str, *, own: bool) -> list[Value]:
    # What was made in torch.inference_mode cannot be saved for a backward; a copy made outside of it can.
    given, form = take_apart(side(value), lambda: name)
    tensors = [tensor.detach().clone() if own or tensor.is_inference() else tensor for tensor in given]
    sizes = {tensor.shape[0] for tensor in tensors if tensor.dim()} or {0}
    _check_alike(sizes, name)
    if min(sizes) < num_parts:
        raise ArgumentError(
            f"{name} has {min(sizes)} samples for {num_parts} micro-batches: give larger mini-batches, or fewer micro-batches"
        )
    parts = zip(*(tensor.tensor_split(num_parts) if tensor.dim() else [tensor] * num_parts for tensor in tensors), strict=True)
    return [put_together(form, part) for part in parts]


def side(value: object) -> Value:
    """Return the input, or the target, of a mini-batch: the list that a data loader makes of a tuple is one again."""
    return tuple(value) if isinstance(value, list) else value


def paired(mini_batch: object) -> tuple[Value, Value]:
    """Return input and target of a mini-batch; raise ArgumentError if it is no pair of as many samples on both sides."""
    if not isinstance(mini_batch, tuple | list) or len(mini_batch) != 2:
        raise ArgumentError(f"a mini-batch is {kind_of(mini_batch)}, not a pair: give (input, target)")
    inputs, targets = side(mini_batch[0]), side(mini_batch[1])
    for value, name in zip((inputs, targets), _SIDES, strict=True):
        _check_alike({tensor.shape[0] for tensor in tensors_in(value) if tensor.dim()}, name)
    _check_counts(samples(inputs), samples(targets))
    return inputs, targets


def _check_alike(sizes: set[int], name: str) -> None:
    if len(sizes) > 1:
        raise ArgumentError(f"{name} has tensors of {sorted(sizes)} samples: give the same number of samples (dim 0) in each")


def _check_counts(inputs: int, targets: int) -> None:
    if inputs != targets:
        raise ArgumentError(f"a mini-batch has {inputs} inputs, but {targets} targets: give one per sample")


def _samples(parts: list[Value]) -> int:
    return sum(samples(part) for part in parts)


def samples(value: Value) -> int:
    """Return the number of samples of a value, its tensors' dim 0; raise ArgumentError if it has none."""
    found = next((tensor.shape[0] for tensor in tensors_in(value) if tensor.dim()), None)
    if found is None:
        raise ArgumentError(f"{kind_of(value)} holds no tensor of samples: give input and target with samples along dim 0")
    return int(found)


_DIFFERENT = "two mini-batches are made of different parts, so their samples cannot be joined: give all the same"


def joined(values: Sequence[Value]) -> Value:
    """Return the samples of several values of one form as one value; raise ArgumentError if they do not fit together."""
    if len(values) == 1:
        return values[0]
    taken = [take_apart(value, lambda: "a mini-batch") for value in values]
    form = taken[0][1]
    if any(other != form for _, other in taken):
        raise ArgumentError(_DIFFERENT)
    try:
        return put_together(form, [_row_of(column) for column in zip(*(tensors for tensors, _ in taken), strict=True)])
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:150]
        raise ArgumentError(
            f"two mini-batches cannot be joined ({reason}): give samples of one shape, or keep the data's own mini-batches"
        ) from error


def _row_of(column: Sequence[Tensor]) -> Tensor:
    if column[0].dim():
        return torch.cat(list(column))
    # a tensor without samples holds for all of them, as what is no tensor does: one that differs cannot
    if not all(torch.equal(column[0], other) for other in column[1:]):
        raise ArgumentError(_DIFFERENT)
    return column[0]


def rows(value: Value, chosen: slice | Tensor) -> Value:
    """Return some samples of a value."""
    return with_tensors(value, lambda tensor: tensor[chosen] if tensor.dim() else tensor)


def loss_weights(targets: list[Value], loss_weight: LossWeight | None) -> list[float]:
    """Return what the mean loss of every micro-batch counts: its samples, or `loss_weight(target)`."""
    if loss_weight is None:
        return [float(samples(target)) for target in targets]
    weights = [real_number(loss_weight(target), "loss_weight") for target in targets]
    for number, weight in enumerate(weights):
        if not (isfinite(weight) and weight >= 0):
            raise ArgumentError(f"loss_weight gives {weight} for micro-batch {number}: give a finite number of at least 0")
    return weights


def loss_scales(targets: list[Value], reduction: LossReduction, loss_weight: LossWeight | None) -> list[float]:
    """Return the loss scale of every micro-batch of a mini-batch. All weights 0 give all scales 0."""
    if reduction is LossReduction.SUM:
        return [1.0] * len(targets)
    weights = loss_weights(targets, loss_weight)
    total = sum(weights)
    if not isfinite(total):  # each of them is
        raise ArgumentError(f"loss_weight gives weights up to {max(weights)}, whose sum is not finite: give smaller ones")
    return [weight / total if total else 0.0 for weight in weights]

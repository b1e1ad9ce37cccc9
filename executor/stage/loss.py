"""The loss behind the last stage: where the gradients of a micro-batch begin."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from executor.boundary import Value, describe, misfit, were_changed
from executor.plan.actions import PlannedAction
from executor.stage.feed import Supply
from executor.stage.gradients import Gradients
from executor.stage.record import Record
from executor.structure import put_together, take_apart, tensors_in
from schedir.errors import ArgumentError
from schedir.ir.action import Kind


class StageLoss:
    """Computes the losses of one copy of the last stage; the first one shows whether the loss writes to its target."""

    def __init__(self, number: int, feed: Supply) -> None:
        self._number, self._feed = number, feed
        self._changes_target: bool | None = None
        """The loss writes to its target; None as long as nobody knows."""

    def take(self, action: PlannedAction, record: Record, output: object) -> None:
        """Compute the loss of a micro-batch and let its backward begin there; one that counts nothing sends zero gradients."""
        scale = self._feed.loss_scale(action.micro_batch)
        if scale == 0:
            # not computed at all: on padding alone it may be 0 / 0, and 0 times that is no zero gradient
            tensors = tensors_in(output)
            seeds: Gradients = tuple(torch.zeros_like(tensor) for tensor in tensors)
        else:
            loss = self._of(action, output)
            if record.weights is not None and self._feed.trainable and not loss.requires_grad:
                raise ArgumentError(
                    "the loss does not depend on any trainable parameter, so it would train nothing: leave out detach, no_grad "
                    "and operations without a gradient"
                )
            tensors, seeds = (loss,), (torch.full_like(loss, scale),)
            # a loss is that of the weights which the forward read; a recomputation may read others
            if action.kind is not Kind.RECOMPUTE:
                self._feed.note_loss(action.micro_batch, loss.detach())
        record.take_roots(tensors)
        record.seeds = seeds

    def _of(self, action: PlannedAction, output: object) -> Tensor:
        """Return a loss that is a tensor of one element; raise in the user's words where it is none."""
        target = self._feed.target(action.micro_batch)
        try:
            loss = self._called(output, target)
        except (RuntimeError, IndexError) as error:
            sides = (describe(tensors_in(value)) for value in (output, target))
            refused = misfit(error, "loss does not take output {} and target {}".format(*sides))
            if refused is None:
                raise
            raise refused from error
        except (TypeError, AttributeError) as error:
            # of a tensor every loss knows what to do, so there the mistake is in the loss itself, and its own words are best
            if isinstance(output, Tensor):
                raise
            raise ArgumentError(
                f"stage {self._number}, the last, returns {type(output).__name__}, which the loss does not take "
                f"({' '.join(str(error).split())[:100]}): return a tensor, or give a loss that takes it"
            ) from error
        if not isinstance(loss, Tensor) or loss.numel() != 1 or loss.is_complex():
            found = describe([loss]) if isinstance(loss, Tensor) else type(loss).__name__
            raise ArgumentError(
                f"loss returns {found}: give a function that returns a micro-batch's mean, a tensor of one real number"
            )
        return loss

    def _called(self, output: object, target: Value) -> Any:
        """Call the loss, on copies of the target if it changes them: a recomputation needs the target as it was."""
        if self._changes_target is False:
            return self._feed.loss(output, target)
        originals, form = take_apart(target, lambda: "the target")
        copies = tuple(tensor.clone() for tensor in originals)
        versions = [copy._version for copy in copies]
        loss = self._feed.loss(output, put_together(form, copies))
        if self._changes_target is None:
            self._changes_target = were_changed(copies, versions, originals)
        return loss

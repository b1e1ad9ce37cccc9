"""How one stage splits its backwards: by putting weight gradients off, or by differentiating twice.

    deferred          I differentiates once and keeps operands, W multiplies them          (executor.stage.splitting.deferral)
    differentiate     two calls of torch.autograd.grad on one graph: the reference; W repeats I's way through the stage

The first micro-batch of a stage whose gradients are not all zero is differentiated whole beside it. Only a stage that gives the
same gradients both ways goes on putting off; any other differentiates twice. So what the walk over autograd's graph cannot see (a
hook on a node that changes a weight's gradient, say) costs time, and never a right gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from executor.model.split_ways import Split
from executor.stage.gradients import Gradients
from executor.stage.record import Record, differentiate
from executor.stage.splitting.deferral import put_off
from executor.stage.splitting.late_gradients import Deferred


class Splitter:
    """Splits the backwards of one stage; remembers whether the stage was seen to allow it."""

    def __init__(self, split: Split) -> None:
        self.puts_off = split is Split.DEFERRED
        """Whether the stage's next input gradient puts weight gradients off."""
        self._is_proved = False

    def input_grad(self, record: Record) -> Gradients:
        """Differentiate by the stage's input; the weight gradient will read the same weights as this."""
        if not self.puts_off:
            return differentiate(record, inputs=True, parameters=False, keep_graph=True)
        if self._is_proved:
            found, record.deferred = put_off(record)
            return found
        return self._prove(record)

    @staticmethod
    def weight_grad(record: Record) -> Gradients:
        """Return the gradients of the weights, by leaf."""
        if record.deferred is not None:
            return record.deferred.finish()
        return differentiate(record, inputs=False, parameters=True)

    def _prove(self, record: Record) -> Gradients:
        """Put off on trial, beside a whole backward."""
        assert record.weights is not None, "a graph was recorded"
        leaves, num_inputs = record.weights.leaves, len(record.inputs)
        whole = differentiate(record, inputs=True, parameters=True, keep_graph=True)
        inputs, deferred = put_off(record)
        weights = deferred.finish()
        self.puts_off = all(map(_agree, (*inputs, *weights), whole))
        # gradients of zero agree with anything and prove nothing
        self._is_proved = not leaves or any(gradient is not None and bool(gradient.any()) for gradient in whole[num_inputs:])
        if not self.puts_off:
            inputs, weights = whole[:num_inputs], whole[num_inputs:]
        record.deferred = Deferred(leaves, weights)
        return inputs


def _agree(found: Tensor | None, whole: Tensor | None) -> bool:
    """Return whether two gradients differ by rounding at most."""
    if found is None or whole is None:
        return found is whole
    found, whole = (gradient.to_dense() if gradient.is_sparse else gradient for gradient in (found, whole))
    # half the digits: sums in another order lose a few of them, a wrong gradient has none right
    tolerance = torch.finfo(whole.dtype).eps ** 0.5
    scale = float(whole.abs().max()) if whole.numel() else 0.0
    # an infinite gradient would give a tolerance that everything agrees within
    absolute = tolerance * scale if scale < float("inf") else 0.0
    return found.dtype == whole.dtype and torch.allclose(found, whole, rtol=tolerance, atol=absolute, equal_nan=True)

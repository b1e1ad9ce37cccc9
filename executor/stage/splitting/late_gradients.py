"""Weight gradients that are put off: what I keeps for them, and how W makes them.

I   every operation that waits: its operands, its output's gradient     (found by `executor.stage.splitting.graph_walk`)
W   operands x gradient ──▶ branches, down what lies between the operation and its weights ──▶ gradients by leaf
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from executor.stage.gradients import Gradients, added
from executor.stage.splitting.put_off import Operands

Weights = int
"""A set of leaves, a bit for each."""


class Waiting(NamedTuple):
    """An operation whose weight gradients can wait, or a root that leads to nothing but weights."""

    operands: Operands
    wanted: list[int]
    """The operands whose gradients wait, by their places among the edges of the operation."""
    branches: list[GradientEdge]
    """Where their gradients go on, in the same order."""
    weights: Weights
    """All weights below."""
    output: GradientEdge | None
    """Where the gradient of its output is found; None for a root, whose gradient is `seed`."""
    seed: Tensor | None = None

    def entering(self, output_gradient: Tensor) -> Iterator[tuple[GradientEdge, Tensor]]:
        """Return the gradients that enter its branches."""
        return zip(self.branches, self.operands.gradients(self.wanted, output_gradient), strict=True)


class Deferred:
    """The weight gradients of one micro-batch: some made already, the others put off."""

    def __init__(self, leaves: Sequence[Tensor], made: Gradients, waiting: Iterable[tuple[Waiting, Tensor]] = ()) -> None:
        """Take the gradients made so far by leaf, and the operations that wait, each with its output's gradient."""
        self._leaves, self._made = leaves, list(made)
        self._waiting = list(waiting)

    @property
    def tensors(self) -> list[Tensor]:
        """All that is kept: operands and output gradients of what waits, and the gradients that are made already."""
        operands = [tensor for each, _ in self._waiting for tensor in each.operands.tensors]
        made = [gradient for gradient in self._made if gradient is not None]
        return [*operands, *(gradient for _, gradient in self._waiting), *made]

    def finish(self) -> Gradients:
        """Make what was put off; return the gradients by leaf, None where nothing depends on one. Nothing waits afterwards."""
        waiting, self._waiting = self._waiting, []
        entering: list[tuple[GradientEdge, Tensor]] = []
        entered = 0
        with torch.no_grad():
            for each, output_gradient in waiting:
                if entered & each.weights:  # a weight's second gradient is added to its first, not kept beside it
                    self._enter(entering)
                    entering, entered = [], 0
                entering += each.entering(output_gradient)
                entered |= each.weights
            self._enter(entering)
        made, self._made = self._made, []
        return tuple(made)

    def _enter(self, entering: Sequence[tuple[GradientEdge, Tensor]]) -> None:
        """Let gradients run from these edges down to the leaves."""
        if not entering:
            return
        edges, gradients = zip(*entering, strict=True)
        # kept: where 0.5 * w is used twice, the second gradient goes through the node of the product once more
        found = torch.autograd.grad(edges, self._leaves, gradients, retain_graph=True, allow_unused=True)
        for number, gradient in enumerate(found):
            before = self._made[number]
            if gradient is not None:
                self._made[number] = gradient if before is None else added(before, gradient)

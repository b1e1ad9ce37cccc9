"""What a stage keeps of a micro-batch between its forward and its backward, and how it is differentiated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from executor.boundary import Message
from executor.stage.gradients import Gradients
from executor.stage.recompute import Snapshot
from executor.stage.splitting.late_gradients import Deferred
from executor.stage.swap import Tape
from executor.stage.weights import WeightSet


@dataclass(slots=True)
class Record:
    """What a stage keeps of a micro-batch from its forward to the end of its backward."""

    message: Message
    """The stage's input."""
    arrived: tuple[Message, ...] = ()
    """Of a stage at the end of skip connections: the messages that the input is made of."""
    inputs: tuple[Tensor, ...] = ()
    """Leaves of the recorded graph; empty as long as there is none."""
    weights: WeightSet | None = None
    """Set that the recorded graph was made with; it keeps these leaves."""
    roots: tuple[GradientEdge | None, ...] = ()
    """By output tensor (or the loss): where its gradient enters the graph. The outputs themselves are not kept."""
    seeds: Gradients | None = None
    """On the last stage: the gradients that enter."""
    tape: Tape | None = None
    """Set if backward reads other weights."""
    buffers: Snapshot = field(default_factory=dict)
    """Buffers before the forward, if it will be recomputed."""
    deferred: Deferred | None = None
    """Between the halves of a split backward: what is left to do for the weights, if that is not in the graph."""

    def take_roots(self, tensors: Iterable[Tensor]) -> None:
        """Keep where the gradients of these tensors will enter, if there is a graph."""
        if self.weights is not None:
            self.roots = tuple(get_gradient_edge(tensor) if tensor.requires_grad else None for tensor in tensors)

    def drop_graph(self) -> None:
        """Let go of the graph and of the gradients that entered it."""
        self.roots, self.seeds, self.inputs = (), None, ()


def entries_of(record: Record) -> list[tuple[GradientEdge, Tensor]]:
    """Return the roots of a record's graph that a gradient enters, with that gradient."""
    pairs = zip(record.roots, record.seeds or (), strict=bool(record.seeds))
    return [(root, seed) for root, seed in pairs if root is not None and seed is not None]


def differentiate(record: Record, *, inputs: bool, parameters: bool, keep_graph: bool = False) -> Gradients:
    """Return gradients by the input's tensors, then by the parameters, as far as wanted; None where nothing depends on one."""
    assert record.weights is not None, "a graph was recorded"
    leaves = [*record.inputs] * inputs + [*record.weights.leaves] * parameters
    # autograd refuses to be asked for the others: integers, frozen weights, inputs that nobody trains through
    wanted = [number for number, leaf in enumerate(leaves) if leaf.requires_grad]
    entries = entries_of(record)
    # by leaf, also for those that nothing depends on
    found: list[Tensor | None] = [None] * len(leaves)
    if entries and wanted:
        roots, seeds = zip(*entries, strict=True)
        gradients = torch.autograd.grad(
            roots, [leaves[number] for number in wanted], seeds, retain_graph=keep_graph, allow_unused=True
        )
        for number, gradient in zip(wanted, gradients, strict=True):
            found[number] = gradient
    return tuple(found)

"""Find, in the autograd graph of one micro-batch, which operations' weight gradients can wait.

    inner     leads to the stage's input, or to an operation that waits: I differentiates it
    branch    an edge from an inner node to one that leads to weights only

A branch of an operation with a rule (`executor.put_off`) waits; any other makes its weights due at once, and so every branch that
leads to one of them. The walk looks at nodes, not at modules: a weight used twice, a frozen layer, a tensor that goes to two
places, an operation with several outputs or in place are what autograd makes of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

from executor.put_off import AsItIs, Operands, may_be_put_off, operands_of
from executor.record import Record

Weights = int
"""A set of leaves, a bit for each."""

_LEAF = "torch::autograd::AccumulateGrad"


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """An edge from an inner node to weights and nothing else."""

    operand: int
    """Its place among the edges of the node above it."""
    edge: GradientEdge
    weights: Weights


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """An operation whose weight gradients can wait, or a root that leads to nothing but weights."""

    operands: Operands
    branches: tuple[Branch, ...]
    output: GradientEdge | None
    """Where the gradient of its output is found; None for a root, whose gradient is `seed`."""
    seed: Tensor | None = None

    @property
    def weights(self) -> Weights:
        """All weights that it leads to."""
        return _union(branch.weights for branch in self.branches)

    def entering(self, output_gradient: Tensor) -> Iterator[tuple[GradientEdge, Tensor]]:
        """Return the gradients that enter its branches."""
        gradients = self.operands.gradients([branch.operand for branch in self.branches], output_gradient)
        return zip((branch.edge for branch in self.branches), gradients, strict=True)


def waiting_in(record: Record, entries: Sequence[tuple[GradientEdge, Tensor]]) -> tuple[list[Waiting], list[int]]:
    """Return what can wait, and the numbers of the weights that cannot.

    `entries` are the roots of the graph with the gradients that enter there.
    """
    survey = _Survey(record, [root.node for root, _ in entries])
    waiting = list(survey.roots(entries))
    at_once = _hooked(record)
    for node in survey.branching:
        branches = survey.branches(node)
        operands = operands_of(node, [branch.operand for branch in branches]) if may_be_put_off(node) else None
        if operands is None:
            at_once |= _union(branch.weights for branch in branches)
        else:
            waiting.append(Waiting(operands, branches, GradientEdge(node, 0)))
    while (found := at_once | _union(each.weights for each in waiting if each.weights & at_once)) != at_once:
        at_once = found
    kept = [each for each in waiting if not each.weights & at_once]
    return kept, [number for number in range(at_once.bit_length()) if at_once >> number & 1]


@dataclass(slots=True)
class _Survey:
    """What lies below every node of a graph."""

    record: Record
    tops: Sequence[Node]
    inner: set[Node] = field(default_factory=set)
    branching: list[Node] = field(default_factory=list)
    """The inner nodes that have a branch."""
    below: dict[Node, Weights] = field(default_factory=dict)
    """By node that is not inner."""

    def __post_init__(self) -> None:
        assert self.record.weights is not None, "a graph was recorded"
        weights = {id(leaf): 1 << number for number, leaf in enumerate(self.record.weights.leaves)}
        inputs = {id(tensor) for tensor in self.record.inputs}
        for node in _upwards(self.tops):
            if node.name() != _LEAF:
                self._enter(node)
            elif id(node.variable) in inputs:  # type: ignore[attr-defined]  # of this kind of node only
                self.inner.add(node)
            else:
                self.below[node] = weights.get(id(node.variable), 0)  # type: ignore[attr-defined]  # as above

    def _enter(self, node: Node) -> None:
        children = [child for child, _ in node.next_functions if child is not None]
        weights = _union(self.below[child] for child in children if child not in self.inner)
        is_inner = any(child in self.inner for child in children) or (weights != 0 and may_be_put_off(node))
        if not is_inner:
            self.below[node] = weights
            return
        self.inner.add(node)
        if weights:
            self.branching.append(node)

    def branches(self, node: Node) -> tuple[Branch, ...]:
        """Return the branches of an inner node."""
        return tuple(
            Branch(operand, GradientEdge(child, output), weights)
            for operand, (child, output) in enumerate(node.next_functions)
            if child is not None and (weights := self.below.get(child, 0))
        )

    def roots(self, entries: Iterable[tuple[GradientEdge, Tensor]]) -> Iterator[Waiting]:
        """Yield the roots that lead to nothing but weights."""
        for root, seed in entries:
            weights = self.below.get(root.node, 0)
            if weights:
                yield Waiting(AsItIs(), (Branch(0, root, weights),), output=None, seed=seed)


def _upwards(tops: Iterable[Node]) -> Iterator[Node]:
    """Yield every node once, behind all that it leads to."""
    seen: set[Node] = set()
    stack = [(top, False) for top in tops]
    while stack:
        node, entered = stack.pop()
        if entered:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((child, False) for child, _ in node.next_functions if child is not None and child not in seen)


def _hooked(record: Record) -> Weights:
    """Return the weights that a forward has hung hooks on: they are called once, with the whole gradient."""
    assert record.weights is not None, "a graph was recorded"
    return _union(1 << number for number, leaf in enumerate(record.weights.leaves) if leaf._backward_hooks)


def _union(sets: Iterable[Weights]) -> Weights:
    together = 0
    for one in sets:
        together |= one
    return together

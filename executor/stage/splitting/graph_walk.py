"""Find, in the autograd graph of one micro-batch, which operations' weight gradients can wait.

    inner     leads to the stage's input, or to an operation that waits: I differentiates it
    branch    an edge from an inner node to one that leads to weights only

A branch of an operation with a rule (`executor.stage.splitting.put_off`) waits; any other makes its weights due at once, and so
every branch that leads to one of them. The walk looks at nodes, not at modules: a weight used twice, a frozen layer, a tensor that
goes to two places, an operation with several outputs or in place are what autograd makes of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

from executor.stage.record import Record
from executor.stage.splitting.late_gradients import Waiting, Weights
from executor.stage.splitting.put_off import AsItIs, may_be_put_off, operands_of

_INNER = -1
"""Stands for the weights below an inner node, which nobody asks for."""
_LEAF = "torch::autograd::AccumulateGrad"

Edges = tuple[tuple[Node | None, int], ...]


def waiting_in(record: Record, entries: Sequence[tuple[GradientEdge, Tensor]]) -> tuple[list[Waiting], list[int]]:
    """Return what can wait, and the numbers of the weights that cannot.

    `entries` are the roots of the graph with the gradients that enter there.
    """
    survey = _Survey.of(record, [root.node for root, _ in entries])
    waiting = list(survey.roots(entries))
    at_once = _hooked(record)
    for node, edges in survey.branching:
        candidate, weights = survey.candidate(node, edges)
        if candidate is None:
            at_once |= weights
        else:
            waiting.append(candidate)
    # a weight that is due makes every branch due that leads to it, and so all other weights of that branch, until nothing changes
    while at_once:
        late = [each for each in waiting if each.weights & at_once]
        if not late:
            break
        waiting = [each for each in waiting if not each.weights & at_once]
        for each in late:
            at_once |= each.weights
    return waiting, [number for number in range(at_once.bit_length()) if at_once >> number & 1]


@dataclass(frozen=True, slots=True)
class _Survey:
    """What lies below every node of a graph."""

    below: dict[Node, Weights]
    branching: list[tuple[Node, Edges]]
    """The inner nodes that have a branch, and their edges."""

    @classmethod
    def of(cls, record: Record, tops: Iterable[Node]) -> _Survey:
        """Look at every node once."""
        assert record.weights is not None, "a graph was recorded"
        known = {id(leaf): 1 << number for number, leaf in enumerate(record.weights.leaves)}
        known |= {id(tensor): _INNER for tensor in record.inputs}
        survey = cls({}, [])
        for node, edges in _upwards(tops):
            if edges:
                survey.enter(node, edges)
            else:  # a leaf of the graph: of these only tensors that were given have a name here
                tensor = getattr(node, "variable", None) if node.name() == _LEAF else None
                survey.below[node] = known.get(id(tensor), 0)
        return survey

    def enter(self, node: Node, edges: Edges) -> None:
        """Note what lies below a node, which is known of its children."""
        below = self.below
        inner, weights = False, 0
        for child, _ in edges:
            if child is None:
                continue
            found = below[child]
            if found == _INNER:
                inner = True
            else:
                weights |= found
        # whether it waits or not, the gradient of its output is asked for: to the nodes above, it is inner
        if weights and (inner or may_be_put_off(node)):
            self.branching.append((node, edges))
            inner = True
        below[node] = _INNER if inner else weights

    def candidate(self, node: Node, edges: Edges) -> tuple[Waiting | None, Weights]:
        """Return what would wait for an inner node, None if it cannot, and the weights on its branches."""
        wanted, branches, weights = [], [], 0
        for operand, (child, output) in enumerate(edges):
            found = self.below[child] if child is not None else 0
            # 0: nothing to train below; _INNER: differentiated by I
            if child is not None and found > 0:
                wanted.append(operand)
                branches.append(GradientEdge(child, output))
                weights |= found
        operands = operands_of(node, wanted) if may_be_put_off(node) else None
        if operands is None:
            return None, weights
        return Waiting(operands, wanted, branches, weights, GradientEdge(node, 0)), weights

    def roots(self, entries: Iterable[tuple[GradientEdge, Tensor]]) -> Iterator[Waiting]:
        """Yield the roots that lead to nothing but weights."""
        for root, seed in entries:
            weights = self.below[root.node]
            if weights > 0:
                yield Waiting(AsItIs(), [0], [root], weights, output=None, seed=seed)


def _upwards(tops: Iterable[Node]) -> Iterator[tuple[Node, Edges]]:
    """Yield every node once with its edges, behind all that it leads to."""
    entered: dict[Node, Edges] = {}
    left: set[Node] = set()
    # depth first, children before parents, without recursion: graphs of deep stages go deeper than Python does
    stack = list(tops)
    while stack:
        node = stack[-1]
        edges = entered.get(node)
        if edges is None:
            edges = entered[node] = node.next_functions
            stack += [child for child, _ in edges if child is not None and child not in entered]
            continue
        stack.pop()
        if node not in left:
            left.add(node)
            yield node, edges


def _hooked(record: Record) -> Weights:
    """Return the weights that a forward has hung hooks on: they are called once, with the whole gradient."""
    assert record.weights is not None, "a graph was recorded"
    weights = 0
    for number, leaf in enumerate(record.weights.leaves):
        if leaf._backward_hooks:
            weights |= 1 << number
    return weights

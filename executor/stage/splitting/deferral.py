"""Split backward on one recorded graph: I differentiates once and drops the graph, W multiplies what I has kept.

    loss ◀─ Linear b ◀─ LayerNorm ◀─ Linear a ◀─ input       ◀─ edges of autograd's graph; weights hang on every node
      g_b ───▶ kept        dw made     g_a ───▶ kept            I: the input's gradient; on the way the outputs' gradients are
      x_b ───▶ kept                    x_a ───▶ kept               kept where a weight's can wait, and cheap ones are made
                                                                W: dw_b = x_b^T g_b,  dw_a = x_a^T g_a

Autograd makes an operand's gradient only where somebody asks for something below it. So nothing of the forward is exchanged: I asks
for the gradients at the outputs of the operations in `put_off`, and not for the weights below them. What lies between such an
operation and its weights (a transposition, a cast, 0.5 * w) is differentiated in W from its own nodes, which I leaves alone.
Weights that some other operation reads too are asked for in I, all of them: no weight is made half here, half there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from executor.stage.gradients import Gradients
from executor.stage.record import Record, entries_of
from executor.stage.splitting.graph_walk import waiting_in
from executor.stage.splitting.late_gradients import Deferred


def put_off(record: Record) -> tuple[Gradients, Deferred]:
    """Differentiate a record by its input; return the input's gradients and what is left for the weights.

    The record's graph is dropped: what is left keeps its own operands and the few nodes between them and the weights.
    """
    assert record.weights is not None, "a graph was recorded"
    leaves = record.weights.leaves
    entries = entries_of(record)
    waiting, at_once = waiting_in(record, entries)
    outputs = [each.output for each in waiting if each.output is not None]
    places = [place for place, tensor in enumerate(record.inputs) if tensor.requires_grad]
    tensors = [*(record.inputs[place] for place in places), *(leaves[number] for number in at_once)]
    # what is found comes in the order in which it is asked for: outputs of what waits, then inputs, then weights that are due
    asked = [*outputs, *map(get_gradient_edge, tensors)]
    found = iter(_gradients(entries, asked))
    kept = [(each, gradient) for each in waiting if (gradient := each.seed if each.output is None else next(found)) is not None]
    inputs: list[Tensor | None] = [None] * len(record.inputs)
    for place in places:
        inputs[place] = next(found)
    made: list[Tensor | None] = [None] * len(leaves)
    for number in at_once:
        made[number] = next(found)
    record.drop_graph()
    return tuple(inputs), Deferred(leaves, tuple(made), kept)


def _gradients(entries: Sequence[tuple[GradientEdge, Tensor]], asked: Sequence[GradientEdge]) -> Gradients:
    if not entries or not asked:
        return (None,) * len(asked)
    roots, seeds = zip(*entries, strict=True)
    # this frees what the nodes on the way have saved: `waiting_in` must have taken the operands that wait before
    return torch.autograd.grad(roots, asked, seeds, allow_unused=True)

"""How many bytes a stage or layer keeps between the two halves of a split backward: what its weight gradients still need.

    F ──▶ activations ──▶ I ──▶ inputs and output gradients of layers ──▶ W ──▶ nothing

The part is run and its input gradient made as in training; then what is kept is counted, each storage once, without parameters
and buffers. The input counts by the rule for activations: a stage's always, so that a stage that recomputes still finds it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from executor.profiling.footprint import storage_bytes
from executor.profiling.parts import Part
from executor.stage.record import Record
from executor.stage.splitting.deferral import put_off
from executor.stage.weights import WeightSet


def kept_for_weights(parts: Sequence[Part]) -> tuple[int, ...]:
    """Return the bytes that each part keeps from I to W; the layers of a stage add up to no less than the stage."""
    return tuple(_kept(part, starts_stage=number == 0 or parts[number - 1].ends_stage) for number, part in enumerate(parts))


def _kept(part: Part, *, starts_stage: bool) -> int:
    weights = WeightSet(part.trained, version=0)
    weights.leaves = tuple(part.trained)  # the part computes with its own parameters
    record = Record(part.message, weights=weights)
    record.inputs = inputs = part.message.with_gradients()
    with torch.enable_grad():
        outputs = part.roots(part.output(inputs))
    record.take_roots(outputs)
    record.seeds = tuple(torch.ones_like(output) for output in outputs)
    _, deferred = put_off(record)
    own = {tensor.untyped_storage().data_ptr() for tensor in (*part.module.parameters(), *part.module.buffers())}
    kept = [*deferred.tensors, *(inputs if starts_stage else ())]
    return storage_bytes(tensor for tensor in kept if tensor.untyped_storage().data_ptr() not in own)

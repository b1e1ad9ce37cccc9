"""Gradients in memory that is only lent: what arrives lies where the next message will be received."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from executor.stage.record import Record


def in_own_memory(gradients: Sequence[Tensor | None], record: Record) -> Sequence[Tensor | None]:
    """Return weight gradients in memory of their own, copied where they lie in what arrived for a micro-batch.

    They do where autograd hands on what it was given: the gradient of x + b by b is that of the sum.
    """
    # by storage: what autograd hands on may be a view of what arrived
    arrived = (*(record.seeds or ()), *record.message.tensors)
    lent = {_memory(part) for part in arrived if part is not None}
    return [part.clone() if part is not None and _memory(part) in lent else part for part in gradients]


def _memory(tensor: Tensor) -> int:
    """Return the address of a tensor's memory; of a sparse one that of its values."""
    dense = tensor._values() if tensor.is_sparse else tensor
    return dense.untyped_storage().data_ptr() if dense.layout is torch.strided else 0

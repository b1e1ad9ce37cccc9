"""Sparse tensors as what the hardware knows of them: indices and values, each a plain piece of memory with strides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def dense_parts(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return the memory of all tensors: a dense one itself, of a sparse one (COO) its indices and its values."""
    return [part for tensor in tensors for part in ((tensor._indices(), tensor._values()) if tensor.is_sparse else (tensor,))]


def put_together(tensors: Sequence[Tensor], parts: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors like those given, on other memory, which is in the order of `dense_parts`."""
    rest = iter(parts)
    return [_sparse_like(tensor, next(rest), next(rest)) if tensor.is_sparse else next(rest) for tensor in tensors]


def _sparse_like(tensor: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    # with its size given and unchecked: the host would wait for the GPU to look at the indices otherwise
    return torch.sparse_coo_tensor(indices, values, tensor.shape, is_coalesced=tensor.is_coalesced(), check_invariants=False)

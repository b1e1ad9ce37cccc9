"""Checksums of tensors: whether two processes have the same data and weights."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from torch import Tensor

from executor.model.data import MicroBatch
from executor.structure import tensors_in


def checksum(micro_batches: Sequence[MicroBatch]) -> int:
    """Return a checksum of all inputs and targets."""
    found = 0
    for part in micro_batches:
        for tensor in (*part.inputs.tensors, *tensors_in(part.target)):
            found = tensor_checksum(tensor, found)
    return found


def tensor_checksum(tensor: Tensor, before: int = 0) -> int:
    """Return a checksum of a tensor's values and type."""
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    # as bytes, since numpy has no bfloat16; in one row, since a tensor without dimensions has no view of another size
    content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return zlib.crc32(content.numpy().data, zlib.crc32(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), before))

"""Values as bytes: any value with tensors in it becomes a short header and the tensors' own memory.

    (Message((x, mask), …), key) ──▶ header: the value with a description in each tensor's place  +  bytes of x, bytes of mask

So shapes, types, numbers of tensors and None may change from one message to the next. Memory formats are kept (a tensor in
channels_last arrives so), since kernels add up in another order on another format. Headers are pickled: they come from processes
that run the same program.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import torch
from torch import Tensor, nn

from executor.boundary import Message
from executor.structure import TENSOR


@dataclass(frozen=True, slots=True)
class Packed:
    """A value, ready to be sent."""

    header: bytes
    parts: list[Tensor]
    """One-dimensional uint8 views of all memory, in the order in which the header names it; none is empty."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A value whose tensors wait for their content."""

    value: Any
    parts: list[Tensor]
    """One-dimensional uint8 views of the tensors' memory, to be filled in this order."""


def what_cannot_travel(message: Message) -> str:
    """Say what of a message cannot go to another process as it is; empty if all of it can."""
    for tensor in message.tensors:
        if type(tensor) not in {Tensor, nn.Parameter}:
            return f"a tensor of class {type(tensor).__qualname__}: make it a plain tensor"
        if tensor.is_nested or tensor.layout not in {torch.strided, torch.sparse_coo} or tensor.is_quantized or tensor.is_meta:
            kind = "meta" if tensor.is_meta else "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
            return f"a {kind} tensor: make it a dense one"
    if message.form is not TENSOR:
        try:
            pickle.dumps(message.form)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            return (
                f"a class that other processes do not find ({' '.join(str(error).split())[:100]}): define it at the top of a module"
            )
    return ""


def pack(value: object) -> Packed:
    """Take a value apart; its tensors are not copied where their memory is dense."""
    file = BytesIO()
    pickler = _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.dump(value)
    return Packed(file.getvalue(), pickler.parts)


def unpack(header: bytes) -> Unpacked:
    """Make the value that a header describes, with tensors that are not filled yet."""
    unpickler = _Unpickler(BytesIO(header))
    value = unpickler.load()
    return Unpacked(value, unpickler.parts)


class _Pickler(pickle.Pickler):
    """Puts descriptions in the places of tensors."""

    def __init__(self, file: BytesIO, protocol: int) -> None:
        super().__init__(file, protocol)
        self.parts: list[Tensor] = []

    def persistent_id(self, value: object) -> tuple[Any, ...] | None:
        """Return what describes a tensor, None for anything else."""
        if not isinstance(value, Tensor):
            return None
        value = value.detach()
        if value.layout is torch.sparse_coo:
            return tuple(value.shape), self._describe(value._indices()), self._describe(value._values()), value.is_coalesced()
        return (self._describe(value),)

    def _describe(self, tensor: Tensor) -> tuple[Any, ...]:
        tensor = tensor.resolve_conj().resolve_neg()
        tensor = tensor if _is_dense(tensor) else tensor.contiguous()
        if tensor.numel():
            self.parts.append(_bytes_of(tensor))
        return tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.device.type


class _Unpickler(pickle.Unpickler):
    """Makes tensors from descriptions."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file)
        self.parts: list[Tensor] = []

    def persistent_load(self, description: Sequence[Any]) -> Tensor:
        """Return the tensor of a description; a sparse one shares the memory of its parts."""
        if len(description) == 1:
            return self._make(*description[0])
        shape, indices, values, coalesced = description
        made = self._make(*indices), self._make(*values)
        return torch.sparse_coo_tensor(*made, shape, is_coalesced=coalesced, check_invariants=False)

    def _make(self, *description: Any) -> Tensor:
        dtype, shape, stride, device = description
        tensor = torch.empty_strided(shape, stride, dtype=dtype, device=device)
        if tensor.numel():
            self.parts.append(_bytes_of(tensor))
        return tensor


def _is_dense(tensor: Tensor) -> bool:
    """Return True if the elements fill their memory without gap or overlap, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)

"""Values as bytes: any value with tensors in it becomes a short header and the tensors' own memory.

    (Message((x, mask), …), key) ──▶ header: the value with a description in each tensor's place  +  bytes of x, bytes of mask

So shapes, types, numbers of tensors and None may change from one message to the next. Memory formats are kept (a tensor in
channels_last arrives so), since kernels add up in another order on another format. Headers are pickled: they come from processes
that run the same program.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from math import prod
from typing import Any

import torch
from torch import Tensor, UntypedStorage, nn

from executor.boundary import Message, special_kind
from executor.structure import TENSOR

_DTYPE_OF = {str(found).removeprefix("torch."): found for found in vars(torch).values() if isinstance(found, torch.dtype)}
_NAME_OF = {dtype: name for name, dtype in _DTYPE_OF.items()}
"""A name is pickled ten times faster."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A value, ready to be sent."""

    header: bytes
    tensors: list[Tensor]
    """Dense ones, in the order in which the header names them; none is empty."""

    @property
    def parts(self) -> list[Tensor]:
        """One-dimensional uint8 views of all memory."""
        return list(map(bytes_of, self.tensors))


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A value whose tensors wait for their content."""

    value: Any
    tensors: list[Tensor]
    """In the order in which the header names them; none is empty."""

    @property
    def parts(self) -> list[Tensor]:
        """One-dimensional uint8 views of their memory, to be filled in this order."""
        return list(map(bytes_of, self.tensors))


@dataclass(slots=True)
class Memory:
    """Where the tensors of a message lie, one behind the other."""

    storage: UntypedStorage
    at: int
    """Byte at which the next one begins."""
    aligned: int
    """Bytes of which every tensor's place is a multiple."""

    def take(self, count: int) -> int:
        """Return where the next tensor begins."""
        here = self.at
        self.at += -(-count // self.aligned) * self.aligned
        return here


def what_cannot_travel(message: Message) -> str:
    """Say what of a message cannot go to another process as it is; empty if all of it can."""
    for tensor in message.tensors:
        if type(tensor) not in {Tensor, nn.Parameter}:
            return f"a tensor of class {type(tensor).__qualname__}: make it a plain tensor"
        kind = special_kind(tensor)
        if kind not in {"", "sparse_coo"}:
            return f"a {kind} tensor: make it a dense one"
    if message.form is not TENSOR:
        try:
            pickle.dumps(message.form)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            return (
                f"a class that other processes do not find ({' '.join(str(error).split())[:100]}): define it at the top of a module"
            )
    return ""


def tensors_of(value: object) -> Iterator[Tensor]:
    """Yield the tensors of what may be sent: of a message, of gradients, or nested in tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Message):
        yield from value.tensors
    elif isinstance(value, tuple | list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors_of(part)


def pack(value: object) -> Packed:
    """Take a value apart; its tensors are not copied where their memory is dense."""
    file = BytesIO()
    pickler = _Pickler(file, pickle.HIGHEST_PROTOCOL)
    pickler.dump(value)
    return Packed(file.getvalue(), pickler.tensors)


def unpack(header: bytes, memory: Memory | None = None) -> Unpacked:
    """Make the value that a header describes, with tensors that are not filled yet, or that lie in the memory given."""
    unpickler = _Unpickler(BytesIO(header), memory)
    value = unpickler.load()
    return Unpacked(value, unpickler.tensors)


class _Pickler(pickle.Pickler):
    """Puts descriptions in the places of tensors. Python is asked about those and classes only, not about numbers and tuples."""

    def __init__(self, file: BytesIO, protocol: int) -> None:
        super().__init__(file, protocol)
        self.tensors: list[Tensor] = []

    def reducer_override(self, value: object) -> Any:
        """Return how a tensor or a message is made again; leave anything else to pickle."""
        if isinstance(value, Tensor):
            # without its graph, which cannot leave this process; what needs a gradient stands in the message
            return _made, self._describe_any(value.detach())
        if type(value) is Message:
            # the form of a single tensor is left out: as the default it stays the one object that it is compared with by `is`
            parts = value.tensors, value.needs_grad
            return Message, parts if value.form is TENSOR else (*parts, value.form)
        return NotImplemented

    def _describe_any(self, tensor: Tensor) -> tuple[Any, ...]:
        if tensor.layout is torch.sparse_coo:
            parts = self._describe(tensor._indices()), self._describe(tensor._values())
            return tuple(tensor.shape), *parts, tensor.is_coalesced()
        return self._describe(tensor)

    def _describe(self, tensor: Tensor) -> tuple[Any, ...]:
        # lazily conjugated or negated: the memory holds other numbers than the tensor
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        tensor = tensor if tensor.is_contiguous() or _is_dense(tensor) else tensor.contiguous()
        if tensor.numel():
            self.tensors.append(tensor)
        return _NAME_OF[tensor.dtype], tuple(tensor.shape), tensor.stride(), tensor.device.type


def _made(*description: Any) -> Tensor:
    """Stand in a header for what makes a tensor, which only the unpickler can."""
    raise NotImplementedError(f"a tensor is made by its unpickler: {description}")


class _Unpickler(pickle.Unpickler):
    """Makes tensors from descriptions."""

    def __init__(self, file: BytesIO, memory: Memory | None) -> None:
        super().__init__(file)
        self._memory = memory
        self.tensors: list[Tensor] = []

    def find_class(self, module: str, name: str) -> Any:
        """Return what a header names."""
        if name == _made.__name__ and module == __name__:
            return self._make_any
        return Message if name == Message.__name__ and module == Message.__module__ else super().find_class(module, name)

    def _make_any(self, *description: Any) -> Tensor:
        """Make a tensor; a sparse one shares the memory of its parts."""
        if isinstance(description[0], str):
            return self._make(*description)
        shape, indices, values, coalesced = description
        made = self._make(*indices), self._make(*values)
        return torch.sparse_coo_tensor(*made, shape, is_coalesced=coalesced, check_invariants=False)

    def _make(self, *description: Any) -> Tensor:
        name, shape, stride, device = description
        dtype, count = _DTYPE_OF[name], prod(shape)
        if self._memory is None or not count:
            tensor = torch.empty_strided(shape, stride, dtype=dtype, device=device)
        else:  # not a view: views share one count of changes
            place = self._memory.take(count * dtype.itemsize) // dtype.itemsize
            tensor = torch.empty(0, dtype=dtype).set_(self._memory.storage, place, shape, stride)
        if count:
            self.tensors.append(tensor)
        return tensor


def _is_dense(tensor: Tensor) -> bool:
    """Return True if the elements fill their memory without gap or overlap, in whatever order of dimensions."""
    expected = 1
    # a dimension of one element may have any stride: no step is ever made along it
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def bytes_of(tensor: Tensor) -> Tensor:
    """Return the memory of a dense tensor, one-dimensional uint8."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)

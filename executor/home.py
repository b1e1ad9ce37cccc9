"""Where a device's tensors live: its weights, what it is fed and what others send it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from executor.boundary import Message, Value
from executor.structure import with_tensors


def _nothing(tensor: Tensor) -> None:
    """Need not know: all memory is of one kind."""


@dataclass(frozen=True, slots=True)
class Home:
    """The memory of one device of a graph."""

    device: torch.device
    lends: bool = False
    """What arrives lies in memory that will be used again: whoever keeps it longer than its task takes a copy."""
    claim: Callable[[Tensor], None] = _nothing
    """Hears of memory of the caller's that the device is going to use."""
    hand_back: Callable[[Tensor], None] = _nothing
    """Hears of memory that the caller has for himself again."""

    def message(self, message: Message) -> Message:
        """Return a message whose tensors are here."""
        return replace(message, tensors=tuple(self._tensor(tensor) for tensor in message.tensors))

    def value(self, value: Value) -> Value:
        """Return a value whose tensors are here."""
        return with_tensors(value, self._tensor)

    def _tensor(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device)  # blocking: the caller may change what he gave, pinned or not, once his call returns


HOST = Home(torch.device("cpu"))
"""The memory that all threads of the process share."""

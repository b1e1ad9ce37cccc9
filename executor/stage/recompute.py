"""Buffers when a forward runs twice: the second run finds them as the first did, and leaves no trace.

BatchNorm's running statistics so change once per micro-batch whether it is recomputed or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

Snapshot = Mapping[int, Tensor]
"""Buffers by number, as they were before a forward that changed them."""


class Buffers:
    """The buffers of a stage's module, those apart that its forward changes."""

    def __init__(self, module: nn.Module) -> None:
        self._homes = [(owner, name) for owner in module.modules() for name, _ in owner.named_buffers(recurse=False)]
        self._changing = set(range(len(self._homes)))

    @contextmanager
    def recorded(self) -> Iterator[dict[int, Tensor]]:
        """Run a forward inside; afterwards the dict given has the former values of the buffers that it changed.

        The first time all buffers are copied, later only those that have changed then. Fused kernels of BatchNorm do not count
        their changes, so values are compared too.
        """
        buffers = {number: self._at(number) for number in self._changing}
        versions = {number: buffer._version for number, buffer in buffers.items()}
        before = {number: buffer.clone() for number, buffer in buffers.items()}
        yield before
        for number, buffer in buffers.items():
            # torch counts changes, but not those of fused kernels, and a forward may put another tensor in the place
            same_memory = self._at(number) is buffer and buffer._version == versions[number]
            if same_memory and torch.equal(buffer, before[number]):
                self._changing.discard(number)
                del before[number]

    @contextmanager
    def replayed(self, before: Snapshot) -> Iterator[None]:
        """Run the forward again inside, on the former values; then all buffers are what they were."""
        # the tensors themselves are put back, not their values: others may hold them
        now = [self._at(number) for number in range(len(self._homes))]
        for number, buffer in enumerate(now):
            self._set(number, before[number] if number in before else buffer.clone())
        try:
            yield
        finally:
            for number, buffer in enumerate(now):
                self._set(number, buffer)

    def untouched(self) -> AbstractContextManager[None]:
        """Return a context in which forwards change copies of the buffers only."""
        return self.replayed({})

    def _at(self, number: int) -> Tensor:
        owner, name = self._homes[number]
        buffer = owner._buffers[name]
        assert buffer is not None
        return buffer

    def _set(self, number: int, buffer: Tensor) -> None:
        owner, name = self._homes[number]
        owner._buffers[name] = buffer

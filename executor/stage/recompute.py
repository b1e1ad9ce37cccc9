"""Buffers when a forward runs twice: the second run finds them as the first did, and leaves no trace.

BatchNorm's running statistics so change once per micro-batch whether it is recomputed or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

Snapshot = Mapping[int, Tensor]
"""Buffers by number, as they were before a forward."""


class Buffers:
    """The buffers of a stage's module."""

    def __init__(self, module: nn.Module) -> None:
        self._newest: dict[int, Tensor] = {}
        """By number: the copy of the newest snapshot, which nobody changes."""
        self._homes = [(owner, name) for owner in module.modules() for name, _ in owner.named_buffers(recurse=False)]

    def snapshot(self) -> Snapshot:
        """Return the values of all buffers, before a forward that will be recomputed.

        All of them: a later forward may change what this one leaves alone. Equal values share one copy. On a GPU comparing would
        have to be waited for, so there every snapshot has copies of its own.
        """
        for number in range(len(self._homes)):
            buffer = self._at(number)
            # fused kernels of BatchNorm do not count their changes, nor does what goes through .data: only values tell
            if (copy := self._newest.get(number)) is None or buffer.is_cuda or not _equal(copy, buffer):
                self._newest[number] = buffer.detach().clone()
        return dict(self._newest)

    @contextmanager
    def replayed(self, before: Snapshot) -> Iterator[None]:
        """Run the forward again inside, on the former values; then all buffers are what they were."""
        # the tensors themselves are put back, not their values: others may hold them
        now = [self._at(number) for number in range(len(self._homes))]
        for number, buffer in enumerate(now):
            # clones: the forward inside writes to them, and micro-batches share the copies of a snapshot
            self._set(number, before.get(number, buffer).clone())
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


def _equal(copy: Tensor, buffer: Tensor) -> bool:
    return copy.dtype == buffer.dtype and copy.device == buffer.device and torch.equal(copy, buffer)

"""Buffers when a forward runs twice: the second run finds them as the first did, and leaves no trace.

BatchNorm's running statistics so change once per micro-batch whether it is recomputed or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

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

        The first time all buffers are copied, later only those that have changed then.
        """
        before: dict[int, Tensor] = {}
        if not self._homes:
            yield before
            return
        states = {number: (self._at(number), self._at(number)._version) for number in self._changing}
        before.update({number: buffer.clone() for number, (buffer, _) in states.items()})
        yield before
        for number, (buffer, version) in states.items():
            if self._at(number) is buffer and buffer._version == version:
                self._changing.discard(number)
                del before[number]

    @contextmanager
    def replayed(self, before: Snapshot) -> Iterator[None]:
        """Run the forward again inside, on the former values; then the buffers are what they were."""
        now = {number: self._at(number) for number in before}
        for number, buffer in before.items():
            self._set(number, buffer)
        try:
            yield
        finally:
            for number, buffer in now.items():
                self._set(number, buffer)

    def untouched(self) -> AbstractContextManager[None]:
        """Return a context in which forwards change copies of the buffers only."""
        return self.replayed({number: self._at(number).clone() for number in range(len(self._homes))})

    def _at(self, number: int) -> Tensor:
        owner, name = self._homes[number]
        buffer = owner._buffers[name]
        assert buffer is not None
        return buffer

    def _set(self, number: int, buffer: Tensor) -> None:
        owner, name = self._homes[number]
        owner._buffers[name] = buffer

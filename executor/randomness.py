"""Random numbers of a stage: the same for the same (seed, mini-batch, micro-batch, stage), on whatever thread and when run again.

All threads share torch's CPU generator, so what a stage draws from it would depend on what the others draw meanwhile. A
dispatch mode gives every drawing operation the stage's own generator instead. The mode costs some microseconds an operation, so
it stays on only in stages whose first forward drew something.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_DEFAULT_GENERATOR = threading.Lock()
"""Held while an operation that takes no generator draws from the default one in a state that is not its own."""


def seed_of(*numbers: int) -> int:
    """Return a seed of 63 bits that differs for every sequence of numbers (splitmix64 after each)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
        state ^= state >> 31
    return state >> 1


class StageGenerator(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves its __init_subclass__ untyped
    """While active, operations of this thread draw from a generator of their own."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # so in torch
        self.generator = torch.Generator(device)
        self.drew = False
        """Some operation has drawn since this was made."""

    def seed(self, seed: int) -> None:
        """Start the sequence of this seed."""
        self.generator.manual_seed(seed)

    def __torch_dispatch__(  # noqa: PLR0917 - torch calls it so
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operation."""
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        self.drew = True
        if any(argument.name == "generator" for argument in func._schema.arguments):
            return func(*args, **{**kwargs, "generator": kwargs.get("generator") or self.generator})
        return self._on_default_generator(lambda: func(*args, **kwargs))

    def _on_default_generator(self, draw: Callable[[], Any]) -> Any:
        default = torch.default_generator
        with _DEFAULT_GENERATOR:
            before = default.get_state()
            default.set_state(self.generator.get_state())
            try:
                return draw()
            finally:
                self.generator.set_state(default.get_state())
                default.set_state(before)

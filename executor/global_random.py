"""The random numbers that the whole process shares: torch's, Python's and numpy's. Data loaders draw from them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class GlobalRandom:
    """The state of all generators that the process shares."""

    torch_state: Tensor
    """uint8."""
    python_state: tuple[Any, ...]
    numpy_state: dict[str, Any]

    @classmethod
    def current(cls) -> GlobalRandom:
        """Return the state as it is."""
        return cls(torch.get_rng_state(), random.getstate(), _numpy_generator().state)

    def restore(self) -> None:
        """Let the generators go on from this state."""
        torch.set_rng_state(self.torch_state)
        random.setstate(self.python_state)
        _numpy_generator().state = self.numpy_state


@contextmanager
def same_random() -> Iterator[None]:
    """Draw inside as if nothing had been drawn outside afterwards."""
    before = GlobalRandom.current()
    try:
        yield
    finally:
        before.restore()


def _numpy_generator() -> Any:
    """Return what numpy's functions without a generator of their own draw from: users' data still does."""
    return np.random.mtrand._rand._bit_generator

"""The random numbers that the whole process shares: torch's, Python's and numpy's. Data loaders draw from them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True, slots=True, eq=False)
class GlobalRandom:
    """The state of all generators that the process shares, as plain values."""

    torch_state: bytes
    python_state: tuple[Any, ...]
    """(version, words, the Gaussian that is left or None)."""
    numpy_state: tuple[Any, ...]
    """(words, position, 1 if a Gaussian is left, it), of the Mersenne twister that numpy's functions draw from."""

    @classmethod
    def current(cls) -> GlobalRandom:
        """Return the state as it is."""
        state = _numpy().get_state(legacy=False)
        inner = state["state"]
        words = (inner["key"].tobytes(), int(inner["pos"]), int(state["has_gauss"]), float(state["gauss"]))
        version, python_words, left = random.getstate()
        python = (version, np.array(python_words, np.uint32).tobytes(), left)
        return cls(torch.get_rng_state().numpy().tobytes(), python, words)

    def restore(self) -> None:
        """Let the generators go on from this state."""
        torch.set_rng_state(torch.frombuffer(bytearray(self.torch_state), dtype=torch.uint8))
        version, words, left = self.python_state
        random.setstate((version, tuple(np.frombuffer(words, np.uint32).tolist()), left))
        key, position, has_gauss, gauss = self.numpy_state
        inner = {"key": np.frombuffer(key, np.uint32), "pos": position}
        _numpy().set_state({"bit_generator": "MT19937", "state": inner, "has_gauss": has_gauss, "gauss": gauss})

    def plain(self) -> dict[str, Any]:
        """Return the state for `plain_values.to_json`."""
        return {"torch": self.torch_state, "python": self.python_state, "numpy": self.numpy_state}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> GlobalRandom:
        """Return what `plain` was made of."""
        return cls(plain["torch"], plain["python"], plain["numpy"])


def seed_all(seed: int) -> None:
    """Begin all generators that the process shares with a seed."""
    torch.manual_seed(seed)
    random.seed(seed)
    _numpy().seed(seed % 2**32)


@contextmanager
def same_random() -> Iterator[None]:
    """Draw inside as if nothing had been drawn outside afterwards."""
    before = GlobalRandom.current()
    try:
        yield
    finally:
        before.restore()


@contextmanager
def same_random_everywhere() -> Iterator[None]:
    """Do the same for the generators of all GPUs, too."""
    with torch.random.fork_rng(), same_random():
        yield


def _numpy() -> Any:
    """Return what numpy's functions without a generator of their own draw from: users' data still does."""
    return np.random.mtrand._rand

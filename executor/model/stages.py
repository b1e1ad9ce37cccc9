"""A model in stages that remembers what its parameters are called in the whole."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn


class Stages(tuple[nn.Module, ...]):
    """Stages in order; stage k's output is stage k + 1's input."""

    prefixes: tuple[str, ...]
    """By stage: what stands before its keys in the state_dict of the model that was cut."""

    def __new__(cls, stages: Iterable[nn.Module], prefixes: Iterable[str] | None = None) -> Stages:
        """Take stages whose keys are those of the whole model already, or what to put before them."""
        made = super().__new__(cls, stages)
        made.prefixes = ("",) * len(made) if prefixes is None else tuple(prefixes)
        assert len(made.prefixes) == len(made)
        return made

"""What the executor's benchmarks train."""

from __future__ import annotations

from executor.recipe.ready_made import character_transformer, mlp
from executor.recipe.recipe import Recipe


def large() -> Recipe:
    """Return a model whose forwards take about 5 ms on each of 2 devices: 8 micro-batches of 8 samples."""
    return character_transformer(mini_batch_size=64)


def small() -> Recipe:
    """Return a model whose forwards take about 1 ms on each of 2 devices: 8 micro-batches of 32 samples."""
    return mlp(mini_batch_size=256)

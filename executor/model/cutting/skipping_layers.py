"""Layers with skip connections between them, cut into stages: what ends in another stage leaves this one, the rest stays inside.

    layers   0 ── 1 ── 2 ── 3 ── 4 ── 5        skips 0 to 5, 1 to 3
    stages   A: 0 1     B: 2 3     C: 4 5       1 to 3 goes to the next stage beside its input, 0 to 5 by Skip(A, C)

A stage returns what its last layer makes, then what the next stage needs, then what goes over skip connections. What a layer sends
over one is one value of the stage's, a tuple.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import nn

from executor.boundary import Arguments
from executor.model.skips import Skip, joined, parted
from executor.model.stages import Stages


def cut_layers(layers: Stages, bounds: Sequence[tuple[int, int]]) -> Stages:
    """Return layers low … high - 1 of every pair as a stage."""
    stage_of = [stage for stage, (low, high) in enumerate(bounds) for _ in range(low, high)]
    stages = [_LayersWithSkips(layers, bounds[stage], stage_of, stage=stage) for stage in range(len(bounds))]
    skips = [skip for stage in stages for skip in stage.skips()]
    return Stages.of_whole(stages, skips=skips)


class _LayersWithSkips(nn.Module):
    """Some neighbours of a row of layers."""

    def __init__(self, layers: Stages, bounds: tuple[int, int], stage_of: Sequence[int], *, stage: int) -> None:
        super().__init__()
        self.numbers, self.stage = range(*bounds), stage
        for number in self.numbers:
            self.add_module(layers.prefixes[number].rstrip("."), layers[number])
        self._of_layer = {number: [skip for skip in layers.skips if skip.source == number] for number in self.numbers}
        ends = sorted(((skip, stage_of[skip.source], stage_of[skip.target]) for skip in layers.skips), key=_by_stage)
        self._adjacent = [skip for skip, source, target in ends if source == stage and target == stage + 1]
        self._away = [(skip, target) for skip, source, target in ends if source == stage and target > stage + 1]
        from_neighbour = [skip for skip, source, target in ends if target == stage and source == stage - 1]
        self._arriving = from_neighbour + [skip for skip, source, target in ends if target == stage and source < stage - 1]
        self._next_takes_skips = any(target == stage + 1 and source < stage for _, source, target in ends)

    def skips(self) -> list[Skip]:
        """Return the stage's skip connections."""
        first = 1 + len(self._adjacent)
        places: dict[int, list[int]] = {}
        for number, (_, target) in enumerate(self._away, first):
            places.setdefault(target, []).append(number)
        return [Skip(self.stage, target, tuple(numbers)) for target, numbers in places.items()]

    def forward(self, *inputs: Any) -> Any:
        """Run the layers on what the stage before gives and what has arrived for single ones."""
        kept: dict[Skip, tuple[Any, ...]] = {}
        if self._arriving:
            value, *arrived = inputs
            kept = dict(zip(self._arriving, arrived, strict=True))
        else:
            value = inputs[0] if len(inputs) == 1 else tuple(inputs)
        for number, layer in zip(self.numbers, self.children(), strict=True):
            skipped = [skip for skip in kept if skip.target == number]
            skipped.sort(key=lambda skip: skip.source)
            given = joined(value, [kept.pop(skip) for skip in skipped]) if skipped else value
            value = Arguments.of(layer).call(layer, given)
            if self._of_layer[number]:
                value, parts = parted(value, self._of_layer[number], partial(_name, number))
                kept |= dict(zip(self._of_layer[number], parts, strict=True))
        sent = [kept[skip] for skip in (*self._adjacent, *(skip for skip, _ in self._away))]
        if self._next_takes_skips and not self._adjacent:
            value = (value,)  # one argument beside others, even if it is a tuple
        return (value, *sent) if sent else value


def _by_stage(ends: tuple[Skip, int, int]) -> tuple[int, int, Skip]:
    """Order what a stage sends by where it goes, and what it takes by where it comes from."""
    skip, source, target = ends
    return source, target, skip


class WayOfValues:
    """What goes from layer to layer when they are run one by one."""

    def __init__(self, skips: Sequence[Skip]) -> None:
        self._skips = skips
        self._kept: dict[int, list[tuple[Any, ...]]] = {}
        """By layer: what has been sent to it, by source."""

    def behind(self, number: int, output: Any) -> Any:
        """Return what the layer behind takes, given the output of layer `number`."""
        own = [skip for skip in self._skips if skip.source == number]
        value, parts = parted(output, own, partial(_name, number)) if own else (output, [])
        for skip, part in zip(own, parts, strict=True):
            self._kept.setdefault(skip.target, []).append(part)
        return joined(value, self._kept.pop(number + 1)) if number + 1 in self._kept else value


def _name(number: int) -> str:
    return f"the output of layer {number}"

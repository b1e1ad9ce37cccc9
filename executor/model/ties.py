"""Weights that several stages hold: found by identity, so that a model's own ties stay what they are when it is cut.

    embed.weight is head.weight          stage 0 holds it as embed.weight, stage 3 as head.weight: a tie of stages 0 and 3

The lowest stage that holds a parameter owns it: it trains the very object. Every other stage trains a private one, in memory of its
own where it stands on another device, in that of the device's lowest holder where it does not. All copies are updated with the sum
of all holders' gradients, by optimizers that know the same, so they stay equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from schedir.errors import RefusedError
from schedir.ir.graph import TaskGraph
from schedir.lowering.across import check_ties, named


@dataclass(frozen=True, slots=True)
class Tie:
    """Stages that hold some of the same trainable parameters, directly or through others of them."""

    stages: tuple[int, ...]
    """Increasing."""
    numbers: tuple[tuple[int, ...], ...]
    """By stage of `stages`, then tied parameter: its number among the stage's trainable parameters, -1 where it is not held."""

    def numbers_of(self, stage: int) -> tuple[int, ...]:
        """Return by tied parameter its number among a stage's trainable parameters, -1 where the stage does not hold it."""
        return self.numbers[self.stages.index(stage)]

    def holders(self, parameter: int) -> tuple[int, ...]:
        """Return the stages that hold a tied parameter, increasing; the first owns it."""
        return tuple(stage for stage, numbers in zip(self.stages, self.numbers, strict=True) if numbers[parameter] >= 0)


def find_ties(stages: Sequence[nn.Module]) -> tuple[Tie, ...]:
    """Return the ties of trainable parameters over stages; a frozen one changes nowhere, so all may hold it as it is."""
    held = [_numbered(stage) for stage in stages]
    groups: dict[int, set[int]] = {}
    for stage, own in enumerate(held):
        for other in range(stage):
            if not own.keys().isdisjoint(held[other]):
                # stages that share with a common one are one tie, whoever shares what
                merged = groups.get(stage, {stage}) | groups.get(other, {other})
                groups |= dict.fromkeys(merged, merged)
    found = {tuple(sorted(group)) for group in groups.values()}
    return tuple(Tie(tie, _numbers([held[stage] for stage in tie])) for tie in sorted(found))


def _numbered(stage: nn.Module) -> dict[int, int]:
    """Return the number of every trainable parameter by its identity."""
    return {id(parameter): number for number, parameter in enumerate(trainable_parameters(stage))}


def _numbers(held: Sequence[dict[int, int]]) -> tuple[tuple[int, ...], ...]:
    every = [parameter for own in held for parameter in own]
    tied = [parameter for parameter in dict.fromkeys(every) if every.count(parameter) > 1]
    return tuple(tuple(own.get(parameter, -1) for parameter in tied) for own in held)


def foreign_parameters(stages: Sequence[nn.Module], stage: int) -> list[nn.Parameter]:
    """Return a stage's parameters that a lower one holds, too, frozen ones among them."""
    below = {id(parameter) for lower in stages[:stage] for parameter in lower.parameters()}
    return [parameter for parameter in stages[stage].parameters() if id(parameter) in below]


def trainable_parameters(stage: nn.Module) -> tuple[nn.Parameter, ...]:
    """Return a module's trainable parameters, each once."""
    return tuple(parameter for parameter in stage.parameters() if parameter.requires_grad)


def tie_over(stages: tuple[int, ...], ties: Sequence[Tie]) -> Tie:
    """Return all ties among some stages as one over just these stages."""
    inside = [tie for tie in ties if set(tie.stages) <= set(stages)]
    numbers = (
        tuple(n for tie in inside for n in (tie.numbers_of(stage) if stage in tie.stages else (-1,) * len(tie.numbers[0])))
        for stage in stages
    )
    return Tie(stages, tuple(numbers))


def check_graph(graph: TaskGraph, ties: Sequence[Tie]) -> None:
    """Raise RefusedError for a graph that would let a model's ties drift apart: it does not know them."""
    unknown = [tie.stages for tie in ties if not any(set(tie.stages) <= set(known) for known in graph.options.ties)]
    if not unknown:
        return
    check_ties(unknown, graph.program)
    raise RefusedError(
        f"{named(unknown[0])} hold the same weights, of which the graph knows nothing: compile it with "
        f"compile_program(program, ties={tuple(tie.stages for tie in ties)})"
    )

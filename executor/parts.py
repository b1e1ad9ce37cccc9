"""A model as profiling sees it: parts in order, each a stage or a layer, with the micro-batch that reaches it.

    stage 0 ──────────────┐ stage 1 ──────────────┐
    embed │ block │ block │ block │ block │ head  │ loss           by="stage": 2 parts, by="layer": 6 parts

Parts are copies: whatever profiling does to parameters, buffers, flags and hooks, the user's own stay as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor, nn

from schedir.errors import ArgumentError, RefusedError

Finish = Callable[[Tensor], Tensor]


class Granularity(StrEnum):
    """What costs are measured for."""

    STAGE = "stage"
    LAYER = "layer"


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A stage or a layer and one micro-batch of its input."""

    name: str
    """`0` for a stage, `0.block` for a layer: the keys by which state_dict knows it."""
    stage: int
    """The stage that it is, or is a layer of."""
    module: nn.Module
    inputs: Tensor
    """What the part before it sends, or the data; without a graph."""
    wants_input_gradient: bool
    """A part before it waits for the gradient."""
    ends_stage: bool
    """Its output leaves the stage."""
    finish: Finish | None = None
    """Of the model's last part: its output -> the loss, where backward starts."""

    def fresh_input(self) -> Tensor:
        """Return the input as a new leaf."""
        return self.inputs.detach().requires_grad_(self.wants_input_gradient)

    def root(self, inputs: Tensor) -> Tensor:
        """Compute the part's output, of the last part the loss: where its backward starts."""
        output: Tensor = self.module(inputs)
        return output if self.finish is None else self.finish(output)

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that gradients are asked for."""
        return [parameter for parameter in self.module.parameters() if parameter.requires_grad]


def copy_stages(stages: Sequence[nn.Module]) -> list[nn.Module]:
    """Return copies of the stages, made together, so that tied weights stay tied; raise RefusedError where torch cannot."""
    try:
        return copy.deepcopy(list(stages))
    except (RuntimeError, TypeError) as error:
        raise RefusedError(f"the stages cannot be copied to be profiled ({error}): profile a model that has not run yet") from error


def parts_of(
    stages: Sequence[nn.Module],
    micro_batch: tuple[Tensor, Tensor],
    *,
    loss: Callable[[Tensor, Tensor], Tensor],
    by: Granularity,
) -> tuple[Part, ...]:
    """Run one micro-batch through the stages and return their parts, each with its input.

    Layers are a stage's children where it is an nn.Sequential; any other stage is one layer, since only its own forward
    knows how its children follow each other. Raises ArgumentError where a stage does not give one tensor.
    """
    inputs, target = (tensor.clone() for tensor in micro_batch)  # not the whole mini-batch that they may be cut from
    modules = [(name, stage, module) for stage, whole in enumerate(stages) for name, module in _pieces(stage, whole, by)]
    parts = []
    for index, (name, stage, module) in enumerate(modules):
        last = index == len(modules) - 1
        part = Part(
            name=name,
            stage=stage,
            module=module,
            inputs=inputs,
            wants_input_gradient=bool(index) and inputs.is_floating_point(),
            ends_stage=last or modules[index + 1][1] != stage,
            finish=(lambda output: loss(output, target)) if last else None,
        )
        parts.append(part)
        if not last:
            inputs = _forward(part)
    return tuple(parts)


def _pieces(stage: int, module: nn.Module, by: Granularity) -> list[tuple[str, nn.Module]]:
    if by is Granularity.STAGE or not isinstance(module, nn.Sequential) or not len(module):
        return [(str(stage), module)]
    return [(f"{stage}.{name}", child) for name, child in module.named_children()]


def _forward(part: Part) -> Tensor:
    with torch.no_grad():
        output = part.module(part.inputs)
    if not isinstance(output, Tensor):
        raise ArgumentError(f"{part.name} gives {type(output).__name__}, not a tensor: stages hand one tensor on")
    return output

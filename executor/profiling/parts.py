"""A model as profiling sees it: parts in order, each a stage or a layer, with the micro-batch that reaches it.

    stage 0 ──────────────┐ stage 1 ──────────────┐
    embed │ block │ block │ block │ block │ head  │ loss           by="stage": 2 parts, by="layer": 6 parts

Parts are made of copies: whatever profiling does to parameters, buffers, flags and hooks, the user's own stay as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from executor.boundary import Arguments, Message, Value, input_message, message_of, noting
from executor.model.pipeline import Loss
from executor.model.skips import Skip, joined_message, parted
from executor.model.stages import Stages
from executor.structure import take_apart, with_tensors
from schedir.costs.table.meaning import Granularity
from schedir.errors import RefusedError


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A stage or a layer and one micro-batch of its input."""

    name: str
    """`0` for a stage, `0.block` for a layer: the keys by which state_dict knows it."""
    stage: int
    """The stage that it is, or is a layer of."""
    module: nn.Module
    message: Message
    """What the part before it sends, or the data."""
    ends_stage: bool
    """Its output leaves the stage."""
    finish: Callable[[Any], Tensor] | None = None
    """Of the model's last part: its output -> the loss, where backward starts."""
    sends: tuple[Skip, ...] = ()
    """The skip connections that begin behind it."""

    def output(self, inputs: tuple[Tensor, ...]) -> Any:
        """Run the module, as a stage of the pipeline is run; raise RefusedError where it does not take its input."""
        try:
            with noting(f"stage {self.name}, first micro-batch"):
                return Arguments.of(self.module).call(self.module, self.message.value(inputs))
        except (RuntimeError, TypeError, IndexError) as error:
            shapes = ", ".join(str(tuple(value.shape)) for value in inputs)
            reason = " ".join(str(error).split())
            raise RefusedError(
                f"stage {self.name} cannot run on what reaches it, shape {shapes} ({reason}): let it take what the one before sends"
            ) from error

    def ways(self, output: Any) -> tuple[Any, ...]:
        """Return what of an output goes to the next part, and behind it what goes over each skip connection."""
        rest, values = parted(output, self.sends, lambda: f"the output of {self.name}") if self.sends else (output, [])
        return rest, *values

    def roots(self, output: Any) -> tuple[Tensor, ...]:
        """Return the tensors where backward starts: the outputs, of the last part the loss."""
        return take_apart(output if self.finish is None else self._loss(output), lambda: f"the output of {self.name}")[0]

    def _loss(self, output: Any) -> Tensor:
        assert self.finish is not None
        try:
            with noting("the loss, first micro-batch"):
                return self.finish(output)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            reason = " ".join(str(error).split())
            raise RefusedError(
                f"the loss fails on the last stage's output and the target ({reason}): mend one of the three"
            ) from error

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that gradients are asked for."""
        return [parameter for parameter in self.module.parameters() if parameter.requires_grad]


def copy_stages(stages: Sequence[nn.Module]) -> Sequence[nn.Module]:
    """Return copies of the stages, made together, so that tied weights stay tied; raise RefusedError where torch cannot."""
    try:
        copies = copy.deepcopy(list(stages))
        return Stages(copies, stages.prefixes, skips=stages.skips) if isinstance(stages, Stages) else copies
    except (RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise RefusedError(
            f"the stages cannot be copied to be profiled ({reason}): let modules keep no tensors that they have computed, say by "
            "nn.utils.parametrizations.weight_norm for nn.utils.weight_norm"
        ) from error


def parts_of(stages: Sequence[nn.Module], micro_batch: tuple[Value, Value], *, loss: Loss, by: Granularity) -> tuple[Part, ...]:
    """Run one micro-batch through the stages and return their parts, each with its input.

    Layers are a stage's children where it is an nn.Sequential; any other stage is one layer, since only its own forward
    knows how its children follow each other. Raises ArgumentError where a stage gives no tensors.
    """
    inputs, target = (with_tensors(side, torch.clone) for side in micro_batch)  # not the whole mini-batch that they may be cut from
    message, modules = input_message(inputs), named_parts(stages, by)
    skips = stages.skips if isinstance(stages, Stages) else ()
    arriving: dict[int, list[Message]] = {}
    parts: list[Part] = []
    for index, (name, stage, module) in enumerate(modules):
        last = index == len(modules) - 1
        skipped = arriving.pop(stage, [])
        ends_stage = last or modules[index + 1][1] != stage
        part = Part(
            name=name,
            stage=stage,
            module=module,
            message=joined_message((message, *skipped)) if skipped else message,
            ends_stage=ends_stage,
            finish=(lambda output: loss(output, target)) if last else None,
            sends=tuple(skip for skip in skips if skip.source == stage and ends_stage),
        )
        parts.append(part)
        if not last:
            message, *others = _send(part)
            for skip, other in zip(part.sends, others, strict=True):
                arriving.setdefault(skip.target, []).append(other)
    return tuple(parts)


def part_stages(parts: Sequence[Part], skips: Sequence[Skip]) -> Stages:
    """Return parts as stages; a skip connection begins behind the last part of its source and ends at the first of its target."""
    last = {part.stage: number for number, part in enumerate(parts)}
    first = {part.stage: number for number, part in reversed(list(enumerate(parts)))}
    moved = [Skip(last[skip.source], first[skip.target], skip.outputs) for skip in skips]
    return Stages([part.module for part in parts], skips=moved)


def named_parts(stages: Sequence[nn.Module], by: Granularity) -> list[tuple[str, int, nn.Module]]:
    """Return name, stage and module of every part; a layer has the name that it has in the model that was cut."""
    prefixes = stages.prefixes if isinstance(stages, Stages) else [f"{stage}." for stage in range(len(stages))]
    return [
        (prefixes[stage] + name if layers else str(stage), stage, part)
        for stage, whole in enumerate(stages)
        for layers in [by is Granularity.LAYER and isinstance(whole, nn.Sequential) and len(whole) > 0]
        for name, part in (whole.named_children() if layers else [("", whole)])
    ]


def _send(part: Part) -> list[Message]:
    """Return what a part sends, with the gradients that are asked for on the way back, and behind it what goes over skips."""
    values = part.ways(part.output(part.message.with_gradients()))
    return [message_of(value, lambda: f"the output of {part.name}") for value in values]

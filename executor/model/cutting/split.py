"""Cut a model into stages: between the layers of an nn.Sequential, or of any model where a module begins.

    split(model, 4)                            an nn.Sequential (or a list), stages of about equally many parameters
    split(model, 4, balance="time", example=x) by the time that forward and backward of every layer take on this machine
    split(Stages(layers, skips=…), 4)          layers with skip connections, inside of a stage or from one to another
    split(model, at=["layers.4"])              any model whose forward can be followed: a new stage begins where layers.4 is called
    split(model, 4)                            a model of Hugging Face; with example=x any that runs a list of blocks one by one

What a later stage needs of an earlier one goes through the stages between them. Parameters keep the names that they have in the
model, so a checkpoint fits however the model is cut. Weights that stages share stay shared (`executor.model.ties`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from enum import StrEnum
from itertools import accumulate, pairwise
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from executor.boundary import Arguments, takes_several
from executor.global_random import same_random
from executor.model.cutting.apart import apart
from executor.model.cutting.balance import balanced
from executor.model.cutting.cut_blocks import BlockCutter, runs_blocks
from executor.model.cutting.follow_forward import cut_forward
from executor.model.cutting.skipping_layers import WayOfValues, cut_layers
from executor.model.hugging_face import is_hugging_face
from executor.model.stages import LayerRow, Stages
from executor.structure import tensors_in, with_tensors
from schedir.errors import ArgumentError, RefusedError
from schedir.expect import expect, kind_of
from schedir.ir.shape import is_count

REPEATS = 5
"""Times that a layer is measured, behind one to warm up; the median counts."""


class Balance(StrEnum):
    """What stages have about equally much of."""

    PARAMETERS = "parameters"
    LAYERS = "layers"
    TIME = "time"


class SkipWay(StrEnum):
    """How a value comes to a stage that is not the next one."""

    THROUGH = "through"
    """Through the stages between, each of which holds it and sends it on."""
    DIRECT = "direct"
    """Over a skip connection: a link of its own, which the task graph has to know."""


def split(
    model: nn.Module | Sequence[nn.Module],
    num_stages: int | None = None,
    *,
    at: Sequence[str] | None = None,
    balance: str = Balance.PARAMETERS,
    example: Any = None,
    skips: str = SkipWay.THROUGH,
) -> Stages:
    """Return a model as stages, for `Pipeline` and `Trainer`; the stages hold the model's own modules.

    Either `num_stages`, and what they should have equally much of (`balance`: parameters, layers or time; time needs `example`, an
    input of the model), or `at`: names of modules where a new stage begins, in the order in which they are called. With `at`,
    `skips` says how what a stage behind the next one needs comes there: through the stages between, or direct, by skip connections.
    Raises ArgumentError, and RefusedError for a model that cannot be cut so.
    """
    expect(model, (nn.Module, list, tuple), "model", remedy="give an nn.Module or a list of them")
    if balance not in tuple(Balance):
        raise ArgumentError(f"balance {balance!r} is unknown: use {', '.join(Balance)}")
    if skips not in tuple(SkipWay):
        raise ArgumentError(f"skips {skips!r} is unknown: use {' or '.join(SkipWay)}")
    if at is not None:
        return _split_at(model, _names(at), num_stages, example=example, skips=SkipWay(skips))
    num_stages = _count(num_stages, SkipWay(skips))
    if runs_blocks(model, example):
        cutter = BlockCutter(model, example)
        return Stages.of_whole(cutter.into(lambda layers: balanced(_costs(layers, Balance(balance), cutter.example), num_stages)))
    layers, prefixes = _layers(model)
    counts = balanced(_costs(layers, Balance(balance), example), num_stages)
    bounds = list(pairwise(accumulate(counts, initial=0)))
    if isinstance(layers, Stages):
        return cut_layers(layers, bounds)
    if isinstance(model, nn.Sequential):
        return Stages.of_whole(apart([model[low:high] for low, high in bounds]))
    return _joined(layers, prefixes, bounds)


def _count(num_stages: int | None, skips: SkipWay) -> int:
    if skips is SkipWay.DIRECT:
        raise ArgumentError('skips "direct" follows a forward from module to module: give at=["layers.4"], where stages begin')
    if num_stages is None:
        raise ArgumentError('split needs to know where to cut: give num_stages, or at=["layers.4"]')
    if not is_count(num_stages):
        raise ArgumentError(f"num_stages {num_stages!r} must be an integer of at least 1")
    return num_stages


def _names(at: object) -> list[str]:
    names = [at] if isinstance(at, str) else list(at) if isinstance(at, Iterable) else None
    if not names or not all(isinstance(name, str) for name in names):
        raise ArgumentError(f'at {at!r:.60} names no modules: give a list of names, as ["layers.4"]')
    return names


def _split_at(model: object, names: list[str], num_stages: int | None, *, example: Any, skips: SkipWay) -> Stages:
    if num_stages not in {None, len(names) + 1}:
        raise ArgumentError(f"at {names} makes {len(names) + 1} stages, but num_stages is {num_stages}: leave one of them out")
    if not isinstance(model, nn.Module):
        raise ArgumentError("at names modules of one model, but a list of stages is given: leave at out, or give the model")
    modules = dict(model.named_modules())
    unknown = next((name for name in names if name not in modules or not name), None)
    if unknown is not None:
        known = ", ".join(name for name, _ in model.named_children())
        raise ArgumentError(f"at {unknown!r} is no module of {type(model).__name__}: its children are {known}")
    children = [name for name, _ in model.named_children()]
    if isinstance(model, nn.Sequential) and all(name in children for name in names):
        places = [0, *(children.index(name) for name in names), len(children)]
        if any(low >= high for low, high in pairwise(places)):
            raise ArgumentError(
                f"at {names} leaves a stage empty or is out of order: name modules as they are called, not the first"
            )
        return Stages.of_whole(apart([model[low:high] for low, high in pairwise(places)]))
    return _cut_at_calls(model, names, example, skips=skips)


def _cut_at_calls(model: nn.Module, names: list[str], example: Any, *, skips: SkipWay) -> Stages:
    """Cut a model where modules are called: as its forward is followed, or else between its blocks."""
    direct = skips is SkipWay.DIRECT
    if direct or not is_hugging_face(model):
        try:
            return cut_forward(model, names, num_inputs=_num_inputs(model, example), direct=direct)
        except RefusedError:
            if direct or not runs_blocks(model, example):
                raise
    return Stages.of_whole(BlockCutter(model, example).at(names))


def _num_inputs(model: nn.Module, example: Any) -> int | None:
    """Return how many arguments the model is called with; None: those that have no default."""
    if example is None:
        return None
    return len(example) if isinstance(example, list | tuple) and takes_several(model) else 1


def _layers(model: nn.Module | Sequence[nn.Module]) -> tuple[Sequence[nn.Module], Sequence[str]]:
    """Return what may be cut between, and what stands before each layer's keys; with skip connections as Stages."""
    if isinstance(model, Stages) and model.skips:
        if not all(model.prefixes):
            raise ArgumentError("the stages are cut already: give the model, or the list of its layers with their skip connections")
        return model, model.prefixes
    if isinstance(model, nn.Sequential):
        return list(model), [f"{name}." for name, _ in model.named_children()]
    if isinstance(model, nn.Module) and not isinstance(model, nn.ModuleList):
        raise RefusedError(
            f"{type(model).__name__} is neither nn.Sequential nor a list of stages: give at={_example_at(model)} "
            "(modules where a new stage begins), or example=, an input of it, if it runs a list of blocks"
        )
    layers: list[Any] = list(model)
    wrong = next((layer for layer in layers if not isinstance(layer, nn.Module)), None)
    if wrong is not None:
        raise ArgumentError(f"the list holds {kind_of(wrong)}: give nn.Modules only")
    return layers, [f"{number}." for number in range(len(layers))]


def _example_at(model: nn.Module) -> str:
    """Return a name that `at` could have: the middle of the longest list of modules."""
    lists = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.ModuleList | nn.Sequential) and name]
    if not lists:
        return '["layers.4"]'
    name, longest = max(lists, key=lambda pair: len(pair[1]))
    return f'["{name}.{len(longest) // 2}"]'


def _joined(layers: Sequence[nn.Module], prefixes: Sequence[str], bounds: list[tuple[int, int]]) -> Stages:
    """Return neighbours in a list as one stage each; a single one stays as it is, so that its arguments do."""
    if all(high - low == 1 for low, high in bounds):
        return Stages(apart(layers, made_by_us=False), prefixes)
    stages = []
    for low, high in bounds:
        stage = LayerRow()
        for number in range(low, high):
            stage.add_module(prefixes[number].rstrip("."), layers[number])
        stages.append(stage)
    return Stages.of_whole(apart(stages))


def _costs(layers: Sequence[nn.Module], balance: Balance, example: Any) -> list[float]:
    if balance is Balance.LAYERS:
        return [1.0] * len(layers)
    if balance is Balance.PARAMETERS:
        return [float(sum(parameter.numel() for parameter in layer.parameters())) for layer in layers]
    if example is None:
        raise ArgumentError('balance "time" runs the layers: give example=, an input of the model')
    return _seconds(layers, example)


def _seconds(layers: Sequence[nn.Module], example: Any) -> list[float]:
    """Return seconds of forward and backward of every layer, measured on copies: nothing of the model changes."""
    value: Any = example
    if layers and isinstance(example, list | tuple):
        value = tuple(example) if takes_several(layers[0]) else example[0]
    found = []
    way = WayOfValues(layers.skips if isinstance(layers, Stages) else ())
    with same_random(), torch.inference_mode(mode=False), torch.enable_grad():
        for number, layer in enumerate(deepcopy(list(layers))):
            measured = [_run(layer, value) for _ in range(REPEATS + 1)]
            found.append(median(seconds for seconds, _ in measured[1:]))
            value = way.behind(number, measured[-1][1])
    return found


def _run(layer: nn.Module, value: Any) -> tuple[float, Any]:
    """Return the seconds of one forward and backward, and the output, as the next layer takes it."""
    inputs = with_tensors(value, lambda x: x.detach().requires_grad_(x.is_floating_point()))
    leaves = [x for x in (*tensors_in(inputs), *layer.parameters()) if x.requires_grad]
    begin = perf_counter()
    output = Arguments.of(layer).call(layer, inputs)
    made = [x for x in tensors_in(output) if x.requires_grad]
    if made and leaves:
        torch.autograd.grad(made, leaves, [torch.ones_like(x) for x in made], allow_unused=True)
    seconds = perf_counter() - begin
    return seconds, with_tensors(output, Tensor.detach)

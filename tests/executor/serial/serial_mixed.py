"""Train a model serially where backwards read other weights than forwards: what has to come out, without tapes and hooks.

A layer with weights w gives layer(x, w_F) forwards, and backwards the gradients of layer(x, w_B):

    y = layer(x, w_B) + (layer(x, w_F) - layer(x, w_B)), the bracket without a gradient

Its value is that of the forward's weights, so all that follows saves the activations of the forward; its derivatives by x and by w
are those at the backward's weights. That is the mixed gradient (C5 of the scalar cases), for any layer. A weight that a module only
adds (a position, a class token) is replaced in the same way itself. Nothing of the executor is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tests.executor.serial.serial_versions import Serial, Weights

Parts = Sequence[tuple[dict[str, Tensor], Tensor, float]]
"""(inputs by name, target, share) of every micro-batch."""


class Mixed(Serial):
    """A serial execution in which every backward has weights of its own; parameters have the names of the whole model."""

    def __init__(
        self,
        graph: Any,
        stages: Sequence[nn.Module],
        *,
        model: nn.Module,
        parts: Parts,
        loss: Callable[[Any, Tensor], Tensor],
    ) -> None:
        super().__init__(graph, stages, self)  # type: ignore[arg-type]  # it has shares, and no other loss
        self._model, self._parts, self._criterion = model, parts, loss
        self.shares = [share for _, _, share in parts]
        self.behind: dict[tuple[int, int], Weights] = {}
        """By stage and micro-batch: the weights that its backward reads."""

    def backward(self, stage: int, j: int, read: Weights) -> None:
        """Note what a backward reads."""
        self.behind[stage, j] = read

    def loss(self, j: int) -> tuple[Tensor, list[Weights]]:
        """Return a micro-batch's loss at the forward's weights, and the leaves that its gradients are taken by."""
        stages = range(len(self.versions))
        # the gradients of a stage do not depend on what earlier ones read backwards, which may not have been said yet
        behind = [self.behind.get((stage, j), self.read[stage, j]) for stage in stages]
        leaves = [{name: value.clone().requires_grad_() for name, value in own.items()} for own in behind]
        forward = {name: value for stage in stages for name, value in self.read[stage, j].items()}
        inputs, target, _ = self._parts[j]
        backward = {name: leaf for own in leaves for name, leaf in own.items()}
        output = mixed_call(self._model, inputs, forward=forward, backward=backward)
        return self._criterion(output, target), leaves


def mixed_call(model: nn.Module, inputs: dict[str, Tensor], *, forward: Weights, backward: Weights) -> Any:
    """Run a model forwards on some weights, so that its gradients are those of others."""
    layers = {id(module): name for name, module in model.named_modules() if not list(module.children())}
    inside = {f"{name}.{own}" for name in layers.values() for own, _ in model.get_submodule(name).named_parameters()}
    given = {name: leaf if name in inside else _swapped(leaf, forward[name]) for name, leaf in backward.items()}
    with _mixed_layers(model, layers, forward):
        return functional_call(model, given, (), inputs)


def _swapped(leaf: Tensor, value: Tensor) -> Tensor:
    return leaf + (value - leaf).detach()


@contextmanager
def _mixed_layers(model: nn.Module, layers: dict[int, str], forward: Weights) -> Iterator[None]:
    """Let every layer with weights of its own compute on both inside."""
    handles = []
    for name in layers.values():
        layer = model.get_submodule(name)
        own = {key: forward[f"{name}.{key}"] for key, _ in layer.named_parameters()}
        if own:
            handles.append(layer.register_forward_hook(_mixes(own), with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _mixes(own: Weights) -> Callable[..., Tensor]:
    """Return a hook that gives a layer's output the value that it has on other weights."""
    inside = False

    def hook(layer: nn.Module, arguments: Any, named: Any, output: Tensor) -> Tensor:  # noqa: PLR0917 - torch calls it so
        nonlocal inside
        if inside:
            return output
        inside = True
        with torch.no_grad():
            value = functional_call(layer, own, arguments, named)
        inside = False
        return _swapped(output, value)

    return hook

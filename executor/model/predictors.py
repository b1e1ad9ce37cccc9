"""Predict the weights a stage will have some updates ahead, from its optimizer's last update.

    predicted = w - s * lr * d      s: horizon, lr: rate of the stage's next update, d: direction of its last applied update

| optimizer      | d (g: the last update's gradient, weight decay of the L2 kind included)                              |
|----------------|------------------------------------------------------------------------------------------------------|
| SGD            | g; with momentum its buffer; Nesterov g + momentum * buffer                                          |
| Adam, AdamW    | m/(1 - b1^n) / (sqrt(v/(1 - b2^n)) + eps), n updates so far; AdamW's decoupled decay is left out     |
|   `literal`    | the exponent n left out, as the XPipe paper prints it                                                |
| RMSprop        | g / (sqrt(v) + eps), v less the squared mean gradient if centered; with momentum its buffer          |
| any other      | predicted = w + s * (w - weights before the last update)                                             |

Sources: XPipe (Guan et al. 2019), SpecTrain (Chen et al. 2018), PipeOptim (Guan et al. 2023). With a constant rate and without
decoupled decay the formulas are that extrapolation. Before the first update the prediction is the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

Group = Mapping[str, Any]
"""A parameter group of an optimizer."""
State = Mapping[str, Any]
"""What an optimizer keeps of one parameter."""
Direction = Callable[[Group, State, Tensor], Tensor]
"""(group, state, gradient of the last update) -> d."""


class AdamPrediction(StrEnum):
    """How Adam's moments are corrected for their start at zero when predicting; the real update is always Adam's."""

    BIAS_CORRECTED = "bias-corrected"
    LITERAL = "literal"


class Predictor(Protocol):
    """Watches the updates of one stage and predicts its weights."""

    def before_update(self) -> None:
        """See gradients and weights that the optimizer is about to use."""
        ...

    def predict(self, weights: Sequence[Tensor], horizon: int) -> list[Tensor]:
        """Return new tensors: the weights expected after `horizon` more updates."""
        ...

    def moved(self, optimizer: Optimizer, parameters: Sequence[Tensor]) -> Predictor:
        """Return what predicts the same for another copy of the stage, which has had the same updates."""
        ...

    def state(self) -> list[Tensor | None]:
        """Return by parameter what it has to remember of the last update; None if there was none."""
        ...

    def load_state(self, state: Sequence[Tensor | None]) -> None:
        """Go on from what `state` gave."""
        ...


def make_predictor(optimizer: Optimizer, parameters: Sequence[Tensor], adam: AdamPrediction) -> Predictor:
    """Return the predictor for an optimizer; subclasses of torch's own may update otherwise, so they are extrapolated."""
    rule = _rule_of(optimizer, adam)
    return Extrapolation(parameters) if rule is None else Formula(optimizer, parameters, rule)


@dataclass(frozen=True, slots=True)
class StepRule:
    """How one kind of optimizer moves its weights."""

    direction: Direction
    uses_gradient: Callable[[Group], bool]
    """The direction needs the gradient itself, so it is kept until the next update."""


class Formula:
    """Predicts by an optimizer's own direction."""

    def __init__(self, optimizer: Optimizer, parameters: Sequence[Tensor], rule: StepRule) -> None:
        self._optimizer, self._parameters, self._rule = optimizer, parameters, rule
        self._gradients: list[Tensor | None] = [None] * len(parameters)

    def before_update(self) -> None:
        """Note which weights move, and keep the gradients as the optimizer will use them where the direction needs them."""
        pairs = zip(self._parameters, self._groups(), strict=True)
        self._gradients = [self._kept(parameter, group) for parameter, group in pairs]

    def _kept(self, parameter: Tensor, group: Group | None) -> Tensor | None:
        if parameter.grad is None or group is None:
            return None
        # an empty tensor says no more than that the parameter has been updated
        return _applied_gradient(group, parameter) if self._rule.uses_gradient(group) else parameter.new_empty(0)

    def predict(self, weights: Sequence[Tensor], horizon: int) -> list[Tensor]:
        """Return new tensors: w - horizon * lr * d."""
        predicted = []
        for weight, parameter, gradient, group in zip(weights, self._parameters, self._gradients, self._groups(), strict=True):
            # C6: the rate of the next update; a parameter that no update has moved yet stays where it is
            ahead = weight.detach().clone()
            if gradient is not None and group is not None:
                direction = self._rule.direction(group, self._optimizer.state[parameter], gradient)
                ahead.add_(direction, alpha=-horizon * float(group["lr"]))
            predicted.append(ahead)
        return predicted

    def state(self) -> list[Tensor | None]:
        """Return by parameter what is known of its last update, None if it has had none."""
        return list(self._gradients)

    def load_state(self, state: Sequence[Tensor | None]) -> None:
        """Go on from what `state` gave."""
        self._gradients = list(state)

    def moved(self, optimizer: Optimizer, parameters: Sequence[Tensor]) -> Formula:
        """Return the same for another copy of the stage; the gradient kept is never changed, so both may hold it."""
        other = Formula(optimizer, parameters, self._rule)
        other._gradients = list(self._gradients)
        return other

    def _groups(self) -> list[Group | None]:
        """Return each parameter's group, with the rates of the next update; None if the optimizer does not have it."""
        groups = {id(parameter): group for group in self._optimizer.param_groups for parameter in group["params"]}
        return [groups.get(id(parameter)) for parameter in self._parameters]


class Extrapolation:
    """Predicts that the next updates will be like the last one, whatever the optimizer."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parameters = parameters
        self._previous: list[Tensor] | None = None

    def before_update(self) -> None:
        """Keep the weights as they are."""
        self._previous = [parameter.detach().clone() for parameter in self._parameters]

    def state(self) -> list[Tensor | None]:
        """Return by parameter its weights before the last update, None if there was none."""
        return [None] * len(self._parameters) if self._previous is None else list(self._previous)

    def load_state(self, state: Sequence[Tensor | None]) -> None:
        """Go on from what `state` gave."""
        known = [weights for weights in state if weights is not None]
        self._previous = known if len(known) == len(self._parameters) else None

    def predict(self, weights: Sequence[Tensor], horizon: int) -> list[Tensor]:
        """Return new tensors: w + horizon * (w - previous)."""
        if self._previous is None:
            return [weight.detach().clone() for weight in weights]
        # previous + (1 + s)(w - previous) = w + s (w - previous)
        pairs = zip(weights, self._previous, strict=True)
        return [torch.lerp(previous, weight.detach(), 1.0 + horizon) for weight, previous in pairs]

    def moved(self, optimizer: Optimizer, parameters: Sequence[Tensor]) -> Extrapolation:  # noqa: ARG002 - one signature for all
        """Return the same for another copy of the stage; the weights kept are never changed, so both may hold them."""
        other = Extrapolation(parameters)
        other._previous = self._previous
        return other


def _applied_gradient(group: Group, parameter: Tensor) -> Tensor:
    """Return the gradient with its sign for `maximize` and with L2 weight decay, as torch's SGD and RMSprop use it.

    It is a new tensor: Nesterov's step over all tensors at once (`foreach`) adds the momentum into the gradients in place.
    """
    assert parameter.grad is not None
    gradient = -parameter.grad if group["maximize"] else parameter.grad.clone()
    return gradient.add(parameter.detach(), alpha=group["weight_decay"]) if group["weight_decay"] else gradient


def _rule_of(optimizer: Optimizer, adam: AdamPrediction) -> StepRule | None:
    if type(optimizer) is SGD:
        return StepRule(_sgd, lambda group: not group["momentum"] or group["nesterov"])
    if type(optimizer) is RMSprop:
        return StepRule(_rmsprop, lambda group: not group["momentum"])
    if type(optimizer) in (Adam, AdamW):
        direction = _adam if adam is AdamPrediction.BIAS_CORRECTED else _literal_adam
        return StepRule(direction, lambda _: False)
    return None


def _sgd(group: Group, state: State, gradient: Tensor) -> Tensor:
    if not group["momentum"]:
        return gradient
    buffer: Tensor = state["momentum_buffer"]
    return gradient.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer


def _rmsprop(group: Group, state: State, gradient: Tensor) -> Tensor:
    if group["momentum"]:
        buffer: Tensor = state["momentum_buffer"]
        return buffer
    square: Tensor = state["square_avg"]
    if group["centered"]:
        square = square.addcmul(state["grad_avg"], state["grad_avg"], value=-1)
    root: Tensor = square.sqrt().add_(group["eps"])
    return gradient / root


def _adam(group: Group, state: State, gradient: Tensor) -> Tensor:  # noqa: ARG001 - one signature for all
    return _adam_step(group, state, num_updates=float(state["step"]))


def _literal_adam(group: Group, state: State, gradient: Tensor) -> Tensor:  # noqa: ARG001 - one signature for all
    return _adam_step(group, state, num_updates=1.0)


def _adam_step(group: Group, state: State, *, num_updates: float) -> Tensor:
    # C9, the step of Adam itself; with one update in place of n it is the paper's formula as it is printed
    first_decay, second_decay = (float(beta) for beta in group["betas"])
    second: Tensor = state["max_exp_avg_sq"] if group["amsgrad"] else state["exp_avg_sq"]
    root: Tensor = (second / (1 - second_decay**num_updates)).sqrt_().add_(group["eps"])
    first: Tensor = state["exp_avg"]
    corrected: Tensor = first / (1 - first_decay**num_updates)
    return corrected / root

"""Predictions follow each optimizer's own step."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from executor.model.predictors import AdamPrediction, Extrapolation, Formula, make_predictor

START = [1.0, -2.0, 0.5]
GRADIENTS = [[0.3, -0.1, 0.2], [0.1, 0.4, -0.3], [-0.2, 0.2, 0.5]]

Make = Callable[[list[torch.Tensor]], Optimizer]


def after_updates(make: Make, count: int, adam: str = "bias-corrected") -> tuple[torch.nn.Parameter, Any, list[torch.Tensor]]:
    """Return the weights, their predictor and all versions of the weights after some updates."""
    weight = torch.nn.Parameter(torch.tensor(START, dtype=torch.float64))
    optimizer = make([weight])
    predictor = make_predictor(optimizer, [weight], AdamPrediction(adam))
    versions = [weight.detach().clone()]
    for gradient in GRADIENTS[:count]:
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        predictor.before_update()
        optimizer.step()
        versions.append(weight.detach().clone())
    return weight, predictor, versions


WITHOUT_DECOUPLED_DECAY: dict[str, Make] = {
    "sgd": lambda p: SGD(p, lr=0.1),
    "sgd, weight decay": lambda p: SGD(p, lr=0.1, weight_decay=0.1),
    "sgd, maximize": lambda p: SGD(p, lr=0.1, weight_decay=0.1, maximize=True),
    "momentum": lambda p: SGD(p, lr=0.1, momentum=0.9),
    "momentum, dampening": lambda p: SGD(p, lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.1),
    "nesterov": lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": lambda p: Adam(p, lr=0.1),
    "adam, weight decay": lambda p: Adam(p, lr=0.1, weight_decay=0.1, betas=(0.8, 0.9)),
    "adam, amsgrad": lambda p: Adam(p, lr=0.1, amsgrad=True),
    "adam, amsgrad, below its maximum": lambda p: Adam(p, lr=0.1, amsgrad=True, betas=(0.9, 0.5)),
    "adam, maximize": lambda p: Adam(p, lr=0.1, maximize=True),
    "adamw without decay": lambda p: AdamW(p, lr=0.1, weight_decay=0.0),
    "rmsprop": lambda p: RMSprop(p, lr=0.1),
    "rmsprop, centered": lambda p: RMSprop(p, lr=0.1, centered=True),
    "rmsprop, momentum": lambda p: RMSprop(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "rmsprop, centered, momentum": lambda p: RMSprop(p, lr=0.1, centered=True, momentum=0.9),
    "rmsprop, maximize": lambda p: RMSprop(p, lr=0.1, maximize=True, weight_decay=0.1),
    "rates by group": lambda p: SGD([{"params": p, "lr": 0.3}], lr=0.1, momentum=0.9),
}


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("name", WITHOUT_DECOUPLED_DECAY)
def test_with_a_constant_rate_the_formula_is_linear_extrapolation(name: str, count: int) -> None:
    """C6 of the scalar cases: w + s (w - w_before)."""
    weight, predictor, versions = after_updates(WITHOUT_DECOUPLED_DECAY[name], count)
    expected = versions[-1] + 2 * (versions[-1] - versions[-2])

    assert isinstance(predictor, Formula)
    assert torch.allclose(predictor.predict([weight], 2)[0], expected, rtol=0, atol=1e-12)


def test_the_decoupled_decay_of_adamw_is_left_out() -> None:
    """After one update of gradient g Adam's direction is g/(|g| + eps), so s updates ahead lie w - s lr sign(g)."""
    weight, predictor, versions = after_updates(lambda p: AdamW(p, lr=0.1, weight_decay=0.5), 1)

    expected = versions[-1] - 3 * 0.1 * torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    assert torch.allclose(predictor.predict([weight], 3)[0], expected, rtol=0, atol=1e-7)


def test_amsgrad_divides_by_the_largest_second_moment_so_far() -> None:
    """Gradients 2 and 0, both betas 1/2: m = 1, then 1/2; v = 2, then 1; its maximum stays 2. So d = (1/2 / (1 - 1/4)) /
    sqrt(2 / (1 - 1/4)) = 1/sqrt(6); with v itself it would be 1/sqrt(3)."""
    weight = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = Adam([weight], lr=0.1, betas=(0.5, 0.5), amsgrad=True)
    predictor = make_predictor(optimizer, [weight], AdamPrediction.BIAS_CORRECTED)
    for gradient in (2.0, 0.0):
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        predictor.before_update()
        optimizer.step()

    step = float((weight.detach() - predictor.predict([weight], 1)[0]) / 0.1)
    assert step == pytest.approx(6**-0.5, abs=1e-7)


def test_literal_adam_leaves_the_exponent_of_the_bias_correction_out() -> None:
    """After n updates of one gradient g the moments are (1 - b^n) g and (1 - b2^n) g^2: literal steps are longer by
    ((1 - b1^n)/(1 - b1)) / sqrt((1 - b2^n)/(1 - b2)), 2.06 for n = 10 (PAPERS.md)."""
    weight = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = Adam([weight], lr=0.1)
    literal = make_predictor(optimizer, [weight], AdamPrediction.LITERAL)
    for _ in range(10):
        weight.grad = torch.tensor([0.5], dtype=torch.float64)
        literal.before_update()
        optimizer.step()

    step = float((weight.detach() - literal.predict([weight], 1)[0]) / 0.1)
    assert step == pytest.approx(2.06, abs=0.005)


def test_the_rate_is_that_of_the_next_update() -> None:
    weight, predictor, versions = after_updates(lambda p: SGD(p, lr=0.1), 1)
    predictor._optimizer.param_groups[0]["lr"] = 0.01

    expected = versions[-1] - 2 * 0.01 * torch.tensor(GRADIENTS[0], dtype=torch.float64)
    assert torch.allclose(predictor.predict([weight], 2)[0], expected)


@pytest.mark.parametrize("make", [lambda p: Adam(p, lr=0.1), lambda p: SGD(p, lr=0.1), lambda p: Adagrad(p, lr=0.1)])
def test_before_the_first_update_a_prediction_is_a_copy(make: Make) -> None:
    weight, predictor, _ = after_updates(make, 0)
    (predicted,) = predictor.predict([weight], 3)

    assert torch.equal(predicted, weight)
    assert predicted.data_ptr() != weight.data_ptr()


class OwnStep(SGD):
    """A subclass may step otherwise than torch's class."""

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]  # noqa: ARG002 - torch's signature
        for parameter in self.param_groups[0]["params"]:
            parameter.sub_(torch.sign(parameter.grad))


@pytest.mark.parametrize("make", [lambda p: Adagrad(p, lr=0.1), lambda p: OwnStep(p, lr=0.1)])
def test_any_other_optimizer_is_extrapolated(make: Make) -> None:
    weight, predictor, versions = after_updates(make, 3)

    assert isinstance(predictor, Extrapolation)
    assert torch.allclose(predictor.predict([weight], 2)[0], versions[-1] + 2 * (versions[-1] - versions[-2]), rtol=0, atol=1e-12)


def test_weights_that_the_last_update_left_alone_are_predicted_to_stay() -> None:
    moving, resting = (torch.nn.Parameter(torch.tensor([1.0])) for _ in range(2))
    optimizer = SGD([moving, resting], lr=0.1, momentum=0.9)
    predictor = make_predictor(optimizer, [moving, resting], AdamPrediction.BIAS_CORRECTED)
    moving.grad = torch.tensor([1.0])
    predictor.before_update()
    optimizer.step()

    assert [tensor.item() for tensor in predictor.predict([moving, resting], 1)] == pytest.approx([0.8, 1.0])


def test_weights_that_the_optimizer_was_not_given_are_predicted_to_stay() -> None:
    moving, frozen = (torch.nn.Parameter(torch.tensor([1.0])) for _ in range(2))
    optimizer = SGD([moving], lr=0.1)
    predictor = make_predictor(optimizer, [moving, frozen], AdamPrediction.BIAS_CORRECTED)
    moving.grad, frozen.grad = torch.tensor([1.0]), torch.tensor([1.0])
    predictor.before_update()
    optimizer.step()

    assert [tensor.item() for tensor in predictor.predict([moving, frozen], 1)] == pytest.approx([0.8, 1.0])


def copied(optimizer: Optimizer, weight: torch.nn.Parameter, make: Make) -> tuple[torch.nn.Parameter, Optimizer]:
    """Return another copy of a stage, which has had the same updates."""
    other = torch.nn.Parameter(weight.detach().clone())
    steps = make([other])
    steps.load_state_dict(deepcopy(optimizer.state_dict()))
    return other, steps


@pytest.mark.parametrize(
    "make", [lambda p: SGD(p, lr=0.1), lambda p: Adam(p, lr=0.1), lambda p: RMSprop(p, lr=0.1), lambda p: Adagrad(p, lr=0.1)]
)
def test_another_copy_of_a_stage_predicts_as_the_first_and_goes_on_by_itself(make: Make) -> None:
    """Both have had the same updates; the second has one more then: w + s (w - w_before) of its own."""
    weight = torch.nn.Parameter(torch.tensor(START, dtype=torch.float64))
    optimizer = make([weight])
    predictor = make_predictor(optimizer, [weight], AdamPrediction.BIAS_CORRECTED)
    for gradient in GRADIENTS[:2]:
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        predictor.before_update()
        optimizer.step()
    before = predictor.predict([weight], 2)[0]
    other, steps = copied(optimizer, weight, make)
    moved = predictor.moved(steps, [other])
    assert torch.equal(moved.predict([other], 2)[0], before)
    assert not torch.equal(before, weight)

    start = other.detach().clone()
    other.grad = torch.tensor(GRADIENTS[2], dtype=torch.float64)
    moved.before_update()
    steps.step()
    expected = other.detach() + 2 * (other.detach() - start)
    assert torch.allclose(moved.predict([other], 2)[0], expected, rtol=0, atol=1e-12)
    assert torch.equal(predictor.predict([weight], 2)[0], before)


@pytest.mark.parametrize("make", [lambda p: SGD(p, lr=0.1), lambda p: Adam(p, lr=0.1), lambda p: Adagrad(p, lr=0.1)])
def test_a_predictor_goes_on_from_the_state_of_another(make: Make) -> None:
    weight = torch.nn.Parameter(torch.tensor(START, dtype=torch.float64))
    optimizer = make([weight])
    predictor = make_predictor(optimizer, [weight], AdamPrediction.BIAS_CORRECTED)
    assert predictor.state() == [None]
    weight.grad = torch.tensor(GRADIENTS[0], dtype=torch.float64)
    predictor.before_update()
    optimizer.step()
    other, steps = copied(optimizer, weight, make)
    fresh = make_predictor(steps, [other], AdamPrediction.BIAS_CORRECTED)
    assert torch.equal(fresh.predict([other], 2)[0], other)  # it knows of no update
    fresh.load_state(predictor.state())

    assert torch.equal(fresh.predict([other], 2)[0], predictor.predict([weight], 2)[0])
    fresh.load_state([None])
    assert torch.equal(fresh.predict([other], 2)[0], other)

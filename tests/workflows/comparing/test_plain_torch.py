"""The baseline: the model in one piece, in one thread, in the same rounds."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch

from executor.profiling.plain import PlainTraining
from executor.recipe.ready_made import mlp
from executor.recipe.recipe import Recipe
from schedir.errors import RefusedError
from schedir.schedules.registry import build_program
from schedir.workflows.comparing.compare_training import compare_training, plain_torch
from schedir.workflows.comparing.plain_torch import PlainResult
from schedir.workflows.comparing.training_results import TrainingSetting

QUICK = TrainingSetting(rounds=2, repeats=1, draws=1)


def tiny() -> Recipe:
    return mlp(num_layers=2, width=8, mini_batch_size=6)


def losses_by_hand(steps: int) -> list[float]:
    recipe = tiny()
    (model,) = recipe.cut()
    optimizer = recipe.optimizer(list(model.parameters()))
    losses = []
    for inputs, target in islice(recipe.data(QUICK.seed), steps):
        optimizer.zero_grad()
        loss = recipe.loss(model(inputs), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_it_takes_its_turn_in_every_round_and_trains_as_a_loop_by_hand() -> None:
    heard: list[str] = []
    plain = plain_torch(tiny(), QUICK, 5)
    program = build_program("gpipe", num_devices=2, num_micro_batches=2, num_mini_batches=5)
    (trained,) = compare_training([program], tiny(), QUICK, progress=lambda step: heard.append(step.text), plain=plain)
    found = plain.result()

    assert [text for text in heard if "train" in text] == [
        f"{name}: train 5 mini-batches ({when})"
        for when in ("warm-up", "round 1 of 2", "round 2 of 2")
        for name in ("gpipe", "plain torch")
    ]
    assert found.losses == pytest.approx(losses_by_hand(15), rel=1e-6)
    assert trained.losses == pytest.approx(found.losses, rel=1e-4)  # a flush changes nothing
    assert len(found.steps_s) == 2
    assert min(found.steps_s) > 0
    assert found.mini_batch_size == 6


def test_the_step_is_the_median_of_the_rounds() -> None:
    found = PlainResult((0.4, 0.1, 0.3, 0.2), (1.0,), 6)

    assert found.step_s == 0.25
    assert found.samples_per_s == 24
    assert (found.steps.least, found.steps.most) == (0.1, 0.4)


def test_one_thread_computes_and_the_callers_number_of_threads_is_put_back() -> None:
    inside: list[int] = []
    recipe = tiny()

    def loss(output: Any, target: Any) -> Any:
        inside.append(torch.get_num_threads())
        return recipe.loss(output, target)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        PlainTraining(replace(recipe, loss=loss)).train(list(islice(recipe.data(0), 2)))
        assert (inside, torch.get_num_threads()) == ([1, 1], 2)
    finally:
        torch.set_num_threads(before)


def test_the_recipes_own_model_is_left_as_it_is() -> None:
    recipe = tiny()
    before = [parameter.detach().clone() for parameter in recipe.cut()[0].parameters()]
    PlainTraining(recipe).train(list(islice(recipe.data(0), 2)))

    assert all(torch.equal(*pair) for pair in zip(before, recipe.cut()[0].parameters(), strict=True))


def test_workers_that_are_no_threads_have_no_such_baseline() -> None:
    with pytest.raises(RefusedError, match="plain torch is measured in one thread, but the schedules are trained with cuda"):
        plain_torch(tiny(), replace(QUICK, workers="cuda"), 5)

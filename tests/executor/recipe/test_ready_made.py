from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest
import torch
from torch import Tensor

from executor.recipe.ready_made import character_transformer, conv_net, mlp
from executor.recipe.recipe import Recipe

RECIPES: list[Callable[..., Recipe]] = [character_transformer, mlp, conv_net]


def train_plainly(recipe: Recipe, steps: int) -> list[float]:
    (model,) = recipe.cut()
    optimizer = recipe.optimizer(list(model.parameters()))
    losses = []
    for inputs, target in islice(recipe.data(0), steps):
        optimizer.zero_grad()
        loss = recipe.loss(model(inputs), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("make", RECIPES)
def test_the_same_seed_makes_the_same_model_and_leaves_the_global_generator_alone(make: Callable[..., Recipe]) -> None:
    before = torch.random.get_rng_state()
    one, two, other = (parameters(make(seed=seed)) for seed in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def parameters(recipe: Recipe) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in recipe.cut()[0].parameters()])


@pytest.mark.parametrize("make", RECIPES)
def test_all_parameters_are_float32(make: Callable[..., Recipe]) -> None:
    assert {parameter.dtype for parameter in make().cut()[0].parameters()} == {torch.float32}


@pytest.mark.parametrize("make", RECIPES)
@pytest.mark.parametrize("num_stages", [2, 4])
def test_stages_have_nearly_equal_parameters(make: Callable[..., Recipe], num_stages: int) -> None:
    sizes = [sum(parameter.numel() for parameter in stage.parameters()) for stage in make().cut(num_stages)]
    assert max(sizes) <= 1.1 * min(sizes)


@pytest.mark.parametrize(
    "recipe", [character_transformer(num_blocks=2, width=64), mlp(width=128), conv_net()], ids=lambda it: it.name
)
def test_its_own_loss_falls(recipe: Recipe) -> None:
    losses = train_plainly(recipe, 12)
    assert losses[-1] < 0.9 * losses[0]


def test_the_transformer_does_not_look_ahead() -> None:
    model = character_transformer(width=16, length=8).cut()[0]
    codes = torch.arange(8)[None]
    changed = codes.clone()
    changed[0, 5:] = 0
    with torch.no_grad():
        torch.testing.assert_close(model(codes)[0, :5], model(changed)[0, :5])
        assert not torch.allclose(model(codes)[0, 5], model(changed)[0, 5])


def test_an_untrained_transformer_guesses_about_evenly() -> None:
    recipe = character_transformer(width=32, length=16)
    inputs, target = next(iter(recipe.data(0)))
    (model,) = recipe.cut()
    scores = model(inputs)
    even = torch.log(torch.tensor(float(scores.shape[-1]))).item()
    assert abs(recipe.loss(scores, target).item() - even) < 0.5

"""Which stages are run under a generator of their own, all but those that surely never draw, and from where its numbers are."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from executor.randomness import may_draw, never_draws
from executor.recipe.ready_made import character_transformer, conv_net, mlp
from executor.recipe.recipe import Recipe
from executor.training import train
from tests.executor.small.models import batches, compiled, pipeline_of


class Quiet(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


@never_draws
class Promised(Quiet):
    """Says that it never draws."""


class Child(Promised):
    """Might draw again."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


CASES = [
    (nn.Sequential(nn.Linear(2, 2), nn.ReLU()), False),
    (nn.Dropout(0.5), True),
    (Quiet(), True),
    (Promised(), False),
    (Child(), True),
    (nn.Sequential(Promised(), nn.Dropout(0.5)), True),
]


@pytest.mark.parametrize(("module", "expected"), CASES, ids=lambda value: type(value).__name__)
def test_only_what_is_known_not_to_draw_goes_without_a_generator(module: nn.Module, expected: bool) -> None:
    assert may_draw(module) is expected


def test_a_hook_or_a_forward_of_its_own_takes_the_promise_back() -> None:
    hooked, replaced = Promised(), Promised()
    hooked.register_forward_hook(lambda module, inputs, output: torch.rand_like(output))  # noqa: ARG005 - torch's signature
    replaced.forward = torch.rand_like  # type: ignore[assignment, method-assign]  # as some libraries do

    assert may_draw(hooked)
    assert may_draw(replaced)


def test_losses_of_torch_and_promised_ones_never_draw() -> None:
    promised = never_draws(lambda output, target: (output - target).square().mean())

    assert not may_draw(functional.cross_entropy)
    assert not may_draw(promised)
    assert may_draw(lambda output, target: (output - target).abs().mean())


@pytest.mark.parametrize("recipe", [character_transformer(), mlp(), conv_net()], ids=lambda recipe: recipe.name)
def test_our_models_do_not_pay_for_a_generator(recipe: Recipe) -> None:
    assert recipe.model is not None
    assert not may_draw(recipe.model)
    assert not may_draw(recipe.loss)


@pytest.mark.parametrize("recipe", [character_transformer(), mlp(), conv_net()], ids=lambda recipe: recipe.name)
def test_our_models_keep_the_promise(recipe: Recipe) -> None:
    assert recipe.model is not None
    inputs, target = next(iter(recipe.data(0)))
    before = torch.get_rng_state()
    recipe.loss(recipe.model(inputs), target).backward()

    assert torch.equal(torch.get_rng_state(), before)


class Masks(nn.Module):
    """Drops out, and keeps which."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones((), dtype=torch.float64))
        self.kept: list[tuple[bool, ...]] = []

    def forward(self, x: Tensor) -> Tensor:
        output = functional.dropout(self.weight * torch.ones(64, dtype=torch.float64), 0.5)
        self.kept.append(tuple((output != 0).tolist()))
        return x * output.mean()


def test_every_stage_drops_out_something_else_in_every_micro_batch_of_every_mini_batch() -> None:
    """Two stages, three micro-batches, two mini-batches; of 12 masks of 64 coins no two are alike but once in 10^17."""
    stages = [Masks(), Masks()]
    train(compiled("gpipe", 2, 3, num_mini_batches=2), pipeline_of(stages), batches(2))
    masks = [mask for stage in stages for mask in stage.kept]
    assert len(masks) == 12
    assert len(set(masks)) == 12

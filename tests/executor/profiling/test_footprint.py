from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from executor.boundary import Message
from executor.profiling.footprint import Footprint, LiveBytes, footprints
from executor.profiling.parts import Part, copy_stages, parts_of
from executor.recipe.ready_made import character_transformer, conv_net, mlp
from executor.recipe.recipe import Recipe
from schedir.costs.table.meaning import Granularity

MODELS: list[Recipe] = [
    character_transformer(num_blocks=2, width=16, length=8, mini_batch_size=4),
    mlp(width=16, mini_batch_size=8),
    conv_net(channels=8, size=8, mini_batch_size=4),
]


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters)


def of(module: nn.Module, *shape: int, optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] = sgd) -> Footprint:
    message = Message((torch.ones(shape),), (True,))
    part = Part("0", 0, module, message, ends_stage=True)
    return footprints([part], optimizer)[0]


class Twice(nn.Module):
    """Saves the very same tensor for two operators."""

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = inputs.tanh()
        return hidden.sin() + hidden.view(-1).cos().view_as(hidden)


def test_activations_are_what_the_operators_keep_and_the_input() -> None:
    # Linear keeps its input and weight, Tanh its result: 5 x 6 floats beside an input of 5 x 4.
    assert of(nn.Sequential(nn.Linear(4, 6), nn.Tanh()), 5, 4).activations == 5 * 6 * 4 + 5 * 4 * 4


def test_a_tensor_saved_twice_counts_once() -> None:
    assert of(Twice(), 3, 7).activations == 3 * 7 * 4 + 3 * 7 * 4


def test_parameters_and_buffers_are_no_activations() -> None:
    norm = nn.BatchNorm1d(4).eval()  # keeps input, weight, running mean and variance
    assert of(norm, 5, 4).activations == 5 * 4 * 4


def test_boundary_and_output_are_what_is_handed_on() -> None:
    sent = of(nn.Linear(4, 6), 5, 4)
    assert (sent.boundary, sent.output) == (5 * 4 * 4, 5 * 6 * 4)


def test_weights_gradients_and_optimizer_state() -> None:
    layer = nn.Linear(4, 6)
    layer.bias.requires_grad_(False)
    held = of(layer, 5, 4, optimizer=adam)
    assert held.weights == (4 * 6 + 6) * 4
    assert held.gradients == 4 * 6 * 4
    assert held.optimizer == 2 * 4 * 6 * 4 + 4  # two moments and the count of steps


def test_sgd_without_momentum_has_no_state() -> None:
    assert of(nn.Linear(4, 6), 5, 4).optimizer == 0


def test_a_part_without_parameters_has_neither_gradients_nor_optimizer() -> None:
    held = of(nn.ReLU(), 5, 4, optimizer=adam)
    assert (held.weights, held.gradients, held.optimizer) == (0, 0, 0)


def test_workspace_is_the_rise_above_what_is_kept() -> None:
    # Backward of exp(exp(x)): two gradients of 1000 floats at once beside the two results kept; the gradient of the output
    # is one of three alive at the worst moment: given, of the inner result, of the input.
    class Exponential(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs.exp().exp()

    assert of(Exponential(), 1000).activations == 3 * 4000
    assert 4000 <= of(Exponential(), 1000).workspace <= 3 * 4000


@pytest.mark.parametrize("recipe", MODELS, ids=lambda recipe: recipe.name)
def test_the_layers_of_a_stage_add_up_to_the_stage(recipe: Recipe) -> None:
    stages = copy_stages(recipe.cut(2))
    micro_batch = next(iter(recipe.data(0)))

    def kept(by: Granularity) -> list[int]:
        parts = parts_of(stages, micro_batch, loss=recipe.loss, by=by)
        held = footprints(parts, recipe.optimizer)
        return [sum(one.activations for one, part in zip(held, parts, strict=True) if part.stage == stage) for stage in (0, 1)]

    assert kept(Granularity.LAYER) == kept(Granularity.STAGE)


@pytest.mark.parametrize("recipe", MODELS, ids=lambda recipe: recipe.name)
def test_hooks_count_what_stays_alive(recipe: Recipe) -> None:
    """The two ways to count agree: what is saved is what is alive behind the forward, with only its graph held."""
    stages = copy_stages(recipe.cut(2))
    for part in parts_of(stages, next(iter(recipe.data(0))), loss=recipe.loss, by=Granularity.STAGE):
        inputs = part.message.with_gradients()
        live = LiveBytes()
        with live:
            root = part.roots(part.output(inputs))[0].sum()  # its graph holds no output
        alive = live.now - root.nbytes
        assert (
            footprints([part], recipe.optimizer)[0].activations - part.message.tensors[0].nbytes - _target_bytes(recipe, part)
            == alive
        )


def _target_bytes(recipe: Recipe, part: Part) -> int:
    """Return what the last part keeps too and no operator made."""
    return next(iter(recipe.data(0)))[1].nbytes if part.finish is not None else 0


def test_live_bytes_fall_when_tensors_go_and_views_do_not_count() -> None:
    live = LiveBytes()
    with live:
        first = torch.zeros(100)
        second = first + 1
        view = second[:50]
        assert live.now == 800
        del second
        assert live.now == 800
        del view
        assert live.now == 400
        functional.relu_(first)
        assert (live.now, live.peak) == (400, 800)


@pytest.mark.parametrize(
    ("optimizer", "state"),
    [(sgd, 0), (torch.optim.SparseAdam, 2 * 100 * 4 * 4)],
    ids=["SGD", "SparseAdam"],
)
def test_sparse_gradients_are_counted_by_what_they_are_made_of(
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer], state: int
) -> None:
    """SparseAdam keeps two moments of the 100 x 4 weights."""
    module = nn.Embedding(100, 4, sparse=True)
    part = Part("0", 0, module, Message((torch.arange(5),), (False,)), ends_stage=True)
    found = footprints([part], optimizer)[0]

    assert (found.weights, found.optimizer, found.output) == (100 * 4 * 4, state, 5 * 4 * 4)

"""Layers with skip connections are balanced and cut like others; the stages compute what the layers do."""

import pytest
import torch
from torch import Tensor, nn

from executor.model.cutting.split import split
from executor.model.skips import Skip
from executor.model.stages import Stages
from executor.training import train
from schedir.errors import ArgumentError
from tests.executor.small.models import batches
from tests.executor.small.skipping import Layer, Whole, compiled_with, pipeline_with, train_whole, unet


def skipping(num_layers: int) -> Stages:
    """Layer 0 gives something to the last, 1 to 3 and 4; layer 2 gives two things to the last but one."""
    torch.manual_seed(2)
    skips = [Skip(0, num_layers - 1), Skip(1, 3), Skip(1, 4, 2), Skip(2, num_layers - 2, (1, 2))]
    num_inputs = [1 + sum(len(skip.places) for skip in skips if skip.target == layer) for layer in range(num_layers)]
    extra = {0: 1, 1: 2, 2: 2}
    layers = [Layer(inputs, extra.get(number, 0)) for number, inputs in enumerate(num_inputs)]
    return Stages([layer.double() for layer in layers], skips=skips)


@pytest.mark.parametrize("num_stages", [1, 2, 3, 4, 7])
def test_stages_of_layers_with_skips_compute_and_train_what_the_layers_do(num_stages: int) -> None:
    cut = split(skipping(7), num_stages, balance="layers")
    x = batches(1)[0][0]
    assert torch.equal(Whole(cut)(x), Whole(skipping(7))(x))

    made = pipeline_with(cut)
    run = train(compiled_with(made, "1f1b", (num_stages, 4)), made, batches(3), workers="threads", timeout=60)
    losses, weights = train_whole(skipping(7), batches(3))
    assert run.losses == pytest.approx(losses, abs=1e-10)
    assert run.state_dict().keys() == weights.keys()
    assert max(float((run.state_dict()[key] - value).abs().max()) for key, value in weights.items()) < 1e-10


def test_what_ends_in_the_next_stage_needs_no_skip_connection() -> None:
    """Stages 0 | 1 2 | 3 4 | 5 6: layer 0 skips to 6 and layer 2 to 5; from 1 to 3 and 4 it is the next stage."""
    assert split(skipping(7), 2, balance="layers").skips == ()
    assert [(skip.source, skip.target) for skip in split(skipping(7), 4, balance="layers").skips] == [(0, 3), (1, 3)]


@pytest.mark.parametrize("balance", ["parameters", "layers", "time"])
def test_every_balance_takes_layers_with_skips(balance: str) -> None:
    """Measuring runs them one by one, each with what comes to it over skip connections (torchgpipe raised KeyError)."""
    cut = split(skipping(7), 3, balance=balance, example=batches(1)[0][0])

    assert len(cut) == 3
    assert torch.equal(Whole(cut)(batches(1)[0][0]), Whole(skipping(7))(batches(1)[0][0]))


def test_a_layer_that_returns_a_tuple_to_the_next_one_keeps_it_whole_beside_what_skips() -> None:
    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
            return (x, 2 * x), 3 * x

    class Plus(nn.Module):
        def forward(self, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return pair[0] + 1, pair[1]

    class Last(nn.Module):
        def forward(self, first: Tensor, second: Tensor, third: Tensor) -> Tensor:
            return first + second + third

    [stage] = split(Stages([Pair(), Plus(), Last()], skips=[Skip(0, 2)]), 1, balance="layers")
    assert torch.equal(stage(torch.ones(2, 2)), torch.full((2, 2), 2.0 + 2 + 3))


def test_stages_that_are_cut_already_are_refused() -> None:
    cut = split(skipping(7), 4, balance="layers")
    with pytest.raises(ArgumentError, match=r"^the stages are cut already: give the model, or the list of its layers"):
        split(cut, 2)


def test_a_unet_of_layers_is_cut_in_two() -> None:
    cut = split(unet(6), 2, balance="layers")

    assert cut.skips == ()
    assert torch.equal(Whole(cut)(batches(1)[0][0]), Whole(unet(6))(batches(1)[0][0]))

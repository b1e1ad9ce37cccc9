"""The parts that profiling times, where stages have more than the chain between them."""

import pytest
import torch
from torch import Tensor, nn

from executor.model.skips import Skip
from executor.model.stages import Stages
from executor.profiling.options import ProfileOptions
from executor.profiling.parts import copy_stages, part_stages, parts_of
from executor.profiling.profiling import profile
from executor.recipe.recipe import Recipe
from schedir.costs.table.meaning import Granularity
from schedir.errors import RefusedError
from tests.executor.small.models import batches, sgd
from tests.executor.small.skipping import Layer, unet
from tests.executor.small.tied import adam, gpt, loss, texts


class OfBoth(Layer):
    """Takes a tuple, as nn.Sequential passes it on."""

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, pair: tuple[Tensor, Tensor]) -> Tensor:  # type: ignore[override]  # of one argument
        output = super().forward(*pair)
        assert isinstance(output, Tensor)
        return output


def layered() -> Stages:
    """Return three stages of two layers each; the second layer of stage 0 gives something to the first one of stage 2."""
    torch.manual_seed(0)
    stages = [nn.Sequential(Layer(), Layer(1, 1)), nn.Sequential(Layer(), Layer()), nn.Sequential(OfBoth(), Layer())]
    return Stages([stage.double() for stage in stages], skips=[Skip(0, 2)])


def test_a_part_gets_what_comes_over_skips_behind_what_the_part_before_gives() -> None:
    parts = parts_of(layered(), batches(1)[0], loss=nn.functional.mse_loss, by=Granularity.STAGE)

    assert [len(part.message.tensors) for part in parts] == [1, 1, 2]


def test_skips_lead_from_a_stages_last_layer_to_the_first_of_another() -> None:
    stages = copy_stages(layered())
    assert isinstance(stages, Stages)
    parts = parts_of(stages, batches(1)[0], loss=nn.functional.mse_loss, by=Granularity.LAYER)

    assert [len(part.message.tensors) for part in parts] == [1, 1, 1, 1, 2, 1]
    assert part_stages(parts, stages.skips).skips == (Skip(1, 4),)


def recipe_of(stages: Stages) -> Recipe:
    return Recipe(stages=stages, loss=nn.functional.mse_loss, optimizer=sgd, data=lambda _: iter(batches(30)))


def test_models_with_skips_are_profiled_by_stage_and_by_layer() -> None:
    for stages, by, rows in ((unet(3), Granularity.STAGE, 3), (layered(), Granularity.LAYER, 6)):
        costs = profile(recipe_of(stages), ProfileOptions(by=by, repeats=2, num_micro_batches=2, micro_batch_size=4))
        assert len(costs.rows) == rows


def test_a_tied_model_is_profiled() -> None:
    recipe = Recipe(stages=gpt(3), loss=loss, optimizer=adam, data=lambda _: iter(texts(30)))
    costs = profile(recipe, ProfileOptions(repeats=2, num_micro_batches=2, micro_batch_size=4))

    assert len(costs.rows) == 3


class Keeping(nn.Linear):
    """Keeps a tensor that it computed, as nn.utils.weight_norm of old lets a module do."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.computed = 2 * self.weight


def test_stages_that_keep_what_they_computed_cannot_be_copied_and_the_way_out_is_told() -> None:
    message = (
        r"^the stages cannot be copied to be profiled .*: let modules keep no tensors .* nn\.utils\.parametrizations\.weight_norm"
    )
    with pytest.raises(RefusedError, match=message):
        copy_stages([Keeping()])

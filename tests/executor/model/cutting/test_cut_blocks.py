"""Any model that runs a list of blocks one behind the other can be cut between them; the stages are proved on an example."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from executor.model.cutting.cut_blocks import BlockCutter
from executor.model.cutting.split import split
from executor.training import train
from schedir.errors import RefusedError
from tests.executor.small.models import batches, compiled, pipeline_of, reference

WIDTH = 4


def layer() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


class Stack(nn.Module):
    """Embeds, runs its blocks, and has a head; what its forward does else is a subclass's matter."""

    def __init__(self, num_blocks: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = layer(), nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(layer() for _ in range(num_blocks))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        hidden = 2 * self.embed(x)
        if bool(hidden.isnan().any()):  # which nothing that follows forwards symbolically can decide
            raise ValueError("NaN")
        for block in self.blocks:
            hidden = block(hidden)
        result: Tensor = self.head(hidden)
        return result


class Tuples(Stack):
    """Blocks take the hidden state by name and give a tuple."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embed(x)
        for number, block in enumerate(self.blocks):
            hidden, extra = block(number=number, hidden=hidden)
            assert extra is None or extra == number
        result: Tensor = self.head(hidden)
        return result


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = layer().double()

    def forward(self, number: int, hidden: Tensor) -> tuple[Tensor, int]:
        assert number >= 0
        return self.layer(hidden), number


def tuples() -> Tuples:
    model = Tuples()
    model.blocks = nn.ModuleList(Named() for _ in range(3))
    return model


class Skips(Stack):
    """Adds the input at the end: every stage needs it, not only its shape."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x


class Drops(Stack):
    """Draws, before and behind the blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.drop(self.embed(x))
        for block in self.blocks:
            hidden = block(hidden)
        output: Tensor = self.drop(self.head(hidden))
        return output


GOOD: dict[str, Callable[[], nn.Module]] = {"plain": Stack, "tuples": tuples, "skips": Skips}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_stages_train_as_the_whole_model(name: str, schedule: str) -> None:
    data = batches(3)
    losses, gradients = reference([GOOD[name]()], data)
    run = train(compiled(schedule, 3, 2), pipeline_of(split(GOOD[name](), 3, example=data[0][0])), data, timeout=60)

    assert run.losses == pytest.approx(losses, abs=1e-12)
    for key, gradient in gradients.items():
        assert torch.allclose(run.gradients[key.removeprefix("0.")], gradient, rtol=0, atol=1e-12), key


def test_the_input_is_sent_on_only_where_a_later_stage_needs_it() -> None:
    x = batches(1)[0][0]
    plain, skips = (split(model, 2, example=x)[0](x) for model in (Stack(), Skips()))

    assert [part for part in plain[1] if isinstance(part, Tensor)] == []
    assert torch.equal(skips[1][0], x)


def test_a_module_that_is_called_on_both_sides_and_has_no_weights_is_in_every_stage() -> None:
    stages = split(Drops(), 2, example=batches(1)[0][0])

    assert all(hasattr(stage, "drop") for stage in stages)
    assert stages[0].drop is not stages[1].drop


def test_modes_are_those_of_the_stage() -> None:
    model = Stack()
    stages = split(model, 2, example=batches(1)[0][0])

    assert all(module.training for stage in stages for module in stage.modules())
    stages[1].eval()
    assert not model.head.training
    assert model.embed.training


def test_a_place_to_cut_may_be_named_where_forward_cannot_be_followed() -> None:
    x = batches(1)[0][0]
    stages = split(Stack(), at=["blocks.1"], example=x)

    assert ["blocks.0.0.weight" in stage.state_dict() for stage in stages] == [True, False]
    with pytest.raises(RefusedError, match="forward of Stack cannot be followed"):
        split(Stack(), at=["blocks.1"])


class Residual(Stack):
    """Every block gets the embedded input too."""

    def forward(self, x: Tensor) -> Tensor:
        first = hidden = self.embed(x)
        for block in self.blocks:
            hidden = block(hidden) + first
        result: Tensor = self.head(hidden)
        return result


class Twice(Stack):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embed(x)
        for block in self.blocks:
            hidden = block(block(hidden))
        output: Tensor = hidden
        return output


class Own(Stack):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))


class Shared(Stack):
    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(super().forward(self.head(x)))
        return result


class Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = layer().double()

    def forward(self, x: Tensor) -> Any:
        return self.layer(x)


REFUSED: dict[type[nn.Module], str] = {
    Residual: "do not take what the block before gives",
    Twice: r"does not call blocks.0..blocks.2 once each",
    Own: "Own has parameters of its own beside the blocks",
    Shared: "head of Shared is called before and behind the blocks",
    Flat: "Flat holds no nn.ModuleList of blocks",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_cut_so_is_refused_with_the_reason(kind: type[nn.Module]) -> None:
    with pytest.raises(RefusedError, match=f"{REFUSED[kind]}.*: give its stages as a list of modules"):
        BlockCutter(kind(), batches(1)[0][0])


class Constant(Stack):
    """Every block gets a part of the embedded input, which is no stage's output."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embed(x)
        first = hidden.mean()
        for block in self.blocks:
            hidden = block(hidden, first)
        result: Tensor = self.head(hidden)
        return result


class Takes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = layer().double()

    def forward(self, hidden: Tensor, first: Tensor) -> Tensor:
        output: Tensor = self.layer(hidden) + first
        return output


def test_stages_that_would_give_something_else_are_refused() -> None:
    model = Constant()
    model.blocks = nn.ModuleList(Takes() for _ in range(3))
    with pytest.raises(RefusedError, match="Constant hands more from block to block than the hidden state"):
        split(model, 2, example=batches(1)[0][0])


class LayerDrop(Stack):
    """Leaves every block but the first out in training."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embed(x)
        for number, block in enumerate(self.blocks):
            if not (self.training and number):
                hidden = block(hidden)
        result: Tensor = self.head(hidden)
        return result


def test_a_forward_that_leaves_blocks_out_in_training_is_refused_there() -> None:
    stages = split(LayerDrop(), 2, example=batches(1)[0][0])
    with pytest.raises(RefusedError, match=r"forward of LayerDrop passes over blocks.[12], where the stage ends: switch off"):
        train(compiled("1f1b", 2, 2), pipeline_of(stages), batches(1), timeout=60)

"""Models cut into stages: the same function, the same names, the same gradients."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import schedir
from executor.model.cutting.split import split
from executor.model.pipeline import Pipeline
from executor.model.stages import Stages
from executor.trainer.trainer import Trainer
from executor.training import train
from schedir.errors import ArgumentError, RefusedError, SchedirError
from tests.executor.small import structured
from tests.executor.small.models import WIDTH, batches, compiled, sgd


class Net(nn.Module):
    """An embedding with a parameter of forward's own, layers, and a skip from the embedding to the head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.place = nn.Parameter(torch.randn(WIDTH))
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        start = self.embed(x) + self.place
        hidden = start
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden))
        if mask is not None:
            hidden = hidden * mask
        output: Tensor = self.head(hidden + start)
        return output


def layers(*widths: int) -> nn.Sequential:
    """Linear layers without bias of 1 x width: as many parameters as the width says."""
    return nn.Sequential(*(nn.Linear(1, width, bias=False) for width in widths))


def run(stages: Sequence[nn.Module], *inputs: Any) -> Any:
    value: Any = inputs if len(inputs) > 1 else inputs[0]
    for stage in stages:
        value = stage(*value) if isinstance(value, tuple) else stage(value)
    return value


def keys(stages: Stages) -> list[str]:
    return [prefix + key for prefix, stage in zip(stages.prefixes, stages, strict=True) for key in stage.state_dict()]


def test_an_nn_sequential_is_cut_by_parameters_or_layers() -> None:
    def sizes(stages: Stages) -> list[list[int]]:
        return [[layer.out_features for layer in stage.children() if isinstance(layer, nn.Linear)] for stage in stages]

    model = layers(1, 1, 1, 9, 1, 1)
    assert sizes(split(model, 2)) == [[1, 1, 1], [9, 1, 1]]
    assert sizes(split(model, 3, balance="layers")) == [[1, 1], [1, 9], [1, 1]]
    assert sizes(split(layers(2, 2, 4), 2)) == [[2, 2], [4]]


def test_layers_that_take_longer_have_a_stage_of_their_own() -> None:
    class Slow(nn.Module):
        def __init__(self, rounds: int) -> None:
            super().__init__()
            self.linear, self.rounds = nn.Linear(64, 64), rounds

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(self.rounds):
                x = self.linear(x)
            return x

    model = nn.Sequential(Slow(1), Slow(1), Slow(200), Slow(1))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state = torch.get_rng_state()
    stages = split(model, 3, balance="time", example=torch.randn(256, 64, generator=torch.Generator().manual_seed(0)))
    assert [len(stage) for stage in stages] == [2, 1, 1]  # type: ignore[arg-type]  # Sequentials
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_time_is_measured_through_tuples_integers_and_layers_without_gradients() -> None:
    class Pair(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return x * 2.0, y

    class Join(nn.Module):
        def forward(self, both: tuple[Tensor, Tensor]) -> Tensor:
            return both[0] + both[1]

    stages = split([Pair(), Join(), nn.Identity()], 2, balance="time", example=(torch.ones(2), torch.ones(2, dtype=torch.int64)))
    assert len(stages) == 2
    assert len(split(nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 3)), 2, balance="time", example=torch.tensor([1, 2]))) == 2


def test_parameters_keep_the_names_that_they_have_in_the_model() -> None:
    model = layers(1, 1, 1, 1)
    assert keys(split(model, 3)) == list(model.state_dict())
    assert sorted(keys(split(Net(), at=["layers.2", "head"]))) == sorted(Net().state_dict())
    linears = [nn.Linear(1, 1) for _ in range(3)]
    assert keys(split(linears, 2, balance="layers")) == ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"]
    pipeline = Pipeline(split(Net(), at=["layers.2"]), loss=nn.functional.mse_loss, optimizer=sgd)
    assert pipeline.state_dict().keys() == Net().state_dict().keys()


def test_an_nn_sequential_is_cut_at_its_children_without_following_it() -> None:
    class Branches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if bool(x.sum() > 0) else -x

    model = nn.Sequential(Branches(), nn.Linear(2, 2), nn.ReLU())
    assert [list(stage.state_dict()) for stage in split(model, at=["1"])] == [[], ["1.weight", "1.bias"]]


def test_any_model_is_cut_where_a_module_is_called() -> None:
    x = torch.randn(8, WIDTH)
    for at in (["layers.0"], ["layers.2", "layers.4"], ["layers.1", "layers.2", "head"]):
        stages = split(Net(), at=at)
        assert len(stages) == len(at) + 1
        assert torch.equal(run(stages, x), Net()(x))


def test_an_argument_with_a_default_is_an_input_if_the_example_has_it() -> None:
    x, mask = torch.randn(8, WIDTH), torch.rand(8, WIDTH)
    stages = split(Net(), at=["layers.2"], example=(x, mask))
    assert torch.equal(run(stages, x, mask), Net()(x, mask))


def test_a_cut_inside_a_module_inside_a_module() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.Tanh()))
    stages = split(model, at=["1.1"])
    x = torch.randn(3, WIDTH)
    assert torch.equal(run(stages, x), model(x))
    assert keys(stages) == list(model.state_dict())


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
def test_d28_a_skip_over_a_cut_goes_through_the_stages_between_and_trains_right(schedule: str) -> None:
    """Layers 0..7, with a skip from layer 1 to layer 6 over both cuts, p = 3."""

    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(8))

        def forward(self, x: Tensor) -> Tensor:
            skipped = x
            for number, layer in enumerate(self.layers):
                x = torch.tanh(layer(x + skipped if number == 6 else x))
                skipped = x if number == 1 else skipped
            return x

    data = batches(4)
    whole = Skips().double()
    optimizer = sgd(list(whole.parameters()))
    losses = []
    for inputs, target in data:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(whole(inputs), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    stages = split(Skips().double(), at=["layers.3", "layers.5"])
    with Trainer(stages, schedule=schedule, num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd, timeout=60) as made:
        assert [made.step(*mini_batch).loss for mini_batch in data] == pytest.approx(losses, abs=1e-12)
        weights = made.state_dict()
    assert all(torch.allclose(weights[key], value, rtol=0, atol=1e-12) for key, value in whole.state_dict().items())


def test_d10_a_mask_and_a_tensor_without_gradient_go_over_a_cut() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.register_buffer("table", torch.arange(WIDTH).double())

        def forward(self, x: Tensor) -> Tensor:
            mask = (x > 0).long()
            hidden = self.first(x)
            output: Tensor = self.second(hidden * mask + self.table)
            return output

    model = Masked().double()
    stages = split(model, at=["second"])
    x = batches(1)[0][0]
    assert torch.equal(run(stages, x), model(x))
    with Trainer(stages, schedule="1f1b", num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd, timeout=60) as made:
        expected = nn.functional.mse_loss(model(x), x).item()
        assert made.step(x, x).loss == pytest.approx(expected, abs=1e-12)


class Drops(nn.Module):
    """Dropout by a function: a trace of it would drop in evaluation too."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.b(nn.functional.dropout(self.a(x), training=self.training))
        return output


class Decides(Drops):
    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.b(x) if x.sum() > 0 else self.a(x)
        return output


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((Net(), 2), RefusedError, r'Net is neither nn.Sequential nor a list of stages: give at=\["layers.3"\] .modules where'),
        ((Net(),), ArgumentError, "split needs to know where to cut: give num_stages, or at="),
        ((layers(1, 1), 3), ArgumentError, r"a model of 2 layers does not cut into 3 stages: ask for 1\.\.2"),
        ((layers(1, 1), 0.5), ArgumentError, "num_stages 0.5 must be an integer of at least 1"),
        ((3, 2), ArgumentError, "model 3 is of type int, not Module or list or tuple"),
        (([nn.ReLU(), 3], 2), ArgumentError, "the list holds an int: give nn.Modules only"),
    ],
)
def test_what_cannot_be_cut_is_said_in_one_line(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        split(*arguments)


@pytest.mark.parametrize(
    ("model", "at", "message"),
    [
        (Net(), ["layers.9"], "at 'layers.9' is no module of Net: its children are embed, layers, head"),
        (Net(), ["layers.4", "layers.2"], "Net does not call layers.2 behind layers.4: name modules in the order"),
        (Net(), ["embed"], "Net calls nothing before embed, so the first stage would be empty"),
        (Net(), [], r"at \[\] names no modules: give a list of names"),
        (layers(1, 1), ["0"], r"at \['0'\] leaves a stage empty or is out of order"),
        (layers(1, 1, 1), ["2", "1"], r"at \['2', '1'\] leaves a stage empty or is out of order"),
        ([nn.ReLU()], ["0"], "at names modules of one model, but a list of stages is given"),
        (Drops(), ["b"], "forward of Drops does something else in training than in evaluation"),
        (Decides(), ["b"], "forward of Decides cannot be followed .*: give its stages as a list of modules instead"),
    ],
)
def test_names_that_do_not_cut_are_said_in_one_line(model: Any, at: list[str], message: str) -> None:
    with pytest.raises(SchedirError, match=message) as caught:
        split(model, at=at)
    assert "\n" not in str(caught.value)


def test_other_arguments_that_do_not_fit() -> None:
    with pytest.raises(ArgumentError, match="balance 'bytes' is unknown: use parameters, layers, time"):
        split(layers(1, 1), 2, balance="bytes")
    with pytest.raises(ArgumentError, match='balance "time" runs the layers: give example=, an input of the model'):
        split(layers(1, 1), 2, balance="time")
    with pytest.raises(ArgumentError, match=r"at \['head'\] makes 2 stages, but num_stages is 3: leave one of them out"):
        split(Net(), 3, at=["head"])


def test_split_is_public() -> None:
    assert schedir.split is split


def test_layers_of_a_list_take_what_stages_take_wherever_it_is_cut() -> None:
    """A dict by its keys, a dataclass, a tuple by its places."""
    losses, _ = structured.reference(2)
    for num_stages in (1, 2, 3, 4):
        pipeline = Pipeline(split(structured.stages(), num_stages), loss=structured.loss, optimizer=structured.sgd)
        run = train(compiled("1f1b", num_stages, 2), pipeline, structured.data(2), timeout=60)
        assert run.losses == pytest.approx(losses, abs=1e-12)

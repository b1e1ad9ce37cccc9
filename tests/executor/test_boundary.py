"""What may go from stage to stage."""

import pytest
import torch
from torch import Tensor, nn

from executor.boundary import Arguments, describe, takes_several
from executor.model.pipeline import Pipeline
from executor.trainer.trainer import Trainer
from executor.training import train
from tests.executor.small import structured
from tests.executor.small.models import batches, compiled, mlp, pipeline_of, reference


class Splits(nn.Module):
    """Gives a hidden state, a mask of integers and a table that needs no gradient (D10)."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.linear(x), (x > 0).long(), torch.full_like(x, 0.5)


class Passes(nn.Module):
    """Takes the three as arguments and hands them on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, hidden: Tensor, mask: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        assert mask.dtype is torch.int64
        assert not table.requires_grad
        return torch.tanh(self.linear(hidden)) * mask, mask, table


class Joins(nn.Module):
    """Takes the three as one tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, values: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        hidden, mask, table = values
        output: Tensor = self.linear(hidden) + mask * table
        return output


def several() -> list[nn.Module]:
    torch.manual_seed(0)
    return [stage.double() for stage in (Splits(), Passes(), Joins())]


class Chain(nn.Module):
    """The same three as one model."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = several()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.third(self.second(*self.first(x)))
        return result


@pytest.mark.parametrize("recompute", ["never", "always"])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_d10_tuples_with_integers_and_tensors_without_gradient_pass(schedule: str, recompute: str) -> None:
    losses, gradients = reference([Chain()], batches(3))
    run = train(compiled(schedule, 3, 4, recompute=recompute), pipeline_of(several()), batches(3), timeout=60)

    assert run.losses == pytest.approx(losses, abs=1e-12)
    names = {"0.first": "0", "0.second": "1", "0.third": "2"}
    for key, gradient in gradients.items():
        stage, _, rest = key.rpartition(".linear.")
        assert torch.allclose(run.gradients[f"{names[stage]}.linear.{rest}"], gradient, rtol=0, atol=1e-12)


def test_tuples_pass_where_backward_reads_other_weights() -> None:
    run = train(compiled("xpipe", 3, 2, num_mini_batches=5), pipeline_of(several()), batches(5), timeout=60)

    assert len(run.losses) == 5


def test_a_stage_may_ignore_part_of_its_input() -> None:
    class Ignores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, hidden: Tensor, mask: Tensor, table: Tensor) -> Tensor:  # noqa: ARG002 - what this test is about
            output: Tensor = self.linear(table)
            return output

    stages = [Splits().double(), Ignores().double()]
    run = train(compiled("1f1b", 2, 2), pipeline_of(stages), batches(2), timeout=60)

    assert set(run.gradients) == {"1.linear.weight", "1.linear.bias"}


def test_a_model_may_take_several_inputs() -> None:
    class Adds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            output: Tensor = self.linear(x) + y
            return output

    data = [((inputs, inputs), target) for inputs, target in batches(2)]
    run = train(compiled("gpipe", 2, 2), pipeline_of([Adds().double(), *mlp(1)]), data, timeout=60)

    assert len(run.losses) == 2


@pytest.mark.parametrize("recompute", ["never", "always"])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_first_layer_may_work_in_place(schedule: str, recompute: str) -> None:
    """As nn.ReLU(inplace=True) does where a network is cut before it."""

    def stages() -> list[nn.Module]:
        torch.manual_seed(0)
        return [nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4)).double() for _ in range(3)]

    data = batches(3)
    losses, gradients = reference(stages(), [(inputs.clone(), target) for inputs, target in data])
    run = train(compiled(schedule, 3, 2, recompute=recompute), pipeline_of(stages()), data, timeout=60)

    assert run.losses == pytest.approx(losses, abs=1e-12)
    assert all(torch.allclose(run.gradients[key], gradients[key], rtol=0, atol=1e-12) for key in gradients)
    assert all(torch.equal(inputs, untouched) for (inputs, _), (untouched, _) in zip(data, batches(3), strict=True))


def test_arguments_are_counted_by_the_signature_of_forward() -> None:
    assert not takes_several(nn.Sequential())
    assert not takes_several(nn.Linear(1, 1))
    assert takes_several(nn.Bilinear(1, 1, 1))


def test_tensors_are_described_by_kind_and_shape() -> None:
    assert describe([torch.zeros(4, 16), torch.zeros(2, dtype=torch.int64)]) == "float32 [4, 16], int64 [2]"


SYNCHRONOUS = [("gpipe", "never"), ("1f1b", "always"), ("1f1b", "except-last"), ("zb-h1", "never"), ("zb-h1", "always")]


@pytest.mark.parametrize(("schedule", "recompute"), SYNCHRONOUS)
def test_any_value_passes_with_the_gradients_of_the_whole_model(schedule: str, recompute: str) -> None:
    losses, gradients = structured.reference(3)
    run = train(compiled(schedule, 4, 3, recompute=recompute), structured.pipeline(), structured.data(3), timeout=60)

    assert run.losses == pytest.approx(losses, abs=1e-12)
    assert run.gradients.keys() == gradients.keys()
    for key, gradient in gradients.items():
        assert torch.allclose(run.gradients[key], gradient, rtol=0, atol=1e-12), key


@pytest.mark.parametrize(("schedule", "recompute"), [("pipedream", "never"), ("xpipe", "never"), ("xpipe", "always")])
def test_any_value_passes_without_a_flush(schedule: str, recompute: str) -> None:
    """With a rate of 0 all versions are one, so losses are those of the whole model that never learns."""

    def stuck(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.0)

    data, model = structured.data(9), structured.stages()
    expected = [structured.loss(structured.whole(model, inputs), target).item() for inputs, target in data]
    graph = compiled(schedule, 4, 2, num_mini_batches=9, recompute=recompute)
    pipeline = Pipeline(structured.stages(), loss=structured.loss, optimizer=stuck)

    assert train(graph, pipeline, data, timeout=60).losses == pytest.approx(expected, abs=1e-12)


def test_a_trainer_takes_dicts_and_evaluates_them() -> None:
    losses, _ = structured.reference(3)
    with Trainer(
        structured.stages(), schedule="1f1b", num_micro_batches=2, loss=structured.loss, optimizer=structured.sgd, workers="threads"
    ) as trainer:
        before = trainer.evaluate(structured.data(1))
        found = [trainer.step(*pair).loss for pair in structured.data(3)]

    assert before["loss"] == pytest.approx(losses[0], abs=1e-12)
    assert found == pytest.approx(losses, abs=1e-12)


class Several(nn.Module):
    def forward(self, a: object, b: object = None) -> object:
        return a, b


class Anything(nn.Module):
    def forward(self, *values: object, **named: object) -> object:
        return values, named


class Whole(nn.Module):
    def forward(self, batch: object, scale: float = 1.0) -> object:
        return batch, scale


@pytest.mark.parametrize(
    ("module", "value", "taken"),
    [
        (Several(), (1, 2), (1, 2)),
        (Several(), [1, 2], (1, 2)),
        (Several(), {"b": 2, "a": 1}, (1, 2)),
        (Several(), {"b": 2}, ({"b": 2}, None)),
        (Several(), {"a": 1, "c": 3}, ({"a": 1, "c": 3}, None)),
        (Several(), {1: 2}, ({1: 2}, None)),
        (Anything(), (1, 2), ((1, 2), {})),
        (Anything(), {"x": 1}, ((), {"x": 1})),
        (Anything(), {1: 2}, (({1: 2},), {})),
        (Whole(), {"input_ids": 1}, ({"input_ids": 1}, 1.0)),
        (nn.Identity(), {"input": 1}, {"input": 1}),
        (nn.Identity(), (1, 2), (1, 2)),
    ],
    ids=str,
)
def test_a_tuple_is_spread_by_place_and_a_dict_by_name_where_forward_takes_several(
    module: nn.Module, value: object, taken: object
) -> None:
    assert Arguments.of(module).call(module, value) == taken

"""Evaluation before, between and after training, without a trace in it."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import chain

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from executor.trainer.trainer import Trainer
from schedir.errors import ArgumentError, RefusedError
from tests.executor.small.models import WIDTH, batches, mlp, sgd

SCHEDULES = ("1f1b", "pipedream", "xpipe", "chimera")


def draws(num_stages: int = 2) -> list[nn.Module]:
    """Stages with dropout and batch norm: training and evaluation differ, and evaluation must leave both alone."""
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Dropout(0.5)).double() for _ in range(num_stages)]


def trainer(stages: list[nn.Module], schedule: str, **options: object) -> Trainer:
    given = {"num_micro_batches": 2, "loss": nn.functional.mse_loss, "optimizer": sgd, "timeout": 60.0}
    return Trainer(stages, schedule=schedule, **(given | options))  # type: ignore[arg-type]  # options of any type


def plain_loss(weights: dict[str, Tensor], data: list[tuple[Tensor, Tensor]]) -> float:
    """Return what the unpartitioned model gives, over all samples."""
    model = nn.Sequential(*draws())
    model.load_state_dict(weights)
    model.eval()
    with torch.no_grad():
        losses = [nn.functional.mse_loss(model(inputs), target) * len(inputs) for inputs, target in data]
    return float(sum(losses)) / sum(len(inputs) for inputs, _ in data)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_d14_evaluation_works_before_between_and_after_steps(schedule: str) -> None:
    held_out = [*batches(2, seed=7), *batches(1, samples=3, seed=8)]
    with trainer(draws(), schedule) as made:
        for mini_batch in batches(5):
            assert made.evaluate(held_out)["loss"] == pytest.approx(plain_loss(made.state_dict(), held_out), abs=1e-12)
            made.step(*mini_batch)
        made.drain()
        assert made.evaluate(held_out)["loss"] == pytest.approx(plain_loss(made.state_dict(), held_out), abs=1e-12)


@pytest.mark.parametrize("schedule", ["1f1b", "xpipe"])
def test_training_goes_on_as_if_nothing_had_been_evaluated(schedule: str) -> None:
    def losses(*, evaluates: bool) -> tuple[list[float], dict[str, Tensor]]:
        torch.manual_seed(3)
        loader = DataLoader(TensorDataset(*batches(1, samples=24)[0]), batch_size=4, shuffle=True)
        steps = []
        with trainer(draws(), schedule) as made:
            for inputs, targets in chain(loader, loader):
                steps.append(made.step(inputs, targets))
                if evaluates and len(steps) % 3:
                    made.evaluate(DataLoader(TensorDataset(*batches(1)[0]), batch_size=3, shuffle=True))
            made.drain()
            return [step.loss for step in steps], made.state_dict()

    plain, evaluated = losses(evaluates=False), losses(evaluates=True)
    assert evaluated[0] == plain[0]
    assert all(torch.equal(evaluated[1][key], plain[1][key]) for key in plain[1])


def test_evaluation_restores_every_mode_and_leaves_no_gradient() -> None:
    stages = draws()
    stages[0][1].eval()  # type: ignore[index]  # a Sequential: frozen by the user
    modes = [module.training for stage in stages for module in stage.modules()]
    with trainer(stages, "1f1b") as made:
        made.step(*batches(1)[0])
        made.evaluate(batches(1))
        assert [module.training for stage in stages for module in stage.modules()] == modes
    assert all(parameter.grad is None for stage in stages for parameter in stage.parameters())


def test_d14_an_evaluation_keeps_no_graph_and_none_of_what_stages_gave() -> None:
    given: list[weakref.ref[Tensor]] = []

    class Notes(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            assert y.grad_fn is None or self.training
            given.append(weakref.ref(y))
            return y

    stages = [Notes(WIDTH, WIDTH, dtype=torch.float64) for _ in range(2)]
    with trainer(list(stages), "1f1b") as made:
        made.evaluate(batches(2))
        gc.collect()
        assert len(given) == 8  # 2 stages, 2 mini-batches of 2 micro-batches
        assert [number for number, reference in enumerate(given) if reference() is not None] == []


def test_the_stages_compute_in_eval_mode_without_gradients_on_their_own_devices() -> None:
    seen = []

    class Looks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if not self.training:
                seen.append((threading.current_thread().name, torch.is_grad_enabled()))
            return x * 1.0

    with trainer([*mlp(1), Looks()], "1f1b") as made:
        made.evaluate(batches(1))
    assert seen == [("device 1", False)] * 2


def test_metrics_are_means_over_samples_whatever_the_mini_batches() -> None:
    """Outputs 0..6 in mini-batches of 4 and 3, in micro-batches of 2, 2 and 2, 1: the mean is 3."""
    values = torch.arange(7, dtype=torch.float64).reshape(7, 1)
    data = [(values[:4], values[:4]), (values[4:], values[4:])]
    made = Trainer(
        [nn.Identity(), nn.Identity()],
        schedule="1f1b",
        num_micro_batches=2,
        loss=lambda output, _: output.mean() * 10,
        optimizer=sgd,
        validation=data,
        metrics={"mean": lambda output, _: output.mean(), "largest": lambda output, _: float(output.max())},
    )
    with made:
        found = made.evaluate()
    assert found == {"loss": pytest.approx(30.0), "mean": pytest.approx(3.0), "largest": pytest.approx((2 * (1 + 3 + 5) + 6) / 7)}


def test_d5_the_loss_of_an_evaluation_counts_tokens_as_training_does() -> None:
    """One valid token of loss 4, three of loss 0, and a micro-batch without any: 1, not a mean of means, and no NaN."""

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return output[target >= 0].mean()

    output = torch.tensor([[4.0, 9.0, 9.0], [0.0, 0.0, 0.0], [5.0, 5.0, 5.0]])
    target = torch.tensor([[1, -1, -1], [1, 1, 1], [-1, -1, -1]])
    made = Trainer(
        [nn.Identity()],
        schedule="gpipe",
        num_micro_batches=3,
        loss=loss,
        optimizer=sgd,
        loss_weight=lambda target: (target >= 0).sum(),
    )
    with made:
        assert made.evaluate([(output, target)]) == {"loss": 1.0}


def test_summed_losses_are_summed_over_all_data() -> None:
    data = [(torch.ones(3, 1), torch.zeros(3, 1)), (torch.ones(2, 1), torch.zeros(2, 1))]
    made = trainer([nn.Identity()], "gpipe", loss=lambda output, _: output.sum(), loss_reduction="sum")
    with made:
        assert made.evaluate(data) == {"loss": 5.0}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "there is nothing to evaluate on: give evaluate data, or the trainer validation="),
        ([], "there are no mini-batches to evaluate on"),
        ([torch.ones(2)], "a mini-batch is a Tensor, not a pair"),
    ],
)
def test_no_data_is_said_in_one_line_and_training_goes_on(data: list[object] | None, message: str) -> None:
    with trainer(mlp(2), "1f1b") as made:
        with pytest.raises(ArgumentError, match=message):
            made.evaluate(data)
        assert made.step(*batches(1)[0]).loss > 0


def test_an_error_of_the_data_leaves_modes_and_random_numbers_as_they_were() -> None:
    def breaks() -> Iterator[tuple[Tensor, Tensor]]:
        yield batches(1)[0]
        torch.rand(5)
        raise KeyError("data")

    stages = mlp(2)
    state = torch.get_rng_state()
    with trainer(stages, "1f1b") as made, pytest.raises(KeyError, match="data"):
        made.evaluate(breaks())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(stage.training for stage in stages)


def test_a_metric_called_loss_is_refused() -> None:
    with pytest.raises(ArgumentError, match='a metric is called "loss", as the loss is: give it another name'):
        trainer(mlp(2), "1f1b", metrics={"loss": lambda *_: 0.0})


@pytest.mark.parametrize("name", ["mini_batches", "mini_batch", "drained"])
def test_a_metric_called_as_a_column_of_the_evaluations_is_refused(name: str) -> None:
    with pytest.raises(
        ArgumentError, match=f'a metric is called "{name}", as a column of evaluations.csv is: give it another name'
    ):
        trainer(mlp(2), "1f1b", metrics={"accuracy": lambda *_: 0.0, name: lambda *_: 0.0})


class Narrow(nn.Linear):
    """Raises on some inputs, as a user's own code may."""

    def forward(self, x: Tensor) -> Tensor:
        if bool((x > 100).any()):
            raise ZeroDivisionError("too large for me")
        return super().forward(x)


def narrow() -> list[nn.Module]:
    torch.manual_seed(0)
    return [Narrow(WIDTH, WIDTH, dtype=torch.float64), nn.Linear(WIDTH, WIDTH, dtype=torch.float64)]


def fails(*_: Tensor) -> float:
    raise KeyError("no such label")


Data = list[tuple[Tensor, Tensor]]
WELL = batches(1)
LARGE = [(WELL[0][0] + 1000, WELL[0][1])]
WIDE = [(torch.ones(4, WIDTH + 1, dtype=torch.float64), torch.ones(4, WIDTH, dtype=torch.float64))]
FAILURES: dict[str, tuple[Data, object, type[Exception], str]] = {
    "a stage that raises": (LARGE, None, ZeroDivisionError, "too large for me"),
    "data that do not fit": (WIDE, None, RefusedError, r"stage 0 does not take the model's input, float64 \[2, 5\]"),
    "a metric that raises": (WELL, fails, KeyError, "no such label"),
    "text": (WELL, lambda *_: "x", ArgumentError, "metric bad returns 'x', of type str: return one real number"),
    "three numbers": (
        WELL,
        lambda *_: torch.ones(3),
        ArgumentError,
        r"metric bad returns a tensor of shape \[3\], float32: return",
    ),
    "nothing": (WELL, lambda *_: None, ArgumentError, "metric bad returns None, of type NoneType: return one real number"),
}


@pytest.mark.parametrize("schedule", ["1f1b", "xpipe", "chimera"])
@pytest.mark.parametrize("case", FAILURES)
def test_training_goes_on_behind_an_evaluation_that_failed(case: str, schedule: str) -> None:
    """Bit for bit as if nobody had evaluated; the error is raised once, where the evaluation was asked for."""
    spoilt, metric, kind, message = FAILURES[case]
    options = {} if metric is None else {"metrics": {"bad": metric}}

    def fail(made: Trainer) -> None:
        with pytest.raises(kind, match=message):
            made.evaluate([*WELL, *spoilt])

    def losses(between: Callable[[Trainer], None]) -> tuple[list[float], dict[str, Tensor]]:
        steps = []
        with trainer(narrow(), schedule, **options) as made:
            for pair in batches(4):
                steps.append(made.step(*pair))
                between(made)
            made.drain()
            return [step.loss for step in steps], made.state_dict()

    plain, evaluated = losses(lambda _: None), losses(fail)
    assert evaluated[0] == plain[0]
    assert all(torch.equal(evaluated[1][key], plain[1][key]) for key in plain[1])


def test_the_first_micro_batch_that_failed_is_told_with_its_stage() -> None:
    inputs, target = WELL[0]
    spoilt = torch.cat([inputs[:4], inputs[4:] + 1000]), target
    with trainer(narrow(), "1f1b", num_micro_batches=4) as made:
        with pytest.raises(ZeroDivisionError, match="too large for me") as raised:
            made.evaluate([spoilt])
        assert raised.value.__notes__ == ["in the evaluation of stage 0, micro-batch 2 on device 0"]


def test_data_of_an_evaluation_that_raise_let_training_go_on() -> None:
    def breaks() -> Iterator[tuple[Tensor, Tensor]]:
        yield batches(1)[0]
        raise OSError("the disk is gone")

    with trainer(mlp(2), "xpipe") as made:
        made.step(*batches(1)[0])
        with pytest.raises(OSError, match="the disk is gone"):
            made.evaluate(breaks())
        assert made.step(*batches(1)[0]).loss > 0


@pytest.mark.parametrize("wrong", [5, len])
def test_data_that_cannot_be_iterated_over_are_named(wrong: object) -> None:
    with trainer(mlp(2), "1f1b") as made:
        with pytest.raises(ArgumentError, match=r"data .* cannot be iterated over: give pairs \(input, target\)"):
            made.evaluate(wrong)  # type: ignore[arg-type]  # a mistake
        assert made.step(*batches(1)[0]).loss > 0


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ([len], r"metrics \[.*\] is of type list, not Mapping: give a dict of functions"),
        (
            {"accuracy": 0.5},
            r"metric accuracy 0\.5 is of type float, which cannot be called: give a function of \(output, target\)",
        ),
        ({"accuracy": lambda output: output}, r"metric accuracy does not take \(output, target\), too many positional arguments"),
        ({3: lambda *_: 0.0}, "name of a metric 3 is of type int, not str"),
    ],
)
def test_metrics_that_nobody_could_call_are_refused_before_anything_is_trained(metrics: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        trainer(mlp(2), "1f1b", metrics=metrics)


class Merged(nn.Linear):
    """As LoRA's layers: in eval mode the weight has something in it that train() takes out again."""

    def train(self, mode: bool = True) -> "Merged":
        if mode != self.training:
            with torch.no_grad():
                self.weight.add_(-1.0 if mode else 1.0)
        super().train(mode)
        return self


def test_layers_with_a_train_of_their_own_are_as_they_were() -> None:
    stages = [Merged(WIDTH, WIDTH).double(), Merged(WIDTH, WIDTH).double()]
    before = [stage.weight.detach().clone() for stage in stages]
    with trainer(stages, "1f1b") as made:  # type: ignore[arg-type]  # a list of a subclass
        made.evaluate(batches(1))
    for stage, weight in zip(stages, before, strict=True):
        assert stage.training
        torch.testing.assert_close(stage.weight.detach(), weight, rtol=0.0, atol=1e-15)

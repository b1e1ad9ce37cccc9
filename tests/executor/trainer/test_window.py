"""What the user's own modules show while a trainer is open: the newest weights, as if nobody computed with others meanwhile."""

import copy
import io
import math
from collections.abc import Callable
from threading import Event

import pytest
import torch
from torch import Tensor, nn

from executor.trainer.trainer import Trainer
from schedir.errors import RefusedError, RunError
from tests.executor.small.models import WIDTH, batches, mlp, sgd
from tests.executor.small.trainers import alive, assert_bit_equal, train_step_by_step

SCHEDULES = ("1f1b", "pipedream", "pipedream-2bw", "xpipe", "spectrain")
INPUTS = batches(1, seed=9)[0][0]


def opened(stages: list[nn.Module], schedule: str, **options: object) -> Trainer:
    given = {"num_micro_batches": 4, "loss": nn.functional.mse_loss, "optimizer": sgd, "timeout": 60.0}
    return Trainer(stages, schedule=schedule, **(given | options))  # type: ignore[arg-type]  # options of any type


def copies(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in weights.items()}


class Recurrent(nn.LSTM):
    """Keeps its weights in a list of its own, beside its parameters."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]  # one tensor, as stages hand it on
        output: Tensor = super().forward(x)[0]
        return output


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_state_dict_between_two_steps_has_the_newest_weights(schedule: str) -> None:
    stages = mlp(3)
    model = nn.Sequential(*stages)
    with opened(stages, schedule) as made:
        for mini_batch in batches(9):
            made.step(*mini_batch)
            # steps are on their way now, and devices compute with older and with predicted weights
            seen = copies(model.state_dict())
            assert_bit_equal(seen, made.state_dict())
        made.drain()
        assert_bit_equal(copies(model.state_dict()), made.state_dict())


def test_the_newest_weights_are_those_of_all_updates_so_far() -> None:
    """Each stage adds w; the loss is the mean of the output, so its gradient by w is 1: every update takes 1/8 off.

    The trainer tells which mini-batches' updates are made on all stages: the weights that have changed least are theirs.
    """

    class Add(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor(1.0))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.w

    stages = [Add(), Add()]
    made = Trainer(
        stages,
        schedule="pipedream",
        num_micro_batches=1,
        loss=lambda output, _: output.mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.125),
        timeout=60.0,
    )
    told: list[int] = []
    with made:
        for _ in range(6):
            step = made.step(torch.zeros(1, 1), torch.zeros(1, 1))
            newest = [stage.w.item() for stage in stages]
            told += step.finished
            assert max(newest) == 1 - len(told) / 8
        told += made.drain()
        assert [stage.w.item() for stage in stages] == [0.25, 0.25]
    assert told == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_model_that_is_run_between_two_steps_computes_with_the_newest_weights(schedule: str) -> None:
    stages = mlp(3)
    model = nn.Sequential(*stages)
    with opened(stages, schedule) as made:
        for mini_batch in batches(7):
            made.step(*mini_batch)
            output = model(INPUTS).detach()
            alone = nn.Sequential(*mlp(3))
            alone.load_state_dict(made.state_dict())
            assert torch.equal(output, alone(INPUTS).detach())


@pytest.mark.parametrize("schedule", ["1f1b", "pipedream", "xpipe"])
def test_a_recurrent_layer_computes_with_the_newest_weights_too(schedule: str) -> None:
    def made_of(seed: int) -> list[nn.Module]:
        torch.manual_seed(seed)
        return [Recurrent(WIDTH, WIDTH, dtype=torch.float64) for _ in range(2)]

    stages = made_of(0)
    model, alone = nn.Sequential(*stages), nn.Sequential(*made_of(1))
    with opened(stages, schedule) as made:
        for mini_batch in batches(5):
            made.step(*mini_batch)
            output = model(INPUTS).detach()
            alone.load_state_dict(made.state_dict())
            assert torch.equal(output, alone(INPUTS).detach())


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_parameters_are_the_modules_own_and_never_empty(schedule: str) -> None:
    """Whoever keeps them, say for a moving average, has the newest weights in them after every step."""
    stages = mlp(3)
    model = nn.Sequential(*stages)
    own = list(model.parameters())
    with opened(stages, schedule) as made:
        for mini_batch in batches(7):
            made.step(*mini_batch)
            seen = list(model.parameters())
            assert [id(parameter) for parameter in seen] == [id(parameter) for parameter in own]
            assert [parameter.shape for parameter in own] == [parameter.shape for parameter in nn.Sequential(*mlp(3)).parameters()]
            assert all(torch.equal(*pair) for pair in zip(own, made.state_dict().values(), strict=True))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_to_look_at_a_model_changes_nothing_in_its_training(schedule: str) -> None:
    data = batches(8)
    alone = train_step_by_step(opened(mlp(3), schedule), data)
    stages = mlp(3)
    model = nn.Sequential(*stages)
    with opened(stages, schedule) as made:
        steps = []
        for mini_batch in data:
            steps.append(made.step(*mini_batch))
            model.state_dict()
            with torch.no_grad():
                model(INPUTS)
        losses = [step.loss for step in steps]
        made.drain()
        assert losses == alone[0]
        assert_bit_equal(made.state_dict(), alone[1])


@pytest.mark.parametrize("schedule", ["1f1b", "xpipe"])
def test_a_copy_and_a_file_of_a_model_that_is_trained_are_plain(schedule: str) -> None:
    stages = mlp(2)
    model = nn.Sequential(*stages)
    with opened(stages, schedule) as made:
        for mini_batch in batches(5):
            made.step(*mini_batch)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        found = [copy.deepcopy(model), torch.load(file, weights_only=False)]
        newest = made.state_dict()
        made.step(*batches(1)[0])
    for one in found:
        assert_bit_equal(one.state_dict(), newest)
        assert {type(module._parameters) for module in one.modules()} == {dict}


@pytest.mark.parametrize("schedule", ["1f1b", "pipedream", "xpipe"])
def test_modules_are_as_they_were_once_a_trainer_is_closed(schedule: str) -> None:
    stages = mlp(2)
    model = nn.Sequential(*stages)
    own = list(model.parameters())
    with opened(stages, schedule) as made:
        for mini_batch in batches(5):
            made.step(*mini_batch)
    assert_bit_equal(copies(model.state_dict()), made.state_dict())
    assert [id(parameter) for parameter in model.parameters()] == [id(parameter) for parameter in own]
    assert {type(module._parameters) for module in model.modules()} == {dict}


@pytest.mark.parametrize("schedule", ["1f1b", "pipedream", "xpipe"])
def test_modules_have_whole_weights_once_a_training_has_failed(schedule: str) -> None:
    stages = mlp(2)
    model = nn.Sequential(*stages)
    data = batches(6)
    data[3] = (data[3][0] * math.nan, data[3][1])
    with pytest.raises(RunError, match="the loss of mini-batch 3 is nan"):
        train_step_by_step(opened(stages, schedule, on_nan="raise"), data)
    assert [parameter.shape for parameter in model.parameters()] == [
        parameter.shape for parameter in nn.Sequential(*mlp(2)).parameters()
    ]
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    assert {type(module._parameters) for module in model.modules()} == {dict}
    assert alive() == []


def test_an_error_of_a_step_on_its_way_comes_out_of_the_look_at_the_model() -> None:
    """Nobody gets weights of a training that has failed for those of one that goes on."""
    stages = mlp(2)
    model = nn.Sequential(*stages)
    inputs, target = batches(1)[0]
    asked = Event()

    def held_loss(output: Tensor, target: Tensor) -> Tensor:
        if output.isnan().any():
            asked.wait(60)  # or the devices may be so fast that the step itself finds the error
        return nn.functional.mse_loss(output, target)

    made = opened(stages, "xpipe", on_nan="raise", loss=held_loss)
    made.step(inputs, target)
    made.step(inputs * math.nan, target)
    asked.set()
    with pytest.raises(RunError, match="the loss of mini-batch 1 is nan"):
        model.state_dict()
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    assert alive() == []


def replace_a_parameter(model: nn.Sequential) -> None:
    model[1].weight = nn.Parameter(torch.zeros(WIDTH, WIDTH, dtype=torch.float64))


def delete_a_parameter(model: nn.Sequential) -> None:
    del model[1].bias


@pytest.mark.parametrize("schedule", ["1f1b", "xpipe"])
@pytest.mark.parametrize(("change", "name"), [(replace_a_parameter, "weight"), (delete_a_parameter, "bias")])
def test_a_parameter_that_is_replaced_is_refused_and_may_be_put_back(
    schedule: str, change: Callable[[nn.Sequential], None], name: str
) -> None:
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(2))).double()
    with opened(list(model), schedule) as made:
        for steps in range(2):  # before the first step, and behind one
            before = getattr(model[1], name)
            change(model)
            with pytest.raises(RefusedError, match=f"stage 1's {name} was replaced while its trainer was open"):
                made.step(*batches(1)[0])
            with pytest.raises(RefusedError, match="was replaced"):
                made.drain()
            assert made.mini_batch == steps
            setattr(model[1], name, before)
            made.step(*batches(1)[0])


@pytest.mark.parametrize("schedule", ["1f1b", "xpipe"])
def test_a_parameter_that_is_frozen_or_unfrozen_is_refused_at_the_next_step(schedule: str) -> None:
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(2))).double()
    model[1].bias.requires_grad_(False)
    first, second = model[0].weight, model[1].bias
    with opened(list(model), schedule) as made:
        made.step(*batches(1)[0])
        first.requires_grad_(False)
        with pytest.raises(RefusedError, match=r"stage 0's weight was frozen after .*: call requires_grad_\(True\), or save"):
            made.step(*batches(1)[0])
        first.requires_grad_(True)
        second.requires_grad_(True)
        with pytest.raises(RefusedError, match=r"stage 1's bias was unfrozen after .*: call requires_grad_\(False\), or save"):
            made.step(*batches(1)[0])
        second.requires_grad_(False)
        made.step(*batches(1)[0])
        assert made.mini_batch == 2


def test_a_model_that_is_made_float_is_refused_at_the_next_step() -> None:
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(2))).double()
    with opened(list(model), "1f1b") as made:
        made.step(*batches(1)[0])
        model.float()
        with pytest.raises(RefusedError, match=r"stage 0's weight is torch.float32 on cpu now, and was torch.float64 on cpu"):
            made.step(*batches(1)[0])
        model.double()
        made.step(*batches(1)[0])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_caller_may_fill_his_tensors_anew_once_a_step_has_returned(schedule: str) -> None:
    """Stage 0 keeps nothing of its input for a backward, and the loss nothing of the target: autograd would not notice."""

    class Shift(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(WIDTH, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.bias

    def losses(*, reuse: bool) -> list[float]:
        stages: list[nn.Module] = [Shift(), Shift(), Shift()]
        inputs, targets = (torch.empty(8, WIDTH, dtype=torch.float64) for _ in range(2))
        with opened(stages, schedule, loss=lambda output, target: (output - target).abs().mean()) as made:
            steps = []
            for x, y in batches(12, samples=8):
                if reuse:
                    steps.append(made.step(inputs.copy_(x), targets.copy_(y)))
                    inputs.fill_(math.nan)
                    targets.fill_(math.nan)
                else:
                    steps.append(made.step(x, y))
            made.drain()
            return [step.loss for step in steps]

    assert losses(reuse=True) == losses(reuse=False)

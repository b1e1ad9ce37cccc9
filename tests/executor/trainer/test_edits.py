"""What the caller changes between two steps reaches every copy of it, or is refused; never some copies only."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from executor.trainer.trainer import Trainer
from executor.workers.distributed.meeting.launch import outcomes_of
from executor.workers.environment import process_number
from schedir.errors import RefusedError, RunError
from tests.distributed.programs.work import LAUNCH_S
from tests.executor.small.models import WIDTH, batches, mlp, sgd


def tied() -> list[nn.Module]:
    torch.manual_seed(0)
    stages = [nn.Linear(WIDTH, WIDTH).double() for _ in range(4)]
    stages[2].weight = stages[0].weight
    return list(stages)


def opened(stages: list[nn.Module], schedule: str, **options: Any) -> Trainer:
    given: dict[str, Any] = {"num_micro_batches": 2, "loss": nn.functional.mse_loss, "optimizer": sgd, "timeout": 100.0}
    return Trainer(stages, schedule=schedule, **(given | options))


@torch.no_grad()
def halve(parameters: list[nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.mul_(0.5)


def plain(stages: list[nn.Module]) -> list[float]:
    """Train the model that is not cut, and halve its parameters behind every second step."""
    model = nn.Sequential(*stages)
    steps, losses = sgd(list(model.parameters())), []
    for number, (inputs, target) in enumerate(batches(6)):
        loss = nn.functional.mse_loss(model(inputs), target)
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(loss.item())
        if number % 2:
            halve(list(model.parameters()))
    return losses


def pipelined(stages: list[nn.Module], schedule: str, *, kept: bool = True, **options: Any) -> list[float]:
    """Do the same in a pipeline, by parameters from before the trainer or as the module gives them."""
    model = nn.Sequential(*stages)
    parameters, steps = list(model.parameters()), []
    with opened(stages, schedule, **options) as made:
        for number, mini_batch in enumerate(batches(6)):
            steps.append(made.step(*mini_batch))
            if number % 2:
                halve(parameters if kept else list(model.parameters()))
        made.drain()
        return [step.loss for step in steps]


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("schedule", ["1f1b", "chimera", "dualpipe"])
def test_under_a_flush_parameters_changed_between_steps_are_trained_on_as_torch_does(schedule: str, *, kept: bool) -> None:
    num_stages, options = (4, {"num_micro_batches": 8}) if schedule == "dualpipe" else (2, {})
    found = pipelined(mlp(num_stages), schedule, kept=kept, **options)
    assert found == pytest.approx(plain(mlp(num_stages)), rel=1e-12)


def give_other_memory(model: nn.Module, way: str) -> None:
    """Round the values of parameters to float32, and put them into new memory."""
    if way == "float":
        model.float().double()
    elif way == "vector":
        vector = nn.utils.parameters_to_vector(model.parameters()).detach().float().double()
        nn.utils.vector_to_parameters(vector, model.parameters())
    else:
        for parameter in model.parameters():
            parameter.data = parameter.data.float().double()


@pytest.mark.parametrize("way", ["float", "vector", "data"])
@pytest.mark.parametrize("schedule", ["1f1b", "chimera"])
def test_parameters_that_were_given_other_memory_are_trained_on(schedule: str, way: str) -> None:
    plain_model, model = nn.Sequential(*mlp(2)), nn.Sequential(*mlp(2))
    steps, expected, found = sgd(list(plain_model.parameters())), [], []
    with opened(list(model), schedule) as made:
        for number, (inputs, target) in enumerate(batches(5)):
            loss = nn.functional.mse_loss(plain_model(inputs), target)
            steps.zero_grad()
            loss.backward()
            steps.step()
            expected.append(loss.item())
            found.append(made.step(inputs, target).loss)
            if number % 2:
                give_other_memory(plain_model, way)
                give_other_memory(model, way)
    assert found == pytest.approx(expected, rel=1e-12)
    for one, other in zip(model.parameters(), plain_model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("schedule", ["xpipe", "pipedream"])
def test_behind_a_drain_other_memory_trains_as_the_same_values_in_place(schedule: str) -> None:
    losses = []
    for in_place in (True, False):
        model = nn.Sequential(*mlp(2))
        with opened(list(model), schedule) as made:
            first = [made.step(*mini_batch) for mini_batch in batches(3)]
            made.drain()
            if in_place:
                halve(list(model.parameters()))
            else:
                nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(model.parameters()).detach() / 2, model.parameters())
            rest = [made.step(*mini_batch) for mini_batch in batches(3)]
            made.drain()
            losses.append([step.loss for step in (*first, *rest)])
    assert losses[0] == losses[1]


def test_a_parameter_of_another_shape_is_refused() -> None:
    stages = mlp(2)
    made = opened(stages, "1f1b")
    made.step(*batches(1)[0])
    next(stages[0].parameters()).data = torch.ones(1, dtype=torch.float64)
    with pytest.raises(RefusedError, match=r"has shape \(1,\) now, and had"):
        made.step(*batches(1)[0])
    with pytest.raises(RunError, match="this training has ended"):
        made.step(*batches(1)[0])


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(("schedule", "devices"), [("1f1b", 4), ("interleaved-1f1b", 2)])
def test_tied_weights_are_changed_once_and_everywhere(schedule: str, devices: int, *, kept: bool) -> None:
    found = pipelined(tied(), schedule, kept=kept, num_devices=devices)
    assert found == pytest.approx(plain(tied()), rel=1e-12)


def in_processes(schedule: str) -> list[float]:
    stages: list[nn.Module] = list(tied()[::2]) if schedule == "1f1b" else mlp(2)
    return pipelined(stages, schedule)


@pytest.mark.parametrize("schedule", ["1f1b", "chimera"])
def test_two_processes_that_change_parameters_alike_train_as_torch_does(schedule: str) -> None:
    expected = plain(list(tied()[::2]) if schedule == "1f1b" else mlp(2))
    for outcome in outcomes_of(in_processes, schedule, num_processes=2, timeout_s=LAUNCH_S):
        assert (outcome.error, outcome.value) == (None, pytest.approx(expected, rel=1e-12))


def drained(schedule: str, num_steps: int) -> dict[str, Tensor]:
    """Train, drain, load a first state, and train on; the replicas of stage 0 must have got it."""
    stages, made_of = mlp(2), {"replicas": [2, 1]} if schedule == "pipedream" else {}
    with opened(stages, schedule, optimizer=lambda each: torch.optim.SGD(each, lr=0.1), **made_of) as made:
        for mini_batch in batches(num_steps, seed=5):
            made.step(*mini_batch)
        made.drain()
        nn.Sequential(*stages).load_state_dict(nn.Sequential(*mlp(2, seed=3)).state_dict())
        for mini_batch in batches(4):
            made.step(*mini_batch)
        made.drain()
        return made.state_dict()


@pytest.mark.parametrize("schedule", ["pipedream", "pipedream-2bw"])
def test_a_state_that_is_loaded_behind_a_drain_is_all_that_is_trained_on(schedule: str) -> None:
    found, other = drained(schedule, 2), drained(schedule, 4)
    assert all(torch.equal(found[key], other[key]) for key in found)


def test_to_save_and_load_behind_a_change_is_to_go_on(tmp_path: Path) -> None:
    stages = mlp(2)
    data = batches(3)
    with opened(stages, "chimera") as made:
        made.step(*data[0])
        halve(list(nn.Sequential(*stages).parameters()))
        made.save(tmp_path)
        going_on = [made.step(*mini_batch).loss for mini_batch in data[1:]]
    with opened(mlp(2, seed=7), "chimera") as made:
        made.load(tmp_path)
        assert [made.step(*mini_batch).loss for mini_batch in data[1:]] == going_on


def test_buffers_are_carried_to_replicas() -> None:
    class Shift(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("by", torch.zeros(1, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = x + self.by  # type: ignore[operator]  # a buffer has no type of its own
            return output

    def losses(schedule: str) -> list[float]:
        stages = [nn.Sequential(Shift(), stage) for stage in mlp(2)]
        with opened(list(stages), schedule) as made:
            found = [made.step(*batches(1)[0]).loss]
            for stage in stages:
                stage[0].by.fill_(2.0)  # type: ignore[operator]  # so here
            return [*found, made.step(*batches(1)[0]).loss]

    assert losses("chimera") == pytest.approx(losses("1f1b"), rel=1e-12)


@pytest.mark.parametrize("schedule", ["xpipe", "pipedream", "spectrain"])
def test_kept_parameters_changed_on_the_way_are_refused_whenever_the_devices_get_there(schedule: str) -> None:
    message = r"^parameters of stage [01] were changed while mini-batches were on their way, .*: call drain\(\) first"
    with pytest.raises(RefusedError, match=message):
        pipelined(mlp(2), schedule)


def stand_still(made: Trainer, version: int) -> None:
    """Wait for the devices' last update: a change within an optimizer's own step cannot be told from the step."""
    limit = time.monotonic() + 100
    while time.monotonic() < limit:
        with suppress(RefusedError):  # in the middle of one
            for stage in made._engine.crew.stages():
                stage.weights.check_untouched(stage.number)
            if all(stage.weights.newest.version == version for stage in made._engine.crew.stages()):
                return
        time.sleep(0.01)
    pytest.fail(f"no stage has version {version}")


@pytest.mark.parametrize("schedule", ["xpipe", "pipedream"])
def test_they_are_refused_too_where_no_update_comes_behind(schedule: str) -> None:
    stages = mlp(2)
    kept = list(nn.Sequential(*stages).parameters())
    made = opened(stages, schedule)
    for mini_batch in batches(4):
        made.step(*mini_batch)
    stand_still(made, version=3)
    halve(kept)
    with pytest.raises(RefusedError, match="were changed while mini-batches were on their way"):
        made.close()


@pytest.mark.parametrize("schedule", ["xpipe", "pipedream"])
def test_parameters_that_are_read_through_the_module_are_refused_as_well(schedule: str) -> None:
    """Forwards that have run would go backward with other weights than their own."""
    with pytest.raises(RefusedError, match=r"^parameters of stage [01] were changed while mini-batches were on their way"):
        pipelined(mlp(2), schedule, kept=False)


def alike_on_the_way(schedule: str) -> str:
    try:
        pipelined(mlp(2), schedule)
    except RefusedError as error:
        return str(error)
    return ""


def buffer_of_one() -> str:
    stages = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)).double(), *mlp(1)]
    try:
        with opened(stages, "1f1b") as made:
            made.step(*batches(1)[0])
            if process_number() == 1:
                stages[0][1].running_mean.fill_(7.0)  # type: ignore[index]  # a BatchNorm
            made.step(*batches(1)[0])
    except Exception as error:  # noqa: BLE001 - the test looks at what is said
        return str(error)
    return ""


def buffers_of_replicas() -> str:
    stages = [nn.Sequential(stage, nn.BatchNorm1d(WIDTH)).double() for stage in mlp(2)]
    try:
        with opened(list(stages), "chimera") as made:
            made.step(*batches(1)[0])
            stages[0][1].running_mean.fill_(7.0)  # type: ignore[operator]  # a buffer has no type of its own
            made.step(*batches(1)[0])
    except RefusedError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("body", "arguments", "said"),
    [
        (buffers_of_replicas, (), "a buffer of stage 0's BatchNorm1d was changed in place, but several processes train replicas"),
        (alike_on_the_way, ("xpipe",), "changed while mini-batches were on their way"),
        (
            buffer_of_one,
            (),
            "parameters, buffers or modes of stage 0 were changed between steps 0 times by process 0 and 1 times by process 1",
        ),
    ],
)
def test_both_of_two_processes_say_what_is_wrong(body: Callable[..., str], arguments: tuple[str, ...], said: str) -> None:
    for outcome in outcomes_of(body, *arguments, num_processes=2, timeout_s=LAUNCH_S):
        assert (outcome.error, said in (outcome.value or "")) == (None, True)

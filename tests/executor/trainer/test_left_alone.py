"""Where nothing flushes, what the caller changes in his model while mini-batches are on their way is refused, never mixed."""

import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event
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

CONTINUOUS = ("pipedream", "pipedream-2bw", "xpipe", "spectrain", "pipeoptim")


class Layered(nn.Module):
    """A layer of each kind that somebody may want to change, a value of its own, and a state that its forward changes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.drop = nn.Linear(WIDTH, WIDTH), nn.Dropout(0.0)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(requires_grad=False)
        self.temperature, self.calls = 1.0, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        output: Tensor = torch.tanh(self.frozen(self.norm(self.drop(self.linear(x))))) / self.temperature
        return output


def layered(count: int = 2) -> list[Any]:
    torch.manual_seed(0)
    return [Layered().double() for _ in range(count)]


def opened(stages: list[Any], schedule: str, **options: Any) -> Trainer:
    given: dict[str, Any] = {"num_micro_batches": 2, "loss": nn.functional.mse_loss, "optimizer": sgd, "timeout": 100.0}
    return Trainer(stages, schedule=schedule, **(given | options))


def on_the_way(stages: list[Any], schedule: str, **options: Any) -> Trainer:
    made = opened(stages, schedule, **options)
    for mini_batch in batches(5):
        made.step(*mini_batch)
    return made


@torch.no_grad()
def halve(tensor: Tensor) -> None:
    tensor.mul_(0.5)


CHANGES: dict[str, tuple[Callable[[list[Any]], object], str]] = {
    "eval": (lambda stages: nn.Sequential(*stages).eval(), r"stage 0's training was changed from True to False"),
    "one layer": (lambda stages: stages[1].drop.eval(), r"stage 1's drop\.training was changed from True to False"),
    "dropout": (lambda stages: setattr(stages[1].drop, "p", 0.5), r"stage 1's drop\.p was changed from 0\.0 to 0\.5"),
    "momentum": (
        lambda stages: setattr(stages[0].norm, "momentum", 0.5),
        r"stage 0's norm\.momentum was changed from 0\.1 to 0\.5",
    ),
    "own value": (lambda stages: setattr(stages[0], "temperature", 2.0), r"stage 0's temperature was changed from 1\.0 to 2\.0"),
    "buffer": (lambda stages: stages[0].norm.running_var.fill_(2.0), r"stage 0's norm\.running_var was changed"),
    "other buffer": (
        lambda stages: setattr(stages[0].norm, "running_var", torch.ones(WIDTH).double()),
        r"stage 0's norm\.running_var was changed",
    ),
    "frozen": (lambda stages: halve(stages[1].frozen.weight), r"stage 1's frozen\.weight was changed"),
    "trained": (lambda stages: halve(next(stages[1].parameters())), r"parameters of stage 1 were changed"),
}
BEHIND = r" while mini-batches were on their way, .*: call drain\(\) first"


@pytest.mark.parametrize(
    ("schedule", "change"),
    [
        *((schedule, change) for schedule in CONTINUOUS for change in ("eval", "trained")),
        *(("xpipe", change) for change in CHANGES),
    ],
)
def test_a_change_on_the_way_is_refused_at_the_next_call(schedule: str, change: str) -> None:
    stages = layered()
    make, words = CHANGES[change]
    made = on_the_way(stages, schedule)
    nn.Sequential(*stages).state_dict()  # the devices have nothing to do now, but parts of mini-batches are to come
    make(stages)
    with pytest.raises(RefusedError, match="^" + words + BEHIND):
        made.step(*batches(1)[0])
    with suppress(RefusedError):  # of what may be undone, and is not
        made.close()


@pytest.mark.parametrize(("schedule", "change"), [("xpipe", "eval"), ("pipedream", "dropout"), ("pipedream", "own value")])
def test_a_setting_that_is_changed_back_leaves_training_as_it_was(schedule: str, change: str) -> None:
    def losses(disturb: Callable[[Trainer, list[Any]], None]) -> list[float]:
        stages = layered()
        with opened(stages, schedule) as made:
            steps = [made.step(*mini_batch) for mini_batch in batches(4)]
            disturb(made, stages)
            steps += [made.step(*mini_batch) for mini_batch in batches(4)]
            made.drain()
            return [step.loss for step in steps]

    def change_and_undo(made: Trainer, stages: list[Any]) -> None:
        nn.Sequential(*stages).state_dict()  # else a device may see it
        before = [(layer, layer.training, dict(vars(layer))) for stage in stages for layer in stage.modules()]
        CHANGES[change][0](stages)
        for call in (made.drain, lambda: made.evaluate(batches(1)), lambda: nn.Sequential(*stages)(batches(1)[0][0])):
            with pytest.raises(RefusedError, match=BEHIND):
                call()
        for layer, training, values in before:
            layer.training = training
            vars(layer).update({name: value for name, value in values.items() if name in {"p", "temperature"}})

    assert losses(change_and_undo) == losses(lambda *_: None)


def count(layer: Any) -> None:
    """Change what no code of the layer's own class changes."""
    layer.count += 1


class Sets(nn.Module):
    """Changes itself in its forward in many ways, which is nobody else's affair."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(WIDTH), nn.Dropout(0.0)
        self.count, self.calls = 0, 0

    def forward(self, x: Tensor) -> Tensor:
        count(self)
        vars(self)["calls"] += 1
        self.norm.eval()
        self.drop.p = 0.1
        output: Tensor = self.drop(self.norm(x))
        return output


@pytest.mark.parametrize("schedule", ["pipedream", "xpipe"])
def test_what_a_forward_changes_itself_is_no_change_of_the_callers(schedule: str) -> None:
    with opened([nn.Sequential(*mlp(1), Sets().double()), *mlp(1)], schedule) as made:
        for mini_batch in batches(6):
            made.step(*mini_batch)
        made.drain()
    assert made.mini_batch == 6


class Gate(nn.Linear):
    """Its third forward waits until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH, dtype=torch.float64)
        self.calls, self.arrived, self.open = 0, Event(), Event()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 3:
            self.arrived.set()
            assert self.open.wait(100)
        return super().forward(x)


@pytest.mark.parametrize("back", [False, True])
def test_a_mode_that_is_changed_while_a_device_computes_is_refused(*, back: bool) -> None:
    gate = Gate()
    made = opened([gate, *mlp(1)], "pipedream")
    steps = [made.step(*mini_batch) for mini_batch in batches(2)]
    assert gate.arrived.wait(100)
    gate.eval()
    gate.open.set()
    if back:  # the device has seen it
        limit = time.monotonic() + 100
        while not made._engine.stream.has_failed and time.monotonic() < limit:
            time.sleep(0.01)
        gate.train()
    with pytest.raises(RefusedError, match="^stage 0's training was changed from True to False" + BEHIND):
        made.drain()
    with pytest.raises(RunError, match="was on its way when the training failed"):
        _ = steps[1].loss


def with_dropout() -> list[Any]:
    return [nn.Sequential(stage, nn.Dropout(0.5)) for stage in mlp(2)]


def at_rest(schedule: str, *, seed: int = 0, trains_first: bool = True, **options: Any) -> list[float]:
    """Train two mini-batches, drain, evaluate from there on, train two, drain, let nothing drop from there on, train two."""
    stages, steps = with_dropout(), []

    def train(made: Trainer, data: list[tuple[Tensor, Tensor]]) -> None:
        steps.extend([made.step(*mini_batch) for mini_batch in data])
        made.drain()

    with opened(stages, schedule, seed=seed, **options) as made:
        train(made, batches(2) * trains_first)
        nn.Sequential(*stages).eval()
        train(made, batches(2))
        nn.Sequential(*stages).train()
        for stage in stages:
            stage[1].p = 0.0
        train(made, batches(2))
        return [step.loss for step in steps]


def test_at_rest_a_mode_and_a_setting_reach_replicas() -> None:
    assert at_rest("chimera") == pytest.approx(at_rest("1f1b"), rel=1e-12)


@pytest.mark.parametrize("schedule", ["pipedream", "chimera"])
def test_no_replica_draws_in_eval_mode(schedule: str) -> None:
    made_of = {"replicas": [2, 1]} if schedule == "pipedream" else {}
    assert at_rest(schedule, seed=1, trains_first=False, **made_of) == at_rest(schedule, seed=2, trains_first=False, **made_of)


def flip(where: int, moment: str) -> str:
    """Let one process, or both, change a mode."""
    stages = with_dropout()
    try:
        with opened(stages, "xpipe") as made:
            for mini_batch in batches(4):
                made.step(*mini_batch)
            if moment == "drained":
                made.drain()
            if where in {process_number(), 2}:
                stages[0].eval()
            for mini_batch in batches(4):
                made.step(*mini_batch)
            made.drain()
    except Exception as error:  # noqa: BLE001 - the test looks at what is said
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("where", "moment", "said"),
    [
        (1, "on the way", "stage 0's training was changed from True to False while mini-batches were on their way"),
        (
            1,
            "drained",
            "parameters, buffers or modes of stage 0 were changed between steps 0 times by process 0 and 1 times by process 1",
        ),
    ],
)
def test_both_of_two_processes_hear_of_a_mode_that_is_changed(where: int, moment: str, said: str) -> None:
    for outcome in outcomes_of(flip, where, moment, num_processes=2, timeout_s=LAUNCH_S):
        assert (outcome.error, said in (outcome.value or "")) == (None, True)


def test_behind_a_drain_two_processes_may_change_a_mode_together() -> None:
    for outcome in outcomes_of(flip, 2, "drained", num_processes=2, timeout_s=LAUNCH_S):
        assert (outcome.error, outcome.value) == (None, "")


def test_at_rest_a_mode_reaches_replicas_in_two_processes() -> None:
    expected = at_rest("chimera")
    for outcome in outcomes_of(at_rest, "chimera", num_processes=2, timeout_s=LAUNCH_S):
        assert (outcome.error, outcome.value) == (None, pytest.approx(expected, rel=1e-12))

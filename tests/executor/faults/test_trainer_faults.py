"""Interrupts, stuck stages and losses that are no numbers: trainings end, or go on, within bounds."""

import _thread
import gc
import math
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from time import monotonic
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from executor.trainer.stream import Stream
from executor.trainer.trainer import Trainer
from executor.training import train
from schedir.errors import ArgumentError, RunError, SchedirWarning
from tests.executor.small.models import batches, compiled, mlp, pipeline_of, sgd
from tests.executor.small.trainers import Data, alive, assert_bit_equal, train_step_by_step, trainer

BOUND_S = 60.0
"""Far more than any of these may take, and far less than the timeout that would end a hang."""


class Held(nn.Module):
    """Computes nothing until it may; the first call tells so."""

    def __init__(self) -> None:
        super().__init__()
        self.may, self.called = threading.Event(), threading.Event()

    def forward(self, x: Tensor) -> Tensor:
        self.called.set()
        self.may.wait(600)
        return x * 1.0


def interrupt_when_called(held: Held) -> None:
    """Interrupt the main thread, from another one, once the stage computes."""

    def interrupt() -> None:
        if held.called.wait(60):
            _thread.interrupt_main()

    threading.Thread(target=interrupt, daemon=True).start()


@pytest.mark.parametrize("schedule", ["1f1b", "pipedream"])
def test_an_interrupt_ends_a_training_while_a_stage_computes(schedule: str) -> None:
    held = Held()
    made = Trainer([*mlp(1), held], schedule=schedule, num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd)
    interrupt_when_called(held)
    began = monotonic()
    with pytest.raises(KeyboardInterrupt):
        train_step_by_step(made, batches(3))
    assert monotonic() - began < BOUND_S
    with pytest.raises(RunError, match="this training has ended"):
        made.step(*batches(1)[0])
    held.may.set()
    assert alive() == []


def test_an_interrupt_that_comes_while_a_wait_takes_its_lock_back_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's condition then ends without its lock, and says that in place of the interrupt."""

    class Interrupted(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - as Python's
            self.release()
            raise KeyboardInterrupt

    made = trainer(2, "1f1b", 2)
    monkeypatch.setattr(made._engine.stream, "_changed", Interrupted())
    monkeypatch.setattr(made._engine.stream, "has_done", lambda _: False)  # or the step may be done before anybody waits
    with pytest.raises(KeyboardInterrupt):
        made.step(*batches(1)[0])
    assert alive() == []


@pytest.mark.parametrize("schedule", ["1f1b", "pipedream"])
def test_a_second_interrupt_leaves_no_thread_either(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes while the first one waits for a stage that computes: nobody waits then, and the threads end behind the stage."""
    held = Held()
    waits: list[float | None] = []
    made = Trainer([*mlp(1), held], schedule=schedule, num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd)
    join = threading.Thread.join

    def interrupted(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name == "trainer" and not waits:
            waits.append(timeout)
            raise KeyboardInterrupt
        join(thread, timeout)

    interrupt_when_called(held)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_step_by_step(made, batches(3))
    assert len(waits) == 1
    with pytest.raises(RunError, match="this training has ended"):
        made.step(*batches(1)[0])
    held.may.set()
    assert alive() == []


class Bursting(Held):
    """Is held by a sample that is no number, and fails."""

    def forward(self, x: Tensor) -> Tensor:
        if not x.isnan().any():
            return x * 1.0
        super().forward(x)
        raise ValueError("burst")


@pytest.mark.parametrize("schedule", ["pipedream", "xpipe"])
def test_an_error_behind_the_last_step_is_raised_by_the_end(schedule: str) -> None:
    bursting = Bursting()
    made = Trainer([*mlp(1), bursting], schedule=schedule, num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd)
    *others, (inputs, targets) = batches(4)
    for pair in others:
        made.step(*pair)
    made.step(inputs * math.nan, targets)
    assert bursting.called.wait(60)
    bursting.may.set()
    with pytest.raises(ValueError, match="burst"):
        made.close()
    made.close()  # heard once
    assert alive() == []


def test_a_closed_training_can_be_closed_again_and_does_nothing_more() -> None:
    made = trainer(2, "xpipe", 2)
    for pair in batches(4):
        made.step(*pair)
    made.close()
    made.close()
    weights = made.state_dict()
    for late in (
        lambda: made.step(*batches(1)[0]),
        made.drain,
        lambda: made.evaluate(batches(1)),
        lambda: made.save("nowhere"),
        lambda: made.load("nowhere"),
    ):
        with pytest.raises(RunError, match="this training has ended: make a new Trainer"):
            late()
    assert made.timeline.graph.program.name == "xpipe"
    assert_bit_equal(made.state_dict(), weights)
    assert alive() == []


@pytest.mark.parametrize("schedule", ["1f1b", "pipedream"])
def test_a_trainer_that_is_dropped_leaves_no_thread(schedule: str) -> None:
    stages = mlp(2)
    before = [parameter for stage in stages for parameter in stage.parameters()]
    made = Trainer(stages, schedule=schedule, num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd)
    for pair in batches(3):
        made.step(*pair)
    del made
    gc.collect()
    assert alive() == []
    after = [parameter for stage in stages for parameter in stage.parameters()]
    assert [id(parameter) for parameter in after] == [id(parameter) for parameter in before]


def test_a_trainer_that_is_dropped_in_another_thread_ends_too() -> None:
    """Python collects garbage in any thread: one of the training's own could not wait for its own end."""

    def work() -> None:
        made = trainer(2, "pipedream", 2)
        made.step(*batches(1)[0])
        del made
        gc.collect()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(BOUND_S)
    assert alive() == []
    for left in threading.enumerate():
        if left.name == "end of a trainer":
            left.join(BOUND_S)


@pytest.mark.parametrize("schedule", ["gpipe", "xpipe"])
def test_an_error_of_the_data_ends_the_training_with_its_own_traceback(schedule: str) -> None:
    def data() -> Iterator[tuple[Tensor, Tensor]]:
        yield from batches(3)
        raise OSError("the disk is gone")

    def train() -> None:
        with trainer(2, schedule, 2) as made:
            for pair in data():
                made.step(*pair)

    with pytest.raises(OSError, match="the disk is gone") as raised:
        train()
    assert raised.traceback[-1].name == "data"
    assert alive() == []


def test_a_stage_that_never_ends_is_an_error_within_the_timeout() -> None:
    held = Held()
    made = Trainer([*mlp(1), held], schedule="1f1b", num_micro_batches=1, loss=nn.functional.mse_loss, optimizer=sgd, timeout=0.5)
    with pytest.raises(RunError, match=r"raise timeout if a task may take that long"):
        train_step_by_step(made, batches(1))
    held.may.set()
    assert alive() == []


class Passing:
    """A clock that is put forward, and tells when devices, and whoever waits for them, have looked since then."""

    def __init__(self, num_devices: int) -> None:
        self.passed_s = 0.0
        self.moved = [threading.Semaphore(0) for _ in range(num_devices)]
        self.seen = threading.Semaphore(0)

    def __call__(self) -> float:
        self.seen.release()
        return monotonic() + self.passed_s

    def put_forward(self, seconds: float) -> None:
        self.passed_s += seconds
        self.moved = [threading.Semaphore(0) for _ in self.moved]
        assert all(moved.acquire(timeout=BOUND_S) for moved in self.moved)
        self.seen = threading.Semaphore(0)
        # the first of these looks may have begun before the devices had moved
        assert all(self.seen.acquire(timeout=BOUND_S) for _ in range(2))


def test_a_caller_may_take_longer_than_the_timeout_between_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices without work are not stuck: the caller's own pause, here of 160 s by their clock, is nobody's wait of 60 s."""
    clock, check = Passing(2), Stream._check

    def noted_check(stream: Stream, device: int) -> None:
        check(stream, device)
        clock.moved[device].release()

    monkeypatch.setattr(Stream, "_check", noted_check)
    monkeypatch.setattr("executor.workers.threads.monotonic", clock)
    with trainer(2, "pipedream", 2) as made:
        made.step(*batches(1)[0])
        for _ in range(4):
            clock.put_forward(40.0)
        assert made.step(*batches(1)[0]).loss > 0


def spoilt(data: Data, number: int) -> Data:
    """Return mini-batches of which one has an input that is no number, in its last samples alone."""
    inputs, target = data[number]
    return [*data[:number], (torch.cat([inputs[:-1], inputs[-1:] * math.nan]), target), *data[number + 1 :]]


@pytest.mark.parametrize("schedule", ["1f1b", "xpipe"])
def test_a_loss_that_is_no_number_is_told_once_and_training_goes_on(schedule: str) -> None:
    message = (
        r"the loss of mini-batch 1 is nan on stage 1 \(micro-batch 1, whose input is not finite either\): lower the rate, or clip "
        'gradients; a Trainer with on_nan="raise" ends there; it is said this once'
    )
    with pytest.warns(SchedirWarning, match=message) as told:
        losses, _ = train_step_by_step(trainer(2, schedule, 2), spoilt(batches(4), 1))
    assert len(told) == 1
    assert math.isfinite(losses[0])
    assert math.isnan(losses[1])


class Overflows(nn.Linear):
    """Gives what is not finite for large inputs."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y / 0.0 if bool((x.abs() > 1e3).any()) else y


def overflowing() -> list[nn.Module]:
    torch.manual_seed(0)
    return [kind(4, 4, dtype=torch.float64) for kind in (nn.Linear, Overflows, nn.Linear)]


@pytest.mark.parametrize("recompute", ["never", "always"])
@pytest.mark.parametrize("schedule", ["1f1b", "xpipe"])
def test_the_first_stage_whose_output_is_not_finite_is_named(schedule: str, recompute: str) -> None:
    data = batches(4)
    data[2] = (data[2][0] * 1e6, data[2][1])
    message = r"mini-batch 2 is (nan|-?inf) on stage 2 \(micro-batch [01]; the output of stage 1 is the first that is not finite\):"
    for on_nan in ("raise", "warn"):
        made = Trainer(
            overflowing(),
            schedule=schedule,
            recompute=recompute,
            num_micro_batches=2,
            loss=nn.functional.mse_loss,
            optimizer=sgd,
            on_nan=on_nan,
            timeout=60.0,
        )
        told = pytest.raises(RunError, match=message) if on_nan == "raise" else pytest.warns(SchedirWarning, match=message)
        with told:
            train_step_by_step(made, data)


def test_a_graph_s_training_names_that_stage_too() -> None:
    data = batches(3)
    data[1] = (data[1][0] * 1e6, data[1][1])
    message = r"mini-batch 1 is .* on stage 2 \(micro-batch 0; the output of stage 1 is the first that is not finite\): lower"
    with pytest.warns(SchedirWarning, match=message):
        train(compiled("1f1b", 3, 2), pipeline_of(overflowing()), data, timeout=60)


def test_a_graph_s_training_tells_of_a_loss_that_is_no_number_too() -> None:
    message = r"the loss of mini-batch 2 is nan on stage 1 \(micro-batch 1, whose input is not finite either\): lower the rate"
    with pytest.warns(SchedirWarning, match=message) as told:
        run = train(compiled("1f1b", 2, 2), pipeline_of(mlp(2)), spoilt(batches(4), 2), timeout=60)
    assert len(told) == 1
    assert [math.isnan(loss) for loss in run.losses] == [False, False, True, True]


def test_a_training_can_go_on_without_a_word() -> None:
    losses, _ = train_step_by_step(trainer(2, "1f1b", 2, on_nan="continue"), spoilt(batches(3), 1))
    assert [math.isnan(loss) for loss in losses] == [False, True, True]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1", "pipedream", "pipedream-2bw", "xpipe"])
def test_a_training_can_end_at_a_loss_that_is_no_number_before_it_changes_a_weight(schedule: str) -> None:
    """Weights are finite afterwards, and a new training goes on from them."""
    made = trainer(2, schedule, 2, on_nan="raise")
    message = (
        r"the loss of mini-batch 2 is nan on stage 1 \(micro-batch 1, whose input is not finite either\): training ended before it "
        "changed any weight; go on from a checkpoint with a lower rate, or clip gradients"
    )
    with pytest.raises(RunError, match=message) as caught:
        train_step_by_step(made, spoilt(batches(5), 2))
    assert any(note.startswith("in 1F5 (stage 1, micro-batch 1 of mini-batch 2) on device 1") for note in caught.value.__notes__)
    assert all(bool(parameter.isfinite().all()) for parameter in made.state_dict().values())
    assert alive() == []


def test_what_is_to_be_done_about_a_loss_that_is_no_number_has_three_names() -> None:
    with pytest.raises(ArgumentError, match="on_nan 'stop' is unknown: use warn or raise or continue"):
        trainer(2, "1f1b", 2, on_nan="stop")


class InterruptedOnce(SimpleQueue[Any]):
    """The queue of a device that an interrupt keeps the second order from."""

    def __init__(self) -> None:
        super().__init__()
        self.num_orders = 0

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self.num_orders += item is not None
        if item is not None and self.num_orders == 2:
            raise KeyboardInterrupt
        super().put(item, block, timeout)


@pytest.mark.parametrize("device", [0, 1])
def test_an_interrupt_while_devices_are_given_their_tasks_leaves_no_thread(device: int) -> None:
    """A device that has its tasks waits for one that never gets its own, unless that one says that it ends without."""
    made = trainer(2, "1f1b", 2, timeout=600.0)
    made._engine.stream._orders[device] = InterruptedOnce()
    made.step(*batches(1)[0])
    with pytest.raises(KeyboardInterrupt):
        made.step(*batches(1)[0])
    assert alive() == []

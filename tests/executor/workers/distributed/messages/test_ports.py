"""Values that another process sends a pass ahead of this one, and the pass that another process does not have."""

import threading
from typing import Any

import pytest

from executor.run.clock import Recorder
from executor.workers.distributed.exchange.control import END, WORD, Control
from executor.workers.distributed.messages.ports import RemoteChannel, RemoteSlot
from schedir.errors import ArgumentError


def acquire_now(arrived: threading.Lock, name: str) -> None:
    assert arrived.acquire(blocking=False), f"{name} is not there"


def test_values_that_come_before_the_last_was_taken_keep_their_order() -> None:
    slot = RemoteSlot(acquire_now, "a value")
    for value in ("first", "second", "third"):
        slot.put(value)

    slot.wait()
    assert [slot.take(), slot.take()] == ["first", "second"]
    slot.put("fourth")
    assert [slot.take(), slot.take()] == ["third", "fourth"]
    with pytest.raises(AssertionError, match="a value is not there"):
        slot.wait()


def test_an_empty_slot_takes_in_again() -> None:
    slot = RemoteSlot(acquire_now, "a value")
    for value in (None, 1, 2):
        slot.put(value)
        assert slot.take() == value


def test_each_value_is_recorded_with_its_own_arrival() -> None:
    recorder = Recorder(4)
    channel = RemoteChannel(acquire_now, "a transfer", key=(3, 0), recorder=recorder, lane=None)
    channel.arrive("first", 10)
    channel.arrive("second", 20)

    assert channel.take() == "first"
    assert recorder.times_of(3)[1] == 10
    recorder.reset()
    assert channel.take() == "second"
    assert recorder.times_of(3)[1] == 20


class Lane:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, Any]] = []

    def send(self, key: Any, value: Any) -> None:
        self.sent.append((key, value))


class NoWatch:
    """Nothing has failed."""

    cause = None


def control(number: int, count: int = 3) -> tuple[Control, dict[int, Lane]]:
    made = Control(number, count, NoWatch(), timeout_s=1.0)  # type: ignore[arg-type]  # all that is asked of it here
    lanes = {peer: Lane() for peer in made.peers}
    made.connect(lanes)  # type: ignore[arg-type]  # takes what is sent
    return made, lanes


TEXT = (
    "process 2 comes to the end of the data after pass 1 while process 0 comes to the start of pass 2: give every process the same"
)


def test_a_pass_that_another_process_does_not_have_is_refused_at_its_start() -> None:
    first, _ = control(0)
    first.begin_pass()
    first.deliver(2, END, 1)

    with pytest.raises(ArgumentError, match=TEXT):
        first.begin_pass()


def test_a_pass_that_another_process_does_not_have_is_broken_off() -> None:
    """Process 0 is in its second pass when it hears; nobody would give it what it waits for there."""
    errors: list[BaseException] = []
    first, _ = control(0)
    first.listen(errors.append)
    first.begin_pass()
    first.begin_pass()
    first.deliver(2, END, 1)

    assert [type(error) for error in errors] == [ArgumentError]
    with pytest.raises(ArgumentError, match=TEXT):
        raise errors[0]


@pytest.mark.parametrize("number", [0, 1])
def test_an_end_behind_the_same_pass_is_none_to_speak_of(number: int) -> None:
    errors: list[BaseException] = []
    own, lanes = control(number)
    own.listen(errors.append)
    own.begin_pass()
    own.deliver(own.peers[0], END, 1)
    own.end_passes()

    assert errors == []
    assert all(lane.sent == [(END, 1)] for lane in lanes.values())


def test_words_of_another_pass_are_told_apart() -> None:
    """Process 1 has come to the end of its last pass, which is not process 0's."""
    first, _ = control(0, count=2)
    first.deliver(1, WORD, ("end of pass 3", None))

    with pytest.raises(
        ArgumentError, match=r"process 1 comes to the end of pass 3 while process 0 comes to the end of pass 4: give"
    ):
        first.gather("end of pass 4", None)

"""Threads, ports and the recorder, without any model."""

import threading

import numpy as np
import pytest

from executor.run.clock import Recorder, now
from executor.workers import threads
from executor.workers.base import ExchangePlan, Halted
from executor.workers.ports import LocalSlot
from executor.workers.threads import ThreadWorkers
from schedir.errors import RunError


def workers_of(num_devices: int, recorder: Recorder | None = None, timeout_s: float = 60.0) -> ThreadWorkers:
    return ThreadWorkers(num_devices, recorder or Recorder(4), timeout_s=timeout_s)


def test_a_value_goes_through_a_channel_and_its_span_is_recorded() -> None:
    recorder = Recorder(1)
    workers = workers_of(2, recorder)
    channel = workers.channel(0, "the value", ends=(0, 1))
    taken: list[object] = []
    for value in ("first", "second"):  # a channel is used again in every pass
        workers.run([lambda value=value: channel.put(value), lambda: taken.append(channel.take())])  # type: ignore[misc]  # bound now
    workers.close()
    start, end = recorder.spans()

    assert taken == ["first", "second"]
    assert end[0] >= start[0]


def test_a_value_for_which_nobody_waits_has_arrived_at_once() -> None:
    recorder = Recorder(1)
    channel = workers_of(1, recorder).channel(0, "the value", ends=(0, 0))
    channel.put("early")

    assert channel.take() == "early"
    assert np.ptp(recorder.spans()) == 0


def test_waiting_leaves_the_value_to_another() -> None:
    channel = workers_of(1).channel(0, "the value", ends=(0, 0))
    channel.put("kept")
    channel.wait()
    channel.wait()

    assert channel.take() == "kept"


def test_a_local_slot_forgets_what_was_taken() -> None:
    slot = LocalSlot()
    slot.put("value")
    slot.wait()

    assert [slot.take(), slot.take()] == ["value", None]


def test_totals_are_taken_in_the_order_of_the_members_whoever_comes_first() -> None:
    workers = workers_of(2)
    exchange = workers.exchange(ExchangePlan(0, "the total", members=(0, 1, 2), takers=(0, 1), total="".join))
    for number, value in ((2, "c"), (0, "a"), (1, "b")):
        exchange.member(number).put(value)

    assert [exchange.taker(0).take(), exchange.taker(1).take()] == ["abc", "abc"]


def test_work_runs_in_threads_of_its_own_that_end_with_the_workers() -> None:
    workers = workers_of(3)
    names: set[str] = set()
    workers.run([lambda: names.add(threading.current_thread().name)] * 3)
    workers.close()

    assert names == {"device 0", "device 1", "device 2"}
    assert not names & {thread.name for thread in threading.enumerate()}


def test_the_first_error_is_raised_and_the_others_are_halted() -> None:
    workers = workers_of(2)
    channel = workers.channel(0, "what never comes", ends=(0, 1))
    halted: list[bool] = []

    def fails() -> None:
        raise LookupError("the cause")

    def waits() -> None:
        try:
            channel.take()
        except Halted:
            halted.append(True)
            raise

    with pytest.raises(LookupError, match="the cause"):
        workers.run([fails, waits])
    workers.close()
    assert halted == [True]
    with pytest.raises(Halted):
        workers.check(0, 0)


def test_a_wait_ends_after_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller has more patience than the thread takes to come to its wait on a busy machine."""
    monkeypatch.setattr(threads, "GRACE_S", 300.0)
    workers = workers_of(1, timeout_s=0.1)
    channel = workers.channel(0, "what never comes", ends=(0, 1))

    with pytest.raises(RunError, match=r"device 0 waited 0\.1 s for what never comes: raise timeout if a task may take that long"):
        workers.run([channel.take])
    workers.close()


def test_a_run_in_which_nothing_moves_ends_too() -> None:
    gate = threading.Event()
    workers = workers_of(1, timeout_s=0.1)

    def hang() -> None:
        gate.wait(600)

    with pytest.raises(RunError, match=r"no task of device 0 ended for 0\.1 s"):
        workers.run([hang])
    gate.set()
    workers.close()
    for thread in threading.enumerate():
        if thread.name == "device 0":
            thread.join(60)


def test_workers_that_never_ran_can_be_closed() -> None:
    workers_of(2).close()


def test_times_count_from_the_first_start_and_what_was_not_recorded_is_missing() -> None:
    recorder = Recorder(3)
    recorder.record(2, 2_000_000_000, 5_000_000_000)
    recorder.record(0, 4_000_000_000, 4_500_000_000)
    start, end = recorder.spans()

    assert start[[0, 2]].tolist() == [2.0, 0.0]
    assert end[[0, 2]].tolist() == [2.5, 3.0]
    assert np.isnan([start[1], end[1]]).all()
    recorder.reset()
    assert np.isnan(recorder.spans()).all()


def test_what_has_only_begun_is_missing() -> None:
    recorder = Recorder(2)
    recorder.begin(0)
    recorder.record(1, 4_000_000_000, 5_000_000_000)
    start, end = recorder.spans()

    assert np.isnan([start[0], end[0]]).all()
    assert (start[1], end[1]) == (0.0, 1.0)


def test_the_present_lies_between_two_records() -> None:
    recorder = Recorder(2)
    recorder.begin(0)
    between = now()
    recorder.begin(1)

    assert recorder.times_of(0)[0] <= between <= recorder.times_of(1)[0]

"""Rings: times and reads of the newest tasks, under names that never end."""

import pytest

from executor.run.clock import UNRECORDED
from executor.run.ring import RingLog, RingRecorder

NOTHING = (UNRECORDED, UNRECORDED)


def test_a_task_s_times_are_known_until_another_takes_its_place() -> None:
    """A ring of 3: task 5 takes the place of task 2."""
    ring = RingRecorder(3)
    for task in (2, 3, 4):
        ring.record(task, 10 * task, 10 * task + 1)
    assert [ring.times_of(task) for task in (2, 3, 4)] == [(20, 21), (30, 31), (40, 41)]
    ring.record(5, 50, 51)

    assert [ring.times_of(task) for task in (2, 3, 4, 5)] == [NOTHING, (30, 31), (40, 41), (50, 51)]


def test_a_task_that_has_begun_has_no_end_of_the_one_before_it() -> None:
    ring = RingRecorder(2)
    ring.record(0, 10, 20)
    ring.begin(2)
    begun, end = ring.times_of(2)
    assert end == UNRECORDED
    ring.finish_at_once(2)
    assert ring.times_of(2) == (begun, begun)
    ring.finish(2)

    assert ring.times_of(2)[0] == begun <= ring.times_of(2)[1]


def test_what_is_no_task_takes_no_task_s_place() -> None:
    ring = RingRecorder(2)
    for task in (0, 1):
        ring.record(task, 10, 20)
    ring.begin(-1)
    ring.finish(-7)

    assert [ring.times_of(task) for task in (0, 1)] == [(10, 20)] * 2


@pytest.mark.parametrize("task", [0, 1, 2])
def test_of_a_ring_that_is_new_or_was_reset_nothing_is_known(task: int) -> None:
    ring = RingRecorder(2)
    assert ring.times_of(task) == NOTHING
    ring.record(task, 10, 20)
    ring.reset()

    assert ring.times_of(task) == NOTHING


def test_reads_are_known_by_half_until_another_takes_their_place() -> None:
    log = RingLog(3)
    log.note(1, 0, (4, 2))
    log.note(1, 1, (5, 0))
    assert (log.read(1), log.read(1, 1), log.read(4)) == ((4, 2), (5, 0), None)
    log.note(4, 0, (6, 1))

    assert (log.read(1), log.read(1, 1), log.read(4)) == (None, (5, 0), (6, 1))


@pytest.mark.parametrize("task", [0, 1, 2])
def test_of_a_log_that_is_new_or_was_reset_nothing_is_known(task: int) -> None:
    log = RingLog(2)
    assert log.read(task) is None
    log.note(task, 0, (4, 2))
    log.reset()

    assert log.read(task) is None


def test_a_log_that_was_reset_knows_nothing_of_the_second_halves_of_pairs_either() -> None:
    log = RingLog(2)
    log.note(1, 1, (4, 2))
    log.reset()

    assert log.read(1, 1) is None

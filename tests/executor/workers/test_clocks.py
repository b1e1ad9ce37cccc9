"""Offsets from round trips, worked out by hand in whole nanoseconds."""

import numpy as np
import pytest

from executor.workers.clocks import SAME_CLOCK, AlignedClock, Offset, RoundTrip, estimate


def test_one_round_trip_bounds_the_offset_by_half_of_its_time_on_the_way() -> None:
    """Sent at 100, there from 1030 to 1040 on a clock that is 900 ahead, back at 160: 30 and 20 on the way."""
    found = estimate([RoundTrip(sent=100, received_there=1030, sent_there=1040, received=160)])

    assert (found.offset, found.bound) == (905, 25)  # between 1040 - 160 and 1030 - 100
    assert found.at == 130


def test_several_round_trips_bound_the_offset_more_tightly_than_the_best_of_them() -> None:
    slow_there = RoundTrip(sent=0, received_there=950, sent_there=950, received=60)  # 890 … 950
    slow_back = RoundTrip(sent=100, received_there=1010, sent_there=1010, received=160)  # 850 … 910

    assert estimate([slow_there]).bound == estimate([slow_back]).bound == 30
    found = estimate([slow_there, slow_back])
    assert (found.offset, found.bound) == (900, 10)


def test_times_between_two_syncs_are_corrected_along_a_straight_line() -> None:
    corrected = AlignedClock(Offset(1000, 50, 3), Offset(2000, 60, 5)).corrected(np.array([1000, 1500, 2000], np.int64))

    assert corrected.tolist() == [1050, 1555, 2060]


def test_drift_and_bound_are_those_of_the_syncs() -> None:
    clock = AlignedClock(Offset(1000, 50, 3), Offset(2000, 60, 5))

    assert clock.drift == pytest.approx(0.01)
    assert clock.bound_s == pytest.approx(5e-9)


def test_the_same_clock_is_not_corrected() -> None:
    """Nanoseconds since the host's start have more digits than a float: nothing may be lost."""
    assert AlignedClock(SAME_CLOCK, SAME_CLOCK).corrected(np.array([2**60 + 1], np.int64)).tolist() == [2**60 + 1]

"""Who counts as silent: whoever has not changed for as long as this process has really looked."""

import pytest

from executor.workers.distributed.meeting import silence
from executor.workers.distributed.meeting.silence import Silence


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the clock, whose one number a test sets."""
    clock = [0.0]
    monkeypatch.setattr(silence, "monotonic", lambda: clock[0])
    return clock


def looks(now: list[float], *moments: tuple[float, str]) -> list[bool]:
    made, found = Silence(limit_s=1.0, look_s=0.25), []
    for moment, sign in moments:
        now[0] = moment
        found.append(made.is_too_long(sign))
    return found


def test_a_sign_that_stays_the_same_for_longer_than_the_limit_is_silence(now: list[float]) -> None:
    moments = [(0.25 * count, "beat 1") for count in range(7)]

    assert looks(now, *moments) == [False] * 5 + [True] * 2


def test_a_sign_that_changes_begins_anew(now: list[float]) -> None:
    moments = [(0.25 * count, "beat 1" if count < 4 else "beat 2") for count in range(9)]

    assert looks(now, *moments) == [False] * 9


def test_time_in_which_this_process_was_stopped_itself_does_not_count(now: list[float]) -> None:
    """Ten seconds without a look count as two looks, 0.5 s; then three quarters of a second are missing."""
    moments = [(0.0, "beat 1"), (10.0, "beat 1"), (10.25, "beat 1"), (10.5, "beat 1"), (10.75, "beat 1")]

    assert looks(now, *moments) == [False, False, False, False, True]

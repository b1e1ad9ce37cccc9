"""How threads wait for each other: short waits are napped through, and Python's lock changes hands soon."""

import sys
import threading

import pytest

from executor.run.clock import Recorder
from executor.workers import waking
from executor.workers.threads import ThreadWorkers
from executor.workers.waking import SWITCH_S, nap_until, quick_switching, usable_cores

QUICK = pytest.approx(SWITCH_S, rel=0.05)
"""Python rounds to microseconds."""


def test_at_least_one_core_is_usable() -> None:
    assert usable_cores() >= 1


def test_a_lock_that_is_released_is_acquired() -> None:
    lock = threading.Lock()

    assert nap_until(lock)
    assert lock.locked()


def test_nobody_naps_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waking, "NAPPED_S", 0.0)
    lock = threading.Lock()
    lock.acquire()

    assert not nap_until(lock)


def test_the_last_to_leave_puts_pythons_interval_back() -> None:
    before = sys.getswitchinterval()
    first, second = quick_switching(), quick_switching()
    with first:
        second.__enter__()
        assert sys.getswitchinterval() == QUICK
    assert sys.getswitchinterval() == QUICK
    second.__exit__(None, None, None)

    assert sys.getswitchinterval() == before


def test_an_interval_that_is_shorter_already_stays() -> None:
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(SWITCH_S / 4)
        shorter = sys.getswitchinterval()
        with quick_switching():
            assert sys.getswitchinterval() == shorter
    finally:
        sys.setswitchinterval(before)


def test_an_error_of_a_device_leaves_pythons_interval_as_it_was() -> None:
    before = sys.getswitchinterval()
    seen = []

    def fail() -> None:
        seen.append(sys.getswitchinterval())
        raise LookupError("lost")

    workers = ThreadWorkers(1, Recorder(1), timeout_s=60.0)
    with pytest.raises(LookupError, match="lost"):
        workers.run([fail])
    workers.close()

    assert sys.getswitchinterval() == before
    assert seen == [QUICK]


@pytest.mark.parametrize(("cores", "naps"), [(2, True), (1, False)])
def test_devices_nap_only_where_each_has_a_core(monkeypatch: pytest.MonkeyPatch, cores: int, naps: bool) -> None:
    napped: list[threading.Lock] = []

    def nap(lock: threading.Lock) -> bool:
        napped.append(lock)
        return lock.acquire(timeout=60.0)

    monkeypatch.setattr("executor.workers.threads.usable_cores", lambda: cores)
    monkeypatch.setattr("executor.workers.threads.nap_until", nap)
    workers = ThreadWorkers(2, Recorder(1), timeout_s=60.0)
    lock = threading.Lock()

    workers.wait_for(lock, "the lock")

    assert lock.locked()
    assert bool(napped) is naps

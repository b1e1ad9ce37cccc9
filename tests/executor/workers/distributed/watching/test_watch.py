"""Two watches on one store: who is alive, who has died, and what an interrupt means then."""

import signal
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from types import SimpleNamespace

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]  # torch lists no names

from executor.workers.distributed.meeting.start import Participant
from executor.workers.distributed.team import ProcessTeam
from executor.workers.distributed.watching import watch
from executor.workers.distributed.watching.causes import Cause
from executor.workers.distributed.watching.watch import Watch
from executor.workers.environment import ProcessPlace
from schedir.errors import RunError

LOST_S = 300.0
"""Nothing here waits until somebody is lost."""
MEMBERS = tuple(Participant(number, "a", 100 + number, "a clock", "") for number in range(2))


@pytest.fixture
def watches() -> Iterator[tuple[Watch, Watch]]:
    """Return the watches of two processes, of which the second has not begun."""
    store = HashStore()
    both = Watch(0, MEMBERS, store, lost_s=LOST_S), Watch(1, MEMBERS, store, lost_s=LOST_S)
    both[0].start()
    yield both
    store.set("left/1", "")  # or process 0, which leaves last, would wait for one that has never begun
    for each in both[::-1]:
        each.stop()


def test_whoever_is_interrupted_while_all_are_alive_hears_of_no_cause(watches: tuple[Watch, Watch]) -> None:
    first, second = watches
    second.start()
    first.hear_out()
    second.hear_out()

    assert first.cause is None
    assert second.cause is None


def test_whoever_is_interrupted_because_another_died_hears_who(watches: tuple[Watch, Watch]) -> None:
    """Process 1 says nothing, so process 0 waits until a lane tells that the connection broke."""
    first, _ = watches
    lane = threading.Thread(target=lambda: first.broken(1, ConnectionError("closed")))
    lane.start()
    first.hear_out()
    lane.join()

    assert first.cause is not None
    assert first.cause.process == 1
    assert "process 1 (host a, device 1) is gone: its connection to process 0, broke" in first.cause.text


def test_nobody_waits_for_a_process_that_has_left_in_peace(watches: tuple[Watch, Watch]) -> None:
    first, second = watches
    second.start()
    second.stop()
    first.hear_out()

    assert first.cause is None


def test_a_watch_that_has_not_begun_has_nothing_to_hear(watches: tuple[Watch, Watch]) -> None:
    watches[1].hear_out()

    assert watches[1].cause is None


def failed(error: BaseException, cause: Cause) -> BaseException:
    """Return what process 0 raises for an error, if all have agreed on a cause."""
    made = object.__new__(ProcessTeam)
    heard: list[None] = []
    known = SimpleNamespace(cause=cause, hear_out=lambda: heard.append(None), position=SimpleNamespace(waits_for=-1))
    mesh = SimpleNamespace(number=0, members=MEMBERS, watch=known, break_off=lambda: None)
    vars(made).update(_mesh=mesh, _place=ProcessPlace(0, 2, "a", 1))
    shown = made.failed(error)
    assert len(heard) == isinstance(error, KeyboardInterrupt)
    return shown


def test_an_interrupt_behind_the_death_of_another_shows_the_death() -> None:
    """So it is under torchrun, whose agent ends the others by SIGTERM."""
    shown = failed(KeyboardInterrupt(), Cause(1, "process 1 is gone"))

    assert isinstance(shown, RunError)
    assert str(shown) == "process 1 is gone"


def test_an_interrupt_of_all_is_each_one_s_own() -> None:
    interrupt = KeyboardInterrupt()

    assert failed(interrupt, Cause(1, "process 1 was ended by KeyboardInterrupt", error="KeyboardInterrupt")) is interrupt


def test_a_training_whose_agent_has_died_ends(watches: tuple[Watch, Watch], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "agent_is_gone", lambda: True)
    decided = threading.Event()
    watches[0].listen(lambda _: decided.set())

    assert decided.wait(LOST_S)
    cause = watches[0].cause
    assert cause is not None
    assert cause.text.startswith("torchrun's agent, which started process 0 (host a, device 0), is gone")


@pytest.mark.parametrize(
    ("keeps", "who"), [("True", "torchrun's agent is gone, or its host, and with it the store"), ("", "process 0")]
)
def test_a_store_that_is_gone_is_its_keeper_s_end(monkeypatch: pytest.MonkeyPatch, keeps: str, who: str) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", keeps)
    decided = threading.Event()

    def gone(*_: object) -> None:
        raise RuntimeError("Connection reset by peer")

    made = Watch(1, MEMBERS, SimpleNamespace(set=gone), lost_s=LOST_S)  # type: ignore[arg-type]  # a store that is gone
    made.listen(lambda _: decided.set())
    made.start()

    assert decided.wait(LOST_S)
    made.stop()
    assert made.cause is not None
    assert made.cause.text.startswith(who)


def test_a_caller_who_is_busy_elsewhere_is_ended_as_the_agent_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BREAK_OFF_S", "LINGER_S"):
        monkeypatch.setattr(watch, name, 0.0)
    monkeypatch.setattr(watch, "agent_is_gone", lambda: True)
    got = SimpleQueue[int]()  # a handler may come while its thread looks into an event, and would wait for that for ever
    before = signal.signal(signal.SIGTERM, lambda number, _: got.put(number))
    made = Watch(0, MEMBERS, HashStore(), lost_s=0.0)
    made.start()
    try:
        assert got.get(timeout=LOST_S) == signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)
        made.stop()

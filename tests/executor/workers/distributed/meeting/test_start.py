"""The start of a run, where others may be dead, stopped, or late: every wait has a limit and says for whom it was."""

import os
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from executor.workers import environment
from executor.workers.distributed.meeting import start
from executor.workers.distributed.meeting.launch import HOST
from executor.workers.distributed.meeting.silence import Silence
from executor.workers.distributed.meeting.start import meet
from executor.workers.environment import LISTENING, ProcessPlace
from schedir.errors import RunError
from tests.left_threads import left_since


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Listen where the store should be: connections are made, but nobody answers, as by a process that is stopped."""
    with socket.create_server((HOST, 0)) as listening:
        port = listening.getsockname()[1]
        monkeypatch.setenv("WORLD_SIZE", "3")
        monkeypatch.setenv("MASTER_ADDR", HOST)
        monkeypatch.setenv("MASTER_PORT", str(port))
        monkeypatch.setenv(LISTENING, str(os.dup(listening.fileno())))
        start.store.cache_clear()
        yield port
        start.store.cache_clear()


@pytest.fixture
def first(port: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Be the process that keeps the store, on the port that is listened on already."""
    monkeypatch.setenv("RANK", "0")
    return port


def test_a_store_that_does_not_answer_is_given_up_and_named(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(start, "MOST_CONNECT_S", 0.5)
    with pytest.raises(RunError, match=rf"^process 1 .* the store at {HOST}:{port}, which process 0 keeps"):
        start.store()


def test_the_store_is_kept_on_the_socket_that_was_opened_for_it(first: int) -> None:
    start.store().set("key", "value")
    other = start.second_client()
    assert other.get("key") == b"value"
    assert first


def test_a_process_that_does_not_come_is_named_and_nobody_waits_for_it_any_more(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is up at once, be it before the first look at the store or behind it."""
    before = threading.enumerate()
    monkeypatch.setattr(start, "come_after", lambda _: 0.0)
    message = r"^process 0 waited at the start of the run for process 1, 2 of 3, and nothing came within 0 s: look at its output$"
    with pytest.raises(RunError, match=message):
        meet("a run", "", timeout_s=0.5)
    assert left_since(before) == []
    assert first


def test_who_has_come_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    came = ["hello/0"]
    made = meeting(count=3, set=lambda key, _: came.append(key), check=lambda keys: set(keys) <= set(came))
    monkeypatch.setattr(start, "sleep", lambda _: setattr(made, "is_over", True))  # behind the first look

    assert made.hold(start.Participant(1, "a", 1, "", "")) == ()
    assert made.about() == "process 1 waited at the start of the run for process 2 of 3"
    assert came == ["hello/0", "hello/1"]


def meeting(*, count: int = 2, **store: Any) -> start._Meeting:
    here = ProcessPlace(1, count, "a", 29500)
    return start._Meeting(SimpleNamespace(**store), here, Silence(limit_s=0.0, look_s=0.1))  # type: ignore[arg-type]


def test_a_store_that_stops_answering_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    message = r"^the store at a:29500, which {} keeps, has not answered process 1 for 0 s: it is stopped, or its host is gone$"
    for keeps, keeper in (("False", "process 0"), ("True", "torchrun's agent")):
        monkeypatch.setenv(environment.AGENT_KEEPS_STORE, keeps)
        made = meeting()
        made.look()  # the first look begins to count
        with pytest.raises(RunError, match=message.format(keeper)):
            made.look()


def test_an_agent_that_has_died_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", HOST)
    monkeypatch.setenv("MASTER_PORT", "1")
    start.check_agent()
    monkeypatch.setattr(environment, "PARENT", os.getppid() + 1)
    start.check_agent()  # whoever started this process was no agent: it may leave
    monkeypatch.setenv(environment.AGENT_ID, "a run")
    with pytest.raises(RunError, match=r"^torchrun's agent, which started process 1, is gone$"):
        start.check_agent()


def test_a_process_never_says_that_it_waits_for_itself() -> None:
    """Also before its first look at the store, which may be when it is interrupted."""
    assert meeting().about() == "process 1 waited at the start of the run for process 0 of 2"

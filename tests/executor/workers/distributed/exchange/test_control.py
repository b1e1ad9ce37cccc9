"""Words between processes: who waits for whom, and for how long; on a clock of the test's own."""

from types import SimpleNamespace
from typing import Any

import pytest

from executor.workers.distributed.exchange import control
from executor.workers.distributed.exchange.control import END, WORD, Control
from executor.workers.distributed.watching.causes import Cause
from schedir.errors import ArgumentError, RunError


class Watch:
    """Another process, seen every 3 s; it goes on for as many looks as are given, and then stands still."""

    def __init__(self, patch: pytest.MonkeyPatch, *, looks: int = 0) -> None:
        self.now, self.looks, self.left = 0.0, 0, looks
        self.cause: Cause | None = None
        self.position = SimpleNamespace(waits_for=-1)
        patch.setattr(control, "monotonic", lambda: self.now)
        patch.setattr(control, "POLL_S", 1e-4)

    def progress(self, number: int) -> str:
        assert number == 1
        self.now += 3.0
        self.looks += 1
        return f"at task {min(self.looks, self.left)}" if self.left else ""


class Lane:
    def __init__(self) -> None:
        self.sent: list[tuple[Any, Any]] = []

    def send(self, key: Any, value: object, **_: Any) -> None:
        self.sent.append((key, value))


def control_of(number: int, count: int, watch: Watch) -> Control:
    return Control(number, count, watch, timeout_s=10.0)  # type: ignore[arg-type]  # as much of a watch as is looked at


def connect(star: Control, lanes: dict[int, Lane]) -> None:
    star.connect(dict(lanes))  # type: ignore[arg-type]  # as much of a lane as sends


def test_a_process_that_stands_still_is_waited_for_as_long_as_the_limit_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 s, looked at every 3 s: given up at 12."""
    watch = Watch(monkeypatch)
    with pytest.raises(RunError, match=r"^waited 10 s for process 1 at the end of a pass: raise timeout if it needs longer$"):
        control_of(0, 2, watch).gather("end of pass 1", None)

    assert (watch.now, watch.position.waits_for) == (12.0, 1)


def test_the_limit_counts_from_the_last_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on until 300 s, and is given up at the first look behind 310."""
    watch = Watch(monkeypatch, looks=100)
    with pytest.raises(RunError, match="waited 10 s for process 1"):
        control_of(0, 2, watch).gather("end of pass 1", None)

    assert watch.now == 312.0


def test_who_waits_hears_why_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch, looks=100)
    watch.cause = Cause(2, "process 2 is gone")
    with pytest.raises(RunError, match=r"^process 2 is gone$"):
        control_of(0, 3, watch).gather("end of pass 1", None)


def test_process_0_has_the_values_in_the_order_of_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    star = control_of(0, 3, Watch(monkeypatch))
    for peer, value in ((2, "c"), (1, "b")):
        star.deliver(peer, WORD, ("end of pass 1", value))

    assert star.gather("end of pass 1", "a") == ["a", "b", "c"]


def test_the_others_only_tell_it_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    star, lane = control_of(1, 3, Watch(monkeypatch)), Lane()
    connect(star, {0: lane})

    assert star.gather("end of pass 1", "b") == []
    assert lane.sent == [(WORD, ("end of pass 1", "b"))]
    star.deliver(0, WORD, "all")
    assert star.broadcast("mine") == "all"


def test_who_has_come_to_another_point_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    star = control_of(0, 2, Watch(monkeypatch))
    star.deliver(1, WORD, ("end of pass 2", None))
    with pytest.raises(ArgumentError, match="process 1 comes to the end of pass 2 while process 0 comes to the end of pass 1"):
        star.gather("end of pass 1", None)


@pytest.mark.parametrize(("passes", "of_other", "fails"), [(2, 2, False), (2, 3, False), (3, 2, True)])
def test_a_process_with_fewer_passes_is_named_whoever_hears_of_it_first(
    *, monkeypatch: pytest.MonkeyPatch, passes: int, of_other: int, fails: bool
) -> None:
    """Begun before the other's end is heard of, or behind it."""
    message = f"process 1 comes to the end of the data after pass {of_other} while process 0 comes to the start of pass {passes}"
    heard: list[BaseException] = []
    late = control_of(0, 2, Watch(monkeypatch))
    late.listen(heard.append)
    for _ in range(passes):
        late.begin_pass()
    late.deliver(1, END, of_other)
    assert [str(error).startswith(message) for error in heard] == [True] * fails

    early = control_of(0, 2, Watch(monkeypatch))
    early.deliver(1, END, of_other)
    for _ in range(passes - 1):
        early.begin_pass()
    if fails:
        with pytest.raises(ArgumentError, match=message):
            early.begin_pass()
    else:
        early.begin_pass()


def test_all_others_hear_how_many_passes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    star, lanes = control_of(0, 3, Watch(monkeypatch)), {1: Lane(), 2: Lane()}
    connect(star, lanes)
    star.begin_pass()
    star.end_passes()

    assert [lane.sent for lane in lanes.values()] == [[(END, 1)]] * 2

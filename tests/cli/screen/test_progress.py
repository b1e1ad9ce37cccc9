"""Progress goes to a terminal on stderr, and nowhere else."""

import io
import threading

import pytest

from schedir.cli.screen import progress
from schedir.cli.screen.progress import Steps, Underway


class Terminal(io.StringIO):
    """A terminal that tells when a text is shown on it."""

    def __init__(self, awaited: str) -> None:
        super().__init__()
        self._awaited, self.shown = awaited, threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written = super().write(text)
        if self._awaited in self.getvalue():
            self.shown.set()
        return written


def test_long_work_says_on_a_terminal_what_is_done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal("simulates 1f1b")
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "QUIET", 0.0)
    with Underway("simulates 1f1b"):
        assert terminal.shown.wait(60)

    assert capsys.readouterr().out == ""


def test_what_is_done_at_once_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal("anything")
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "QUIET", 3600.0)
    with Underway("anything") as underway:
        underway.now("something else")

    assert terminal.getvalue() == ""


def test_without_a_terminal_nothing_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "QUIET", 0.0)
    with Underway("simulates 1f1b"), Steps(lines=False) as steps:
        steps.show(0, 2, "trains")

    assert capsys.readouterr() == ("", "")


def test_a_log_has_one_line_of_each_phase_that_nothing_the_user_gave_can_end(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log("draws out/compare.png\n")
    monkeypatch.setattr("sys.stderr", log)
    monkeypatch.setattr(progress, "QUIET", 0.0)
    with Underway("draws out/compare.png", logged=True):
        assert log.shown.wait(60)
    assert log.getvalue() == "draws out/compare.png\n"

    log = Log("writes\n")
    monkeypatch.setattr("sys.stderr", log)
    with Underway("simulates 1f1b") as underway:
        underway.now("writes", logged=True)
        assert log.shown.wait(60)
    assert log.getvalue() == "writes\n"


def test_a_log_has_no_line_of_what_was_done_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "QUIET", 3600.0)
    before = set(threading.enumerate())
    with Underway("reads", logged=True) as underway:
        underway.now("draws", logged=True)
        timers = set(threading.enumerate()) - before
    for timer in timers:
        timer.join(60)
        assert not timer.is_alive()

    assert capsys.readouterr() == ("", "")


def test_steps_have_a_bar_on_stderr_and_their_lines_on_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal("gpipe: trains")
    monkeypatch.setattr("sys.stderr", terminal)
    with Steps() as steps:
        steps.say("small: ones")
        steps.show(0, 12, "gpipe: trains")

    assert terminal.shown.is_set()
    assert "1/12" not in terminal.getvalue()  # the first step is under way, none is done
    # stdout is no terminal here: a log gets a line per step
    assert capsys.readouterr().out == "small: ones\n[ 1/12] gpipe: trains\n"


def test_who_shall_be_quiet_shows_nothing_even_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal("anything")
    monkeypatch.setattr("sys.stderr", terminal)
    with Steps(quiet=True) as steps:
        steps.say("anything")
        steps.show(0, 1, "anything")

    assert (terminal.getvalue(), capsys.readouterr().out) == ("", "")


class Log(Terminal):
    """A file or pipe that tells when a text is in it."""

    def isatty(self) -> bool:
        return False


def test_a_log_gets_a_line_of_what_takes_longer_than_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log("loading torch\n")
    monkeypatch.setattr("sys.stdout", log)
    monkeypatch.setattr(progress, "QUIET", 0.0)
    with Steps() as steps:
        steps.status("loading torch")
        assert log.shown.wait(60)
        monkeypatch.setattr(progress, "QUIET", 3600.0)
        steps.status("building")
        steps.say("small: ones")

    assert log.getvalue() == "loading torch\nsmall: ones\n"


@pytest.mark.parametrize("end", ["say", "done", "status", "exit"])
def test_what_is_done_before_two_seconds_leaves_no_line_and_no_thread(end: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(threading.enumerate())
    with Steps() as steps:
        steps.status("loading torch")
        (timer,) = set(threading.enumerate()) - before
        if end == "say":
            steps.say("small: ones")
        elif end == "done":
            steps.done(1, 12, "loss 3")
        elif end == "status":
            steps.status("building")
        if end != "exit":
            timer.join(60)
            assert not timer.is_alive()
    timer.join(60)

    assert capsys.readouterr().out == ("small: ones\n" if end == "say" else "")


def test_a_stage_that_is_timed_has_its_line_at_once_and_no_thread_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    before = set(threading.enumerate())
    with Steps() as steps:
        steps.stage("training by 1f1b")
        assert set(threading.enumerate()) <= before

    assert capsys.readouterr().out == "training by 1f1b\n"

"""Of several processes that torchrun started on one host one says what all of them have found."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from schedir import together
from schedir.cli import main
from schedir.together import NAME, is_said_by_another


class Host:
    """Processes of one host: each has a folder of torchrun's."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch

    def enter(self, number: int, count: int = 3) -> None:
        """Be the process of this number from here on."""
        (self._folder / str(number)).mkdir(exist_ok=True)
        self._monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(self._folder / str(number) / "error.json"))
        self._monkeypatch.setenv("LOCAL_RANK", str(number))
        self._monkeypatch.setenv("LOCAL_WORLD_SIZE", str(count))

    def asks(self, number: int, line: str) -> bool:
        """Return what a process is told that is about to say a line."""
        self.enter(number)
        return is_said_by_another(line)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Nobody waits: who says something has said it before, where a test does not say otherwise."""
    monkeypatch.setattr(together, "WAIT_S", 0.0)
    return Host(tmp_path, monkeypatch)


def test_what_all_have_found_is_said_by_the_first(host: Host) -> None:
    assert [host.asks(number, "schedule x is unknown") for number in range(3)] == [False, True, True]


def test_what_one_alone_knows_is_said_by_it(host: Host) -> None:
    assert [host.asks(number, f"no file on host {number}") for number in range(3)] == [False, False, False]


def test_a_process_whose_first_says_nothing_says_its_line_itself(host: Host) -> None:
    assert [host.asks(number, "schedule x is unknown") for number in (1, 2)] == [False, False]


def test_whoever_is_interrupted_is_silent_where_another_has_said_the_cause(host: Host) -> None:
    assert not host.asks(1, "no file on host 1")
    assert host.asks(0, "interrupted")
    assert host.asks(2, "interrupted while process 2 waited for the store")


def test_where_all_are_interrupted_the_first_says_so(host: Host) -> None:
    assert [host.asks(number, "interrupted") for number in range(3)] == [False, True, True]


def test_the_first_is_waited_for(host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever waits has looked once in vain before the first says its line."""
    monkeypatch.setattr(together, "WAIT_S", 120.0)
    looked = threading.Event()

    def tell() -> None:
        looked.wait(120)
        (tmp_path / "0").mkdir()
        (tmp_path / "0" / NAME).write_text("schedule x is unknown")

    monkeypatch.setattr(together, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: looked.set()))
    teller = threading.Thread(target=tell)
    teller.start()
    assert host.asks(1, "schedule x is unknown")
    teller.join(120)


@pytest.mark.parametrize("variable", ["TORCHELASTIC_ERROR_FILE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"])
def test_whoever_was_not_started_by_torchrun_says_everything(variable: str, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not host.asks(0, "schedule x is unknown")
    host.enter(1)
    monkeypatch.setenv(variable, "")
    assert not is_said_by_another("schedule x is unknown")


def test_where_nothing_can_be_written_everybody_says_his_own(host: Host, tmp_path: Path) -> None:
    host.enter(0)
    (tmp_path / "0").rmdir()
    assert not is_said_by_another("schedule x is unknown")
    assert not host.asks(1, "schedule x is unknown")


def test_a_command_has_the_line_of_its_error_once(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        host.enter(number, count=2)
        assert main(["show", "nothing"]) == 2
    assert capsys.readouterr().err.count("error: ") == 1

"""Files of one piece of work take their places together, whoever ends the process meanwhile."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedir.errors import ArgumentError
from schedir.workflows.files import write_text
from schedir.workflows.filled_folder import filled_whole, finish_left_over, signals_held
from tests.left_over import GONE, THERE, beside


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_folder_is_filled_beside_what_it_holds(tmp_path: Path) -> None:
    write_text(tmp_path / "out" / "mine.txt", "mine")
    write_text(tmp_path / "out" / "report.json", "old")
    with filled_whole(tmp_path / "out") as partial:
        write_text(partial / "report.json", "new")
        write_text(partial / "plots" / "a.svg", "<svg/>")
        assert (tmp_path / "out" / "report.json").read_text() == "old"

    assert names(tmp_path) == ["out/mine.txt", "out/plots/a.svg", "out/report.json"]
    assert (tmp_path / "out" / "report.json").read_text() == "new"


def test_a_folder_is_untouched_when_filling_it_fails(tmp_path: Path) -> None:
    def fail() -> None:
        with filled_whole(tmp_path / "out") as partial:
            write_text(partial / "report.json", "new")
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_killed_processes_have_begun_to_fill_a_folder_with_goes(tmp_path: Path) -> None:
    for writer in (GONE, THERE):
        write_text(tmp_path / "out" / beside("files", writer) / "report.json", "begun")
    with filled_whole(tmp_path / "out") as partial:
        write_text(partial / "report.json", "new")

    assert names(tmp_path / "out") == [f"{beside('files', THERE)}/report.json", "report.json"]
    assert (tmp_path / "out" / "report.json").read_text() == "new"


def test_two_threads_may_fill_one_folder_at_once(tmp_path: Path) -> None:
    with filled_whole(tmp_path / "out") as one:
        write_text(one / "one.txt", "1")
        with filled_whole(tmp_path / "out") as other:
            write_text(other / "two.txt", "2")

    assert names(tmp_path) == ["out/one.txt", "out/two.txt"]


def test_a_place_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file, no folder")
    place = r"out/deep cannot be written: .*: name a place you may write to"
    with pytest.raises(ArgumentError, match=place), filled_whole(tmp_path / "out" / "deep"):
        pass


def test_a_name_that_a_folder_has_is_refused_before_any_file_moves(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "old")
    (tmp_path / "b.txt").mkdir()

    def fill() -> None:
        with filled_whole(tmp_path) as partial:
            write_text(partial / "a.txt", "new")
            write_text(partial / "b.txt", "new")

    with pytest.raises(ArgumentError, match=r"b\.txt is a folder, but a file of that name is to be written: name another place"):
        fill()
    assert names(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


KILLED = """
import os, sys
from pathlib import Path
from schedir.workflows.filled_folder import filled_whole

replace = Path.replace
def dying(path, target):
    if target.name in ("b.txt", "none"):
        os.kill(os.getpid(), 9)
    return replace(path, target)

Path.replace = dying
with filled_whole(Path("out")) as beside:
    for name in "abc":
        (beside / f"{name}.txt").write_text("new")
    if sys.argv[1] == "before":
        os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("moment", ["before", "between"])
def test_what_a_killed_process_has_begun_is_ended_or_dropped_whole(moment: str, tmp_path: Path) -> None:
    """Killed before all is written nothing is new; killed between two files the next who looks puts the rest in place."""
    for name in "abc":
        write_text(tmp_path / "out" / f"{name}.txt", "old")
    done = subprocess.run([sys.executable, "-c", KILLED, moment], cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    expected = {"before": ["old", "old", "old"], "between": ["new", "old", "old"]}[moment]
    assert [(tmp_path / "out" / f"{name}.txt").read_text() for name in "abc"] == expected

    finish_left_over(tmp_path / "out")
    assert names(tmp_path) == ["out/a.txt", "out/b.txt", "out/c.txt"]
    ended = {"before": "old", "between": "new"}[moment]
    assert {(tmp_path / "out" / f"{name}.txt").read_text() for name in "abc"} == {ended}


def test_of_two_that_were_killed_the_later_one_counts(tmp_path: Path) -> None:
    for age, text in ((2, "first"), (1, "second")):
        whole = tmp_path / f"{beside('files', GONE)}.whole"
        write_text(whole / "a.txt", text)
        place = whole.with_name(whole.name.replace(".1.files", f".{age}.files"))
        whole.rename(place)
        os.utime(place, (1000 - age, 1000 - age))
    finish_left_over(tmp_path)
    assert (tmp_path / "a.txt").read_text() == "second"
    assert names(tmp_path) == ["a.txt"]


@pytest.fixture
def stopped_between(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Send this process an interrupt with every file that moves; give the names of those that have moved."""
    moved: list[str] = []
    replace = Path.replace

    def interrupted(path: Path, target: Path) -> Path:
        if not target.name.startswith("."):
            signal.raise_signal(signal.SIGINT)
            moved.append(target.name)
        return replace(path, target)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(Path, "replace", interrupted)
    yield moved
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_while_files_move_waits_for_the_last_of_them(tmp_path: Path, stopped_between: list[str]) -> None:
    def fill() -> None:
        with filled_whole(tmp_path / "out") as partial:
            for name in "abc":
                (partial / f"{name}.txt").write_text("new")

    with pytest.raises(KeyboardInterrupt):
        fill()
    assert stopped_between == ["a.txt", "b.txt", "c.txt"]
    assert names(tmp_path) == ["out/a.txt", "out/b.txt", "out/c.txt"]


def test_signals_that_were_ignored_stay_so_and_handlers_are_put_back() -> None:
    heard: list[int] = []

    def hear(number: int, _: object) -> None:
        heard.append(number)

    before = [signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, hear)]
    try:
        with signals_held():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            assert heard == []
        assert heard == [signal.SIGTERM]
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == (signal.SIG_IGN, hear)
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)

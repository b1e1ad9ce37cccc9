"""What is being written is nobody's to remove, and what a killed process has left is anybody's on its machine."""

import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from schedir import partials
from schedir.partials import begun, is_left_over, left_over, place, started, written_name
from tests.left_over import GONE, THERE, beside

NAME = "a\nfile.csv"
"""Any name that a file may have."""


def made(folder: Path, writer: str) -> Path:
    path = folder / beside(NAME, writer)
    path.write_text("begun")
    return path


def test_every_writing_has_a_name_of_its_own_that_keeps_the_suffix(tmp_path: Path) -> None:
    def name(_: int) -> Path:
        with begun(tmp_path / NAME) as path:
            return path

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(name, range(100)))
    assert len(set(found)) == 100
    assert {(path.suffix, written_name(path)) for path in found} == {(".csv", NAME)}


def test_the_end_of_a_long_name_is_kept(tmp_path: Path) -> None:
    with begun(tmp_path / ("x" * 200 + ".json")) as path:
        path.write_text("{}")
        assert written_name(path) == "x" * 95 + ".json"


def test_what_this_process_writes_is_not_left_over_until_it_ends(tmp_path: Path) -> None:
    with begun(tmp_path / NAME) as path:
        path.write_text("begun")
        assert not is_left_over(path)
        # what makes way for it has its name and more
        assert not is_left_over(path.with_name(f"{path.name}.old"))
    assert list(left_over(tmp_path / NAME)) == [path]


def test_only_processes_that_are_gone_have_left_something(tmp_path: Path) -> None:
    gone, there = made(tmp_path, GONE), made(tmp_path, THERE)
    assert (is_left_over(gone), is_left_over(there)) == (True, False)
    assert list(left_over(tmp_path / NAME)) == [gone]
    assert list(left_over(tmp_path / f"other{NAME}")) == []


@pytest.mark.parametrize("pid_of", [os.getpid, os.getppid])
def test_a_process_that_was_given_the_pid_of_one_that_is_gone_writes_nothing_of_that_ones(
    pid_of: Callable[[], int], tmp_path: Path
) -> None:
    """In a container the next process often has the pid of the one before."""
    pid = pid_of()
    start = started(pid)
    if start is None:
        pytest.skip("this system does not say when a process began")
    assert is_left_over(made(tmp_path, f"{place()}.{pid}.{start - 1}.1"))


def test_without_proc_a_process_is_asked_for_by_its_pid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, there = made(tmp_path, GONE), made(tmp_path, THERE)
    monkeypatch.setattr(partials, "started", lambda _: None)
    assert (is_left_over(gone), is_left_over(there)) == (True, False)


def test_what_another_machine_has_begun_is_not_judged_by_our_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processes have pids that are free here. A day without a change says that it is left over."""
    with monkeypatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: "another")
        file = made(tmp_path, f"{place()}.{2**70}.1.1")
        folder = tmp_path / beside("mini-batch-000010", f"{place()}.{2**70}.1.2")
    folder.mkdir()
    assert (is_left_over(file), is_left_over(folder)) == (False, False)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 86_400 + 60)
    assert (is_left_over(file), is_left_over(folder)) == (True, True)


def test_a_folder_is_as_new_as_what_was_written_into_it_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partials, "place", lambda: "00000000")
    folder = tmp_path / beside(NAME, GONE)
    folder.mkdir()
    (folder / "written").write_text("begun")
    changed = {folder: 0.0, folder / "written": 100.0}
    lstat = Path.lstat

    def at(path: Path) -> os.stat_result:
        found = list(lstat(path))
        found[9] = int(changed[path])
        return os.stat_result(found)

    monkeypatch.setattr(Path, "lstat", at)
    monkeypatch.setattr(time, "time", lambda: 86_450.0)
    assert not is_left_over(folder)
    monkeypatch.setattr(time, "time", lambda: 86_550.0)
    assert is_left_over(folder)


def test_other_names_are_nothing_that_is_written(tmp_path: Path) -> None:
    for name in (NAME, ".partial.1.x", f".partial.{GONE}"):
        assert written_name(tmp_path / name) is None
        assert not is_left_over(tmp_path / name)

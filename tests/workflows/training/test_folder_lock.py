"""One training in a folder at a time; a process that dies lets go of it."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from schedir.errors import ArgumentError, RunError
from schedir.workflows.training.folder_lock import folder_held
from tests.repository import ROOT

HOLDER = """
import sys, time
from pathlib import Path
from schedir.workflows.training.folder_lock import folder_held
with folder_held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path) -> "subprocess.Popen[str]":
    """Start a process that holds a folder, until its input ends."""
    words = [sys.executable, "-c", HOLDER, str(folder)]
    process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("end", ["in peace", "killed"])
def test_a_second_one_is_told_who_holds_it_until_that_one_has_ended(end: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with holder(folder) as process:
        with (
            pytest.raises(ArgumentError, match=rf"out is in use by another training, process {process.pid}: wait for its end, or"),
            folder_held(folder),
        ):
            pass
        if end == "killed":
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=600)
    with folder_held(folder):
        assert (folder / "train.lock").read_text() == f"{os.getpid()}\n"


def test_what_was_made_for_it_goes_again_unless_something_is_in_it(tmp_path: Path) -> None:
    with folder_held(tmp_path / "a" / "b"):
        pass
    assert list(tmp_path.iterdir()) == []
    with folder_held(tmp_path / "a" / "b"):
        (tmp_path / "a" / "kept").touch()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["kept"]


def test_an_error_inside_lets_go(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="inside"), folder_held(tmp_path):
        raise KeyError("inside")
    with folder_held(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_its_holder_has_removed_meanwhile_keeps_nobody_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second opens the first one's file; before it locks it, the first ends and removes it."""
    original, opened = os.open, []

    def opening(path: Path, *words: int) -> int:
        opened.append(original(path, *words))
        if len(opened) == 1:
            path.unlink()
        return opened[-1]

    monkeypatch.setattr(os, "open", opening)
    with folder_held(tmp_path):
        assert len(opened) == 2
        assert (tmp_path / "train.lock").exists()


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc")
def test_a_place_where_nobody_can_write_is_named() -> None:
    with (
        pytest.raises(ArgumentError, match=r"/proc/x cannot be written: .*: name a place you may write to"),
        folder_held(Path("/proc/x")),
    ):
        pass


@pytest.mark.parametrize("call", ["ftruncate", "write"])
def test_a_full_disk_leaves_neither_lock_nor_folder(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with (
            pytest.raises(RunError, match="out cannot be written: no space left on device: make room there"),
            folder_held(tmp_path / "out"),
        ):
            pass
    assert list(tmp_path.iterdir()) == []
    with folder_held(tmp_path / "out"):
        pass

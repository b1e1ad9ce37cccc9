"""Checkpoints are there whole or not at all, whatever ends the process that writes them."""

import errno
import json
import os
import resource
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from executor.checkpoint import files
from executor.checkpoint import folder as folder_module
from executor.checkpoint.files import read_manifest, read_tensors
from executor.checkpoint.folder import find_checkpoint, folder_name, has_checkpoints, remove_older, write_checkpoint
from schedir.errors import FormatError, RunError
from tests.executor.checkpoint.written import FILE, TENSORS, written
from tests.left_over import GONE, THERE, beside


def test_a_checkpoint_is_a_folder_named_by_its_mini_batch(tmp_path: Path) -> None:
    folder = written(tmp_path)
    assert folder == tmp_path / "mini-batch-000300"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "mini-batch-000300"]
    manifest = read_manifest(folder)
    assert (manifest["schema"], manifest["mini_batch"]) == ("schedir.checkpoint/1", 300)
    assert torch.equal(read_tensors(folder, FILE, manifest)["a"], torch.arange(3.0))


def test_one_of_the_same_mini_batch_takes_its_place(tmp_path: Path) -> None:
    written(tmp_path)
    write_checkpoint(tmp_path, {"mini_batch": 300, "again": True}, TENSORS)
    assert read_manifest(find_checkpoint(tmp_path))["again"] is True
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "mini-batch-000300"]


def test_the_newest_is_what_latest_names(tmp_path: Path) -> None:
    for number in (10, 20, 5):
        written(tmp_path, number)
    assert find_checkpoint(tmp_path).name == folder_name(5)
    assert find_checkpoint(tmp_path / folder_name(20)).name == folder_name(20)


def test_a_process_killed_before_latest_was_written_has_left_a_newer_one(tmp_path: Path) -> None:
    written(tmp_path, 10)
    latest = tmp_path / "latest"
    written(tmp_path, 20)
    latest.write_text("mini-batch-000010\n")
    os.utime(latest, ns=(1, 1))
    assert find_checkpoint(tmp_path).name == folder_name(20)


@pytest.mark.parametrize("content", ["", "mini-batch-000011\n", "../elsewhere\n", b"\xff\xfe"])
def test_without_a_latest_that_leads_anywhere_the_highest_counts(content: str | bytes, tmp_path: Path) -> None:
    written(tmp_path, 10)
    written(tmp_path, 9)
    (tmp_path / "latest").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert find_checkpoint(tmp_path).name == folder_name(10)


def test_what_a_killed_process_has_begun_is_no_checkpoint_and_goes_with_the_next(tmp_path: Path) -> None:
    written(tmp_path, 10)
    dead, alive = (tmp_path / beside(folder_name(20), writer) for writer in (GONE, THERE))
    for folder in (dead, alive):
        folder.mkdir()
        (folder / FILE).write_bytes(b"half")
    assert find_checkpoint(tmp_path).name == folder_name(10)
    written(tmp_path, 30)
    assert not dead.exists()
    assert alive.exists()


def test_folders_without_checkpoints_are_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="nowhere: no such folder: give a checkpoint, or a folder of them"):
        find_checkpoint(tmp_path / "nowhere")
    with pytest.raises(FormatError, match="holds no checkpoint: give a folder with mini-batch-000001 or the like"):
        find_checkpoint(tmp_path)
    assert not has_checkpoints(tmp_path)
    assert has_checkpoints(written(tmp_path).parent)


@pytest.fixture
def no_more_than() -> object:
    """Let this process write no file beyond a size, as if the disk were full there."""
    import signal

    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_is_full_leaves_the_checkpoint_before_as_it_is(tmp_path: Path, no_more_than: object) -> None:
    before = written(tmp_path, 10)
    content = {path.name: path.read_bytes() for path in before.iterdir()}
    large = {FILE: {"a": torch.zeros(100_000)}}
    no_more_than(200_000)  # type: ignore[operator]  # a function
    with pytest.raises(
        RunError, match=r"mini-batch-000020 cannot be written: file too large: make room there; the checkpoints before"
    ):
        write_checkpoint(tmp_path, {"mini_batch": 20}, large)
    no_more_than(resource.RLIM_INFINITY)  # type: ignore[operator]  # a function
    assert find_checkpoint(tmp_path) == before
    assert {path.name: path.read_bytes() for path in before.iterdir()} == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "mini-batch-000010"]
    assert json.loads((before / "checkpoint.json").read_text())["mini_batch"] == 10


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot be written: (not a directory|file exists): give a folder that can be written"):
        written(tmp_path / "file")


def test_without_safetensors_nothing_is_written_and_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path)
    for name in ("safetensors", "safetensors.torch"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RunError, match="checkpoints need the package safetensors, which is not installed: install it"):
        written(tmp_path, 400)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "mini-batch-000300"]


class Stopped(BaseException):
    """What stands for a signal."""


def stop_at(patch: pytest.MonkeyPatch, number: int, *, for_good: bool) -> list[str]:
    """Stop at a call that changes the disk, and for good at all behind it (kill -9); return the calls that were made."""
    calls: list[str] = []

    def stopping(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: object, **named: object) -> object:
            calls.append(name)
            if len(calls) == number or (for_good and len(calls) > number):
                raise Stopped
            return real(*arguments, **named)

        patch.setattr(os, name, call)

    for name in ("rename", "replace", "mkdir", "fsync", "unlink", "rmdir"):
        stopping(name)
    return calls


@pytest.mark.parametrize("for_good", [False, True])
def test_a_save_of_the_same_mini_batch_stopped_anywhere_leaves_one_of_the_two(for_good: bool, tmp_path: Path) -> None:
    for number in range(1, 100):
        folder = tmp_path / str(number)
        written(folder)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "getpid", lambda: 999_999_999)
            calls = stop_at(patch, number, for_good=for_good)
            with suppress(Stopped):
                write_checkpoint(folder, {"mini_batch": 300, "again": True}, TENSORS)
        found = find_checkpoint(folder)
        manifest = read_manifest(found)
        assert torch.equal(read_tensors(found, FILE, manifest)["a"], torch.arange(3.0))
        assert has_checkpoints(folder)
        written(folder, 400)
        left = {path.name for path in folder.iterdir() if path.is_dir()}
        assert left == {"mini-batch-000300", "mini-batch-000400"}
        if len(calls) < number:
            break
    assert 10 < number < 99


def test_a_folder_gets_its_name_when_its_bytes_are_on_the_disk_and_latest_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path)
    order: list[tuple[str, str]] = []
    fsync, rename = os.fsync, os.rename

    def synced(handle: int) -> None:
        order.append(("fsync", Path(f"/proc/self/fd/{handle}").readlink().name))
        fsync(handle)

    def renamed(source: Path, target: Path) -> None:
        order.append(("rename", Path(target).name))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    written(tmp_path)
    partial = order[2][1]
    assert partial.startswith(".partial.")
    assert order[:6] == [
        ("fsync", FILE),
        ("fsync", "checkpoint.json"),
        ("fsync", partial),
        ("rename", f"{partial}.old"),
        ("rename", "mini-batch-000300"),
        ("fsync", tmp_path.name),
    ]


@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL, errno.ENOTSUP])
def test_only_a_file_system_that_cannot_sync_folders_is_excused(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def failing(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().is_dir():
            raise OSError(number, os.strerror(number))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", failing)
    if number == errno.EIO:
        with pytest.raises(RunError, match="cannot be written: input/output error"):
            written(tmp_path)
    else:
        assert find_checkpoint(written(tmp_path)).name == "mini-batch-000300"


def written_at(folder: Path, *numbers: int) -> None:
    """Write checkpoints one after the other, a second apart."""
    for second, number in enumerate(numbers, 1):
        os.utime(written(folder, number) / "checkpoint.json", (second, second))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_older_checkpoints_go_and_the_newest_stay(tmp_path: Path) -> None:
    written_at(tmp_path, 10, 20, 30, 40)
    remove_older(tmp_path / folder_name(40), 2)
    assert names(tmp_path) == ["latest", folder_name(30), folder_name(40)]
    remove_older(tmp_path / folder_name(40), 1)
    assert names(tmp_path) == ["latest", folder_name(40)]
    assert find_checkpoint(tmp_path).name == folder_name(40)


def test_those_written_last_stay_also_where_an_earlier_training_had_come_further(tmp_path: Path) -> None:
    """From 10 training went on once more: the new 20 is newer than the old 40, which did not lead to where it stands."""
    written_at(tmp_path, 10, 40, 20, 30)
    remove_older(tmp_path / folder_name(30), 2)
    assert names(tmp_path) == ["latest", folder_name(20), folder_name(30)]
    remove_older(tmp_path / folder_name(30), 1)
    assert names(tmp_path) == ["latest", folder_name(30)]


def test_what_is_no_complete_checkpoint_is_left_alone_and_counts_for_none(tmp_path: Path) -> None:
    written_at(tmp_path, 10, 20)
    (tmp_path / folder_name(15)).mkdir()
    (tmp_path / "notes").mkdir()
    remove_older(tmp_path / folder_name(20), 2)
    assert names(tmp_path) == ["latest", folder_name(10), folder_name(15), folder_name(20), "notes"]


@pytest.mark.parametrize("call", ["rename", "rmdir"])
def test_a_process_killed_while_it_removes_leaves_the_newest_and_no_half_of_one(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_at(tmp_path, 10, 20, 30)

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, call, stopped)
        with pytest.raises(KeyboardInterrupt):
            remove_older(tmp_path / folder_name(30), 1)
    assert find_checkpoint(tmp_path).name == folder_name(30)
    read_manifest(find_checkpoint(tmp_path))
    # those that are left in their places are whole
    for path in tmp_path.glob("mini-batch-*"):
        read_tensors(path, FILE, read_manifest(path))


def test_a_checkpoint_that_cannot_be_removed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written_at(tmp_path, 10, 20)

    def failing(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "rename", failing)
    remove_older(tmp_path / folder_name(20), 1)
    assert names(tmp_path) == ["latest", folder_name(10), folder_name(20)]


def test_a_checkpoint_that_is_a_link_is_replaced_and_removed_as_one_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    folder, away = tmp_path / "checkpoints", tmp_path / "away"
    written(folder, 10).rename(away)
    link = folder / folder_name(10)
    link.symlink_to(away)
    written(folder, 10)
    assert (link.is_symlink(), names(folder)) == (False, ["latest", folder_name(10)])
    written(folder, 20).rename(tmp_path / "other")
    (folder / folder_name(20)).symlink_to(tmp_path / "other")
    remove_older(written(folder, 30), 1)
    assert names(folder) == ["latest", folder_name(30)]
    for kept in (away, tmp_path / "other"):
        read_tensors(kept, FILE, read_manifest(kept))


@pytest.mark.parametrize("number", [10, 20])
def test_two_trainings_of_one_process_may_save_into_one_folder_at_once(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is half-way while the second begins and ends, with the same mini-batch or another."""
    half_way, goes_on = threading.Event(), threading.Event()

    def slowly(path: Path, facts: dict[str, object], tensors: dict[str, object]) -> None:
        files.fill(path, facts, tensors)  # type: ignore[arg-type]  # of any kind here
        if facts["mini_batch"] == 10 and not half_way.is_set():
            half_way.set()
            assert goes_on.wait(60)

    monkeypatch.setattr(folder_module, "fill", slowly)
    faults: list[BaseException] = []

    def save() -> None:
        try:
            written(tmp_path, 10)
        except BaseException as error:  # noqa: BLE001 - told in the test's own thread
            faults.append(error)

    first = threading.Thread(target=save)
    first.start()
    assert half_way.wait(60)
    written(tmp_path, number)
    goes_on.set()
    first.join(60)
    assert faults == []
    for made in (10, number):
        read_tensors(tmp_path / folder_name(made), FILE, read_manifest(tmp_path / folder_name(made)))
    assert names(tmp_path) == sorted({"latest", folder_name(10), folder_name(number)})


def test_a_checkpoint_makes_way_for_one_thread_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two renames its place is empty, and another thread would take it."""
    written(tmp_path)
    alone: list[bool] = []
    rename = os.rename

    def renamed(source: Path, target: Path) -> None:
        alone.append(folder_module._PLACES.locked())
        rename(source, target)

    monkeypatch.setattr(os, "rename", renamed)
    written(tmp_path)
    assert alone == [True, True]


def test_a_checkpoint_that_another_training_removes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written_at(tmp_path, 10, 20, 30)
    found = folder_module._complete(tmp_path)
    monkeypatch.setattr(folder_module, "_complete", lambda _: found)
    (found[folder_name(10)] / "checkpoint.json").unlink()
    remove_older(tmp_path / folder_name(30), 1)
    assert names(tmp_path) == ["latest", folder_name(10), folder_name(30)]


@pytest.mark.parametrize("name", ["checkpoint.json", FILE, "latest"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(name: str, tmp_path: Path) -> None:
    folder = written(tmp_path)
    pipe = tmp_path / name if name == "latest" else folder / name
    pipe.unlink()
    os.mkfifo(pipe)
    if name == "latest":
        assert find_checkpoint(tmp_path) == folder
        with pytest.raises(RunError, match="mini-batch-000301 cannot be written: is a pipe, not a file"):
            written(tmp_path, 301)
    else:
        with pytest.raises(FormatError, match=r"cannot be read .is a pipe, not a file.: take another checkpoint"):
            read_tensors(folder, FILE, read_manifest(folder))


def test_a_first_checkpoint_that_cannot_be_written_speaks_of_none_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("executor.checkpoint.folder.fill", full)
    with pytest.raises(RunError, match=r"mini-batch-000010 cannot be written: no space left on device: make room there$"):
        write_checkpoint(tmp_path, {"mini_batch": 10}, {})
    (tmp_path / folder_name(5)).mkdir()
    with pytest.raises(RunError, match=r"make room there; the checkpoints before it stay$"):
        write_checkpoint(tmp_path, {"mini_batch": 10}, {})


def test_the_best_stays_whatever_its_age(tmp_path: Path) -> None:
    written_at(tmp_path, 10, 20, 30, 40)
    remove_older(tmp_path / folder_name(40), 2, staying=(10,))
    assert sorted(path.name for path in tmp_path.glob("mini-batch-*")) == [folder_name(number) for number in (10, 30, 40)]

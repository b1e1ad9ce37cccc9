"""Where files go: through links, into pipes, never over a folder."""

import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import pytest

from schedir.compiler import load_timeline
from schedir.files import refuse_pipe, replaced_whole
from tests.left_over import GONE, THERE, beside
from tests.repository import ROOT


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    with replaced_whole(tmp_path / "link") as partial:
        partial.write_text("new")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "target"]


def test_a_pipe_stays_and_gets_the_content(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    with replaced_whole(tmp_path / "pipe") as partial:
        partial.write_text("whole")
    reader.join(timeout=60)

    assert found == ["whole"]
    assert (tmp_path / "pipe").is_fifo()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="Is a directory"), replaced_whole(tmp_path):
        pass


def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "private").write_text("old")
    (tmp_path / "private").chmod(0o640)
    with replaced_whole(tmp_path / "private") as partial:
        partial.write_text("new")

    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o640


def test_a_file_made_read_only_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").write_text("old")
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)  # root may write what is read-only
    with pytest.raises(PermissionError, match="Permission denied"), replaced_whole(tmp_path / "kept") as partial:
        partial.write_text("new")

    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("kept", "old")]


def test_the_longest_name_that_a_file_may_have_is_written(tmp_path: Path) -> None:
    name = "x" * 250 + ".json"
    with replaced_whole(tmp_path / name) as partial:
        assert partial.suffix == ".json"
        partial.write_text("{}")

    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_two_threads_may_write_one_file_at_once(tmp_path: Path) -> None:
    """Each writes whole; who is last is read."""
    inside = threading.Barrier(2)
    faults: list[BaseException] = []

    def write(text: str) -> None:
        try:
            with replaced_whole(tmp_path / "shared") as partial:
                partial.write_text(text)
                inside.wait(60)
        except BaseException as error:  # noqa: BLE001 - told in the test's own thread
            faults.append(error)

    threads = [threading.Thread(target=write, args=(text,)) for text in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert faults == []
    assert (tmp_path / "shared").read_text() in {"one", "two"}
    assert [path.name for path in tmp_path.iterdir()] == ["shared"]


def test_what_killed_processes_have_begun_is_removed_by_the_next_that_writes_there(tmp_path: Path) -> None:
    stay = [beside(NAME, THERE), beside(f"other{NAME}", GONE)]
    for name in (*stay, beside(NAME, GONE)):
        (tmp_path / name).write_text("begun")
    with replaced_whole(tmp_path / NAME) as partial:
        partial.write_text("whole")

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*stay, NAME])


NAME = "a\nfile.csv"
"""Any name that a file may have."""


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is a pipe, not a file"):
        refuse_pipe(tmp_path / "pipe")


WRITERS = """
import os
import sys
import time
from schedir.compiler import compile_program
from schedir.costs.uniform import UniformCosts
from schedir.schedules.registry import build_program
from schedir.timeline.trace.trace import write_trace
from simulator import simulate
from plots import gantt, save
timeline = simulate(compile_program(build_program("1f1b", num_devices=2, num_micro_batches=200)), UniformCosts())
figure = gantt(timeline)
for folder in sys.stdin:
    writer = os.fork()
    if not writer:
        print("writer", os.getpid(), flush=True)
        os.chdir(folder.strip())
        while True:
            for write in (lambda: write_trace("x.trace.json", timeline), lambda: save(figure, "x.svg")):
                begun = time.perf_counter()
                write()
                print("seconds", time.perf_counter() - begun, flush=True)
    os.waitpid(writer, 0)
"""


def told(stream: IO[str], word: str) -> str:
    """Return what stands behind a word in the next line that starts with it."""
    return next(line.split()[1] for line in stream if line.startswith(word))


@pytest.mark.slow
def test_a_killed_process_leaves_whole_files(tmp_path: Path) -> None:
    """Ten processes write two files in turn for ever; each is killed within its next file, once it has written 2 to 5."""
    moments = random.Random(0)
    words = [sys.executable, "-c", WRITERS]
    environment, pipe = {"PYTHONPATH": str(ROOT)}, subprocess.PIPE
    with subprocess.Popen(words, env=environment, text=True, bufsize=1, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(10):
            folder = tmp_path / str(number)
            folder.mkdir()
            process.stdin.write(f"{folder}\n")
            writer = int(told(process.stdout, "writer"))
            for _ in range(number % 4):
                told(process.stdout, "seconds")
            longest = max(float(told(process.stdout, "seconds")) for _ in range(2))
            time.sleep(moments.random() * longest)  # anywhere in the next file, however long the machine takes for one
            os.kill(writer, signal.SIGKILL)
        process.stdin.close()
        process.wait(60)
    for number in range(10):
        folder = tmp_path / str(number)
        assert load_timeline(folder / "x.trace.json").graph.num_tasks > 0
        assert (folder / "x.svg").read_text().rstrip().endswith("</svg>")


def limited_folder(path: Path) -> None:
    """Mount a file system of 64 KiB; skip where the user may not."""
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(path)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("only root mounts file systems")


@pytest.mark.skipif(shutil.which("mount") is None, reason="no mount")
def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    limited_folder(tmp_path / "small")
    try:
        (tmp_path / "small" / "kept").write_text("old")
        with pytest.raises(OSError, match="No space left on device"), replaced_whole(tmp_path / "small" / "kept") as partial:
            partial.write_bytes(bytes(1 << 20))

        assert [(path.name, path.read_text()) for path in (tmp_path / "small").iterdir()] == [("kept", "old")]
    finally:
        subprocess.run(["umount", str(tmp_path / "small")], check=True)

"""Where files go: through links, into pipes, never over a folder."""

import os
import threading
from pathlib import Path

import pytest

from schedir.files import replaced_whole


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
    reader.join(timeout=30)

    assert found == ["whole"]
    assert (tmp_path / "pipe").is_fifo()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="Is a directory"), replaced_whole(tmp_path):
        pass

"""Files appear whole or not at all."""

from pathlib import Path

import pytest

from schedir.errors import ArgumentError
from schedir.workflows.files import check_folder, write_text, written_whole


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_file_is_written_with_the_folders_it_needs(tmp_path: Path) -> None:
    path = write_text(tmp_path / "out" / "deep" / "report.json", "{}")

    assert path.read_text() == "{}"
    assert names(tmp_path) == ["out/deep/report.json"]


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = write_text(tmp_path / "report.json", "old")

    def fail() -> None:
        with written_whole(path) as partial:
            partial.write_text("new, but not all of")
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        fail()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["report.json"]


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file, no folder")

    with pytest.raises(ArgumentError, match=r"out/report.json cannot be written: .*: name a place you may write to"):
        write_text(tmp_path / "out" / "report.json", "{}")


def test_a_folder_that_cannot_be_is_refused_before_work_begins(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    check_folder(tmp_path / "new" / "deeper")

    assert not (tmp_path / "new").exists()
    with pytest.raises(ArgumentError, match=r"deep is no folder for files: .*taken is a file: name another place"):
        check_folder(tmp_path / "taken" / "deep")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc")
def test_a_place_where_nobody_can_write_is_found_by_writing() -> None:
    """The superuser may write everywhere, it is said; not into /proc."""
    with pytest.raises(ArgumentError, match=r"/proc/x cannot be written: .*: name a place you may write to"):
        check_folder(Path("/proc/x"))

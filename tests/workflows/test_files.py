"""Files appear whole or not at all."""

from pathlib import Path

import pytest

from schedir.errors import ArgumentError
from schedir.workflows.files import check_folder, filled_whole, write_text, written_whole
from tests.left_over import GONE, THERE, beside


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
        write_text(tmp_path / beside("out", writer) / "report.json", "begun")
    with filled_whole(tmp_path / "out") as partial:
        write_text(partial / "report.json", "new")

    assert names(tmp_path) == [f"{beside('out', THERE)}/report.json", "out/report.json"]


def test_two_threads_may_fill_one_folder_at_once(tmp_path: Path) -> None:
    with filled_whole(tmp_path / "out") as one:
        write_text(one / "one.txt", "1")
        with filled_whole(tmp_path / "out") as other:
            write_text(other / "two.txt", "2")

    assert names(tmp_path) == ["out/one.txt", "out/two.txt"]


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file, no folder")

    with pytest.raises(ArgumentError, match=r"out/report.json cannot be written: .*: name a place you may write to"):
        write_text(tmp_path / "out" / "report.json", "{}")
    place = r"out/deep cannot be written: .*: name a place you may write to"
    with pytest.raises(ArgumentError, match=place), filled_whole(tmp_path / "out" / "deep"):
        pass


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

"""Several files of one piece of work that take their places in a folder together.

    out/.partial.KEY.files/          being written; removed if anything is raised, or by the next run if the process is killed
    out/.partial.KEY.files.whole/    all are written: from here on the next run would put the rest into their places
    out/report.json, …               each renamed whole, one after the other, while signals wait

Renaming takes no time that a user could measure, but it is no single step: who kills the process (or takes its power) just then
leaves some files new and the others as they were, until `finish_left_over` has ended what was begun.
"""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from schedir.errors import ArgumentError
from schedir.partials import begun, is_left_over, written_name
from schedir.workflows.files import unwritable

_FILES = "files"
_WHOLE = ".whole"


@contextmanager
def filled_whole(folder: Path) -> Iterator[Path]:
    """Yield an empty folder; its files move into `folder` at the end, none does if anything is raised inside.

    Files of the same names are replaced, others stay. What a killed process has left is put in order before. Raises ArgumentError
    where the place cannot be written to; folders that were made for it go again then.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        # inside, not beside: the folder above may be another's, or on another disk
        with begun(folder / _FILES) as partial:
            try:
                _make(folder, partial)
                yield partial
                _take_places(partial, folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    finally:
        for place in made:
            with suppress(OSError):  # it is filled
                place.rmdir()


def _make(folder: Path, partial: Path) -> None:
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    finish_left_over(folder)


def finish_left_over(folder: Path) -> None:
    """Put the files of killed processes into their places if all of them were written, and remove them if not.

    What another process is writing stays as it is. Raises ArgumentError where the place cannot be written to.
    """
    if not folder.is_dir():
        return
    try:
        _finish(folder)
    except OSError as error:
        raise unwritable(folder, error) from error


def _finish(folder: Path) -> None:
    left = [path for path in folder.iterdir() if written_name(path) in {_FILES, _FILES + _WHOLE} and is_left_over(path)]
    # of two the one that was written last stays in place
    for path in sorted(left, key=_changed):
        if path.name.endswith(_WHOLE):
            _move(path, folder)
        shutil.rmtree(path, ignore_errors=True)


def _changed(path: Path) -> float:
    with suppress(FileNotFoundError):  # another may put it in order at this moment, too
        return path.stat().st_mtime
    return 0.0


def _take_places(partial: Path, folder: Path) -> None:
    _refuse_folders(partial, folder)
    whole = partial.with_name(partial.name + _WHOLE)
    with signals_held():
        try:
            partial.rename(whole)
            _move(whole, folder)
        except OSError as error:
            raise unwritable(folder, error) from error
        finally:
            shutil.rmtree(whole, ignore_errors=True)


def _refuse_folders(partial: Path, folder: Path) -> None:
    """Raise ArgumentError, before the first file moves, if one of them cannot: a folder has its name."""
    for path in _files(partial):
        place = folder / path.relative_to(partial)
        if place.is_dir():
            raise ArgumentError(f"{place} is a folder, but a file of that name is to be written: name another place")


def _move(whole: Path, folder: Path) -> None:
    for path in _files(whole):
        place = folder / path.relative_to(whole)
        place.parent.mkdir(parents=True, exist_ok=True)
        # gone already where two put it in order at once
        with suppress(FileNotFoundError):
            path.replace(place)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


@contextmanager
def signals_held() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait until what is inside is done; other threads than the main one never get them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before: dict[int, Any] = {}

    def note(number: int, _: object) -> None:
        came.append(number)

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            # None: a handler that is not Python's, which nobody could put back
            if signal.getsignal(number) not in {signal.SIG_IGN, None}:
                before[number] = signal.signal(number, note)
        yield
    finally:
        for held, handler in before.items():
            signal.signal(held, handler)
        for told in came:
            signal.raise_signal(told)

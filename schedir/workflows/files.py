"""Files that are written whole or not at all: beside their place, then renamed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schedir.errors import ArgumentError, RunError
from schedir.files import replaced_whole, unwritten


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; it takes `path`'s place at the end, or goes if anything is raised.

    Missing folders are made. Raises ArgumentError where the place cannot be written to.
    """
    make_parents(path)
    try:
        with replaced_whole(path) as partial:
            yield partial
    except OSError as error:
        raise unwritable(path, error) from error


def make_parents(path: Path) -> None:
    """Make the folders that a file will be in; raise ArgumentError where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def check_folder(folder: Path) -> None:
    """Raise ArgumentError if files cannot go into this folder, which need not be there yet: before the work, not behind it."""
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise ArgumentError(f"{folder} is no folder for files: {existing} is a file: name another place")
    try:
        # what a user may do does not tell: nobody writes into /proc, or on a disk that is read-only
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise unwritable(folder, error) from error


def write_text(path: Path, text: str) -> Path:
    """Write a text file whole and return its path."""
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def unwritable(path: Path, error: OSError) -> ArgumentError | RunError:
    """Return the error that says why a place cannot be written to, and what to do."""
    return unwritten(path, error, "name a place you may write to")

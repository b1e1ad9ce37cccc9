"""The one way in which files are written: whole or not at all, where the path leads, never over what is no plain file."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from schedir.errors import ArgumentError, RunError
from schedir.partials import begun, left_over

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system answers where there is no room: on the disk, for this user, for a file of this size."""


@contextmanager
def replaced_whole(path: Path) -> Iterator[Path]:
    """Yield a path to write to, with the same suffix; its content takes the place of `path` at the end, or goes on an error.

    A process that is killed leaves what was there before: the content is on the disk before it gets its name; what such a process
    has begun is removed by the next that writes there. A link is followed and stays; a file keeps its mode. Pipes and devices
    (/dev/stdout, /dev/null) get the content when it is whole. Raises OSError where the place cannot be written to; a folder and a
    file made read-only are such places.
    """
    if _is_special(path):
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / path.name
            yield written
            with written.open("rb") as source, path.open("wb") as special:
                shutil.copyfileobj(source, special)
        return
    # behind links, so that the file is replaced and not the link; in the same folder, since no rename leads to another disk
    target = Path(os.path.realpath(path))
    _remove_left_over(target)
    with begun(target) as partial:
        try:
            yield partial
            _settle(partial, target)
            partial.replace(target)
        finally:
            with suppress(OSError):
                partial.unlink()


def _remove_left_over(target: Path) -> None:
    """Remove what killed processes have begun to write in a file's place; whatever cannot be looked at or removed stays."""
    with suppress(OSError):
        for path in left_over(target):
            path.unlink(missing_ok=True)


def _settle(partial: Path, target: Path) -> None:
    """Bring a file's content to the disk, and give it the mode of what it replaces."""
    if target.exists():
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
        shutil.copymode(target, partial)
    # a rename that comes to the disk before the content would leave an empty file under the old name
    with partial.open("rb") as written:
        os.fsync(written.fileno())


def unwritten(what: object, error: OSError, remedy: str) -> ArgumentError | RunError:
    """Return the error that says in one line why something cannot be written: a RunError where the disk is full.

    `what` is a path, perhaps with a word before it; `remedy` is for everything but a want of room.
    """
    reason = (error.strerror or str(error)).lower()
    if error.errno in NO_ROOM:
        return RunError(f"{what} cannot be written: {reason}: make room there")
    return ArgumentError(f"{what} cannot be written: {reason}: {remedy}")


def refuse_pipe(path: Path) -> None:
    """Raise OSError for a pipe with a name, which may keep a reader waiting for ever."""
    with suppress(FileNotFoundError, NotADirectoryError):
        if stat.S_ISFIFO(path.stat().st_mode):
            raise OSError(errno.EINVAL, "is a pipe, not a file", str(path))


def _is_special(path: Path) -> bool:
    """Tell whether a path leads to something that is no plain file; raise OSError for a folder."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    # /dev/stdout that was sent to a file looks like a plain one, and is nothing to rename over
    return not stat.S_ISREG(mode) or path.parts[:2] in {("/", "dev"), ("/", "proc")}

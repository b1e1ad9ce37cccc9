"""One training in a folder at a time.

A file in it is locked as long as the training runs. The system lets go of the lock when the process ends, however it does, so there
is nothing to clean up behind a kill.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from schedir.errors import ArgumentError
from schedir.workflows.files import unwritable

LOCK = "train.lock"
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS}
"""What file systems answer that have no locks; there nobody is kept apart."""


@contextmanager
def folder_held(folder: Path) -> Iterator[None]:
    """Hold a folder, made if it is missing, for one training; folders that were made and stay empty go again.

    Raises ArgumentError, before anything is done, if another process holds it, with its pid, or if nothing can be written there.
    """
    made = _make(folder)
    try:
        handle = _held(folder)
        try:
            yield
        finally:
            # before the lock goes: whoever waits for this very file looks whether it is still the one in the folder
            with suppress(OSError):
                (folder / LOCK).unlink()
            os.close(handle)
    finally:
        for place in made:
            with suppress(OSError):
                place.rmdir()


def _held(folder: Path) -> int:
    try:
        handle = _lock(folder / LOCK)
        try:
            os.ftruncate(handle, 0)
            os.write(handle, f"{os.getpid()}\n".encode())
        except BaseException:
            (folder / LOCK).unlink(missing_ok=True)
            os.close(handle)
            raise
    except OSError as error:
        raise unwritable(folder, error) from error
    return handle


def _make(folder: Path) -> list[Path]:
    """Make a folder; return those that were not there, the innermost first."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    return missing


def _lock(path: Path) -> int:
    """Return the open file, locked; raise ArgumentError if another process has it, OSError if it cannot be made."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _take(handle, path)
        except BaseException:
            os.close(handle)
            raise
        # its last holder may have removed it between our opening and our locking: then it keeps nobody apart
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        os.close(handle)


def _take(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.read(handle, 32).decode(errors="replace").strip()
        raise ArgumentError(
            f"{path.parent} is in use by another training, process {pid or 'unknown'}: wait for its end, or give another --out"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise

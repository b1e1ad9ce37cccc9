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


@contextmanager
def replaced_whole(path: Path) -> Iterator[Path]:
    """Yield a path to write to, with the same suffix; its content takes the place of `path` at the end, or goes on an error.

    A link is followed and stays. Pipes and devices (/dev/stdout, /dev/null) get the content when it is whole. Raises OSError
    where the place cannot be written to; a folder is such a place.
    """
    if _is_special(path):
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / path.name
            yield written
            with written.open("rb") as source, path.open("wb") as special:
                shutil.copyfileobj(source, special)
        return
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".partial.{os.getpid()}.{target.name}")
    try:
        yield partial
        partial.replace(target)
    finally:
        with suppress(OSError):
            partial.unlink()


def _is_special(path: Path) -> bool:
    """Tell whether a path leads to something that is no plain file; raise OSError for a folder."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return not stat.S_ISREG(mode) or path.parts[:2] in {("/", "dev"), ("/", "proc")}

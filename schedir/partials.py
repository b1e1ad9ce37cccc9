"""Names of files and folders that are being written, and which of them nobody writes any more.

    .partial.5e0c81f2.1234.88123.7.mini-batch-000400
             place    pid  start number, and as much of the name of what is written as fits

Where several machines or containers share a disk, only those of this one (`place`) are judged by its processes; what another has
begun is left over once it has not changed for a day.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

_LONGEST = 100
"""Characters of a name that its partial's name keeps: names have a limit."""
_PARTIAL = re.compile(r"\.partial\.(([0-9a-f]{8})\.(\d+)\.(\d+)\.\d+)\.(.+)", re.DOTALL)
"""Key, in it place, pid and start; name of what is written."""
_DAY_S = 86_400.0
"""No writing pauses for so long, and no two clocks of a shared disk are so far apart."""

_NUMBERS = count(1)
"""One for each writing of this process, whichever thread it is in: an iterator gives no number twice."""
_WRITTEN: set[str] = set()
"""Keys of what this process is writing. Adding, removing and looking are single steps; a lock might be held when it forks."""


@contextmanager
def begun(target: Path) -> Iterator[Path]:
    """Yield a path beside `target`, with the same suffix, that no other writing uses and none takes for left over meanwhile."""
    pid = os.getpid()
    key = f"{place()}.{pid}.{started(pid) or 0}.{next(_NUMBERS)}"
    _WRITTEN.add(key)
    try:
        yield target.with_name(f".partial.{key}.{target.name[-_LONGEST:]}")
    finally:
        _WRITTEN.discard(key)


def written_name(path: Path) -> str | None:
    """Return the name of what is written under a partial's name, or its end if it is long; None for any other name."""
    match = _PARTIAL.fullmatch(path.name)
    return match[5] if match else None


def left_over(target: Path) -> Iterator[Path]:
    """Yield what others have begun to write in a path's place, and will not end; raise OSError where nobody may look."""
    for path in target.parent.iterdir():
        if written_name(path) == target.name[-_LONGEST:] and is_left_over(path):
            yield path


def is_left_over(path: Path) -> bool:
    """Tell whether nobody writes any more what has a partial's name."""
    match = _PARTIAL.fullmatch(path.name)
    if match is None:
        return False
    key, where, pid, start = match[1], match[2], int(match[3]), int(match[4])
    if where != place():
        return time.time() - _changed_at(path) > _DAY_S
    if pid == os.getpid():
        # in a container the next process often has the pid of the one before: what is not in hand is not of this one
        return key not in _WRITTEN
    # a pid is given anew, but not to a process that began at the same moment
    now = started(pid)
    return now != start if now is not None else not _is_there(pid)


def place() -> str:
    """Return what stands for all processes that see each other's pids: the host by its name, and in it the container."""
    container = ""
    with suppress(OSError):  # only Linux has them
        container = Path("/proc/self/ns/pid").readlink().name
    return hashlib.sha256(f"{socket.gethostname()} {container}".encode()).hexdigest()[:8]


def started(pid: int) -> int | None:
    """Return when a process began, in clock ticks since the system did; None where that cannot be read, or there is none.

    Source: proc(5), field 22 of /proc/PID/stat; the name before it, in parentheses, may hold anything.
    """
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return None


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # the latter where it is none that a system gives
        return False
    except PermissionError:
        return True
    return True


def _changed_at(path: Path) -> float:
    """Return when a file, or a folder or what lies in it, was last changed, in seconds; now if it goes meanwhile."""
    with suppress(OSError):
        inside = path.iterdir() if path.is_dir() and not path.is_symlink() else ()
        return max(float(one.lstat().st_ctime) for one in (path, *inside))
    return time.time()

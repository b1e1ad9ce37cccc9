"""Kill a process that is stopped as soon as its parent has no other child: `undertaker.py PROCESS PARENT`."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

MOST_S = 300.0
POLL_S = 0.1


def children(parent: int) -> set[int]:
    found = set()
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):  # not a process, or one that has ended meanwhile
            _, _, behind_name = (folder / "stat").read_text(encoding="utf-8").rpartition(")")
            if int(behind_name.split()[1]) == parent:
                found.add(int(folder.name))
    return found


if __name__ == "__main__":
    process, parent = map(int, sys.argv[1:])
    limit = monotonic() + MOST_S
    while children(parent) - {process} and monotonic() < limit:
        sleep(POLL_S)
    os.kill(process, signal.SIGKILL)

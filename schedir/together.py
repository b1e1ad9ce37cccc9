"""Several processes that torchrun has started on one host: which of them says what went wrong.

A mistake in a command is found by every process alike, and the first of them that ends makes torchrun send SIGTERM to the others.
So each leaves its line beside the file that torchrun gives it for its error, and looks at those of the others:

    process 0                   says its line at once
    process k                   says it unless process 0 says the very same, for which it waits a moment
    whoever is interrupted      says nothing if another has said what the cause is

So a line that one process alone knows is never lost. What another host or another launcher has started is not looked at.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

NAME = "schedir.error.txt"
WAIT_S = 5.0
"""How long process 0 is waited for: it began at the same moment, and finds the same mistakes."""
INTERRUPTED = "interrupted"
"""How the line of an interruption begins: it is no cause."""


def is_said_by_another(line: str) -> bool:
    """Tell whether another process of this host says this line of an error, or the cause of this interruption."""
    places = _places()
    if places is None:
        return False
    own, others = places
    if line.startswith(INTERRUPTED) and any(_is_cause(_told(path)) for path in others):
        return True
    _tell(own, line)
    # the first of all has nobody before it
    return bool(others) and own.parent.name != "0" and _waited_for(others[0]) == line


def _places() -> tuple[Path, list[Path]] | None:
    """Return where this process leaves its line, and where the others of its host do, process 0 first; None where nobody says.

    torchrun gives each a file in a folder of its own: attempt_0/LOCAL_RANK/error.json.
    """
    file = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    number, count = (os.environ.get(name, "") for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    if not file or not (number.isdigit() and count.isdigit()) or Path(file).parent.name != number:
        return None
    attempt = Path(file).parent.parent
    return attempt / number / NAME, [attempt / str(other) / NAME for other in range(int(count)) if other != int(number)]


def _tell(path: Path, line: str) -> None:
    """Leave a line, whole at once; where nothing can be written everybody says his own."""
    with suppress(OSError):
        partial = path.with_suffix(".partial")
        partial.write_text(line, encoding="utf-8")
        partial.replace(path)


def _told(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _is_cause(line: str | None) -> bool:
    return line is not None and not line.startswith(INTERRUPTED)


def _waited_for(path: Path) -> str | None:
    end = time.monotonic() + WAIT_S
    while (line := _told(path)) is None and time.monotonic() < end:
        time.sleep(0.02)
    return line

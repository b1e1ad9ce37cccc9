"""The command `schedir`, which `python -m schedir` is too: an interruption is one line, from the first import to the end."""

import atexit
import gc
import os
import signal
import sys
from contextlib import suppress
from io import BufferedRandom, BufferedWriter, TextIOWrapper
from types import FrameType

LAST_LINE = "error: interrupted\n"
FORGIVEN = 2
"""Signals that change nothing any more once the last line is said: the end takes a moment."""


class Interruption:
    """What Ctrl-C and SIGTERM do, so that nothing stays half-written: the first ends what is running, the next the process.

    first          KeyboardInterrupt, which ends threads and processes, and ends in one line
    second         the line, and exit code 1 at once; if the line is on its way already, nothing
    every other    exit code 1 at once

    While Python removes its last objects nothing is left to interrupt, and the exit code stays what it is.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._count = 0
        self._last_line_is_said = False

    def listen(self) -> None:
        """Take over from the handlers of Python."""
        for number in (signal.SIGINT, signal.SIGTERM):
            # a shell lets what it starts in the background ignore Ctrl-C: that stays so
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self)
        atexit.register(self._stop_listening)  # the first that is registered is the last that runs

    def _stop_listening(self) -> None:
        """Let signals change nothing from here on: Python would let them kill it, while it takes seconds to remove what it made."""
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is self:
                signal.signal(number, signal.SIG_IGN)

    def end(self) -> None:
        """Hear that the command's last line is about to be printed."""
        self._last_line_is_said = True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        if os.getpid() != self._process:  # one that a DataLoader has forked: it has no last line to say
            signal.default_int_handler(number, frame)
        self._count += 1
        if self._last_line_is_said:
            if self._count > FORGIVEN:
                os._exit(1)
        elif self._count == 1:
            raise KeyboardInterrupt
        else:
            os.write(2, LAST_LINE.encode())  # sys.stderr may be in the middle of something
            os._exit(1)


WRITTEN_LATE = frozenset({TextIOWrapper, BufferedRandom, BufferedWriter})
"""Files whose last bytes may still be in memory."""


def leave_quickly() -> None:
    """Let the interpreter end without a last look at a million objects, which takes seconds behind the last line said.

    What others do at the end is done before: threads, temporary folders, process groups. Files that nobody has closed are
    written out here, since those that only the collector would find are not closed any more.
    """
    for thing in gc.get_objects():
        if type(thing) in WRITTEN_LATE and not thing.closed:
            with suppress(OSError, ValueError):  # whoever read it may have gone
                thing.flush()
    gc.freeze()


def main() -> int:
    """Run the command line and return its exit code; SIGTERM interrupts it as Ctrl-C does, so that nothing stays half-written."""
    interruption = Interruption()
    atexit.register(leave_quickly)  # first of all, since the last to be registered is the first to be called
    try:
        interruption.listen()
        from schedir.cli import main as run  # noqa: PLC0415 - the imports take long enough to be interrupted

        code = run(ending=interruption.end)
        interruption.end()  # threads and processes of libraries have their last words yet
        return code
    except KeyboardInterrupt:
        interruption.end()
        from schedir.together import INTERRUPTED, is_said_by_another  # noqa: PLC0415 - it is needed nowhere else

        if not is_said_by_another(INTERRUPTED):
            sys.stderr.write(LAST_LINE)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())

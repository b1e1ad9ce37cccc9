"""The command `schedir`, which `python -m schedir` is too: an interruption is one line from the first import on."""

import signal
import sys


def main() -> int:
    """Run the command line and return its exit code; SIGTERM interrupts it as Ctrl-C does, so that nothing stays half-written."""
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        from schedir.cli import main as run  # noqa: PLC0415 - the imports take long enough to be interrupted

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        return 1


if __name__ == "__main__":
    raise SystemExit(main())

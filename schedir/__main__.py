"""`python -m schedir` is the command `schedir`."""

from schedir.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

"""The command line: parse and print only, one file per command."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    raise SystemExit("not yet")

"""The command line: parse and print only, one file per command; a command imports what it needs when it runs."""

from schedir.cli.run import main

__all__ = ["main"]

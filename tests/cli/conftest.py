"""Shared fixtures of the tests of the command line."""

from pathlib import Path

import pytest

from schedir.cli.screen import progress
from tests.cli.command import Command


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be said of what takes long: on a busy machine anything does."""
    monkeypatch.setattr(progress, "QUIET", 3600.0)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Run commands in an empty folder, on a terminal of 100 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return Command(capsys)

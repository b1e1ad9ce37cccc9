"""Run the command line inside the test's own process."""

from dataclasses import dataclass

import pytest

from schedir.cli import main


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


class Command:
    """`command("show", "1f1b")` runs `schedir show 1f1b`."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object) -> Result:
        self._capsys.readouterr()
        code = main([str(word) for word in words])
        captured = self._capsys.readouterr()
        return Result(code, captured.out, captured.err)

    def succeed(self, *words: object) -> str:
        """Run and return what was printed; the command must end well and say nothing on stderr."""
        result = self(*words)
        assert (result.code, result.err) == (0, ""), result.out
        return result.out

    def fail(self, *words: object) -> str:
        """Run and return the error's text; the command must end with 2 and exactly one line on stderr."""
        result = self(*words)
        assert result.code == 2, result
        assert result.err.startswith("error: "), result.err
        assert result.err.count("\n") == 1, result.err
        assert result.err.endswith("\n"), result.err
        return result.err.removeprefix("error: ").rstrip("\n")

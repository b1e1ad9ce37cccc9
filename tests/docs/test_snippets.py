"""Every Python snippet of README and docs runs, in the order of its page, and prints what stands below it."""

import re
import shutil
from pathlib import Path

import pytest
import torch

import schedir
from tests.repository import ROOT, relative

SNIPPET = re.compile(r"^```python\n(.*?)^```\n(?:\n```\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
"""A snippet, with what it prints if that follows."""

MEASURED = re.compile(r"[-+]?\d+\.\d+ ?(?:s|%)|within-noise|durations|structure")
"""What depends on the machine: only its form is compared, and only in a line that says it was measured."""

PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if SNIPPET.search(page.read_text("utf-8"))]


def comparable(text: str) -> list[str]:
    return [MEASURED.sub("#", line) if "measured" in line else line for line in text.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in a folder that has the examples, as a checkout does."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    torch.manual_seed(0)
    return tmp_path


def run_page(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the snippets of a page one after the other, as one program; one that names its file is written there first."""
    names: dict[str, object] = {"__name__": "page"}
    for code, printed in SNIPPET.findall(text):
        file = re.match(r"# (\w+\.py)\n", code)
        if file:
            (folder / file[1]).write_text(code, encoding="utf-8")
        capsys.readouterr()
        exec(compile(code, "page", "exec"), names)
        if printed:
            assert comparable(capsys.readouterr().out) == comparable(printed)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_the_snippets_of_a_page_run(page: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_page(page.read_text(encoding="utf-8"), folder, capsys)


def test_the_pages_with_snippets_are_found() -> None:
    assert {relative(page) for page in PAGES} >= {
        *("README.md", "docs/adding_a_schedule.md", "docs/simulator.md", "docs/timelines.md", "docs/training.md"),
    }


def test_a_snippet_that_prints_something_else_is_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = "```python\nprint(1 + 1)\n```\n\n```\n3\n```\n"

    with pytest.raises(AssertionError):
        run_page(page, folder, capsys)


def test_the_example_in_the_package_s_own_text_runs(folder: Path) -> None:
    lines = str(schedir.__doc__).splitlines()
    code = "\n".join(line.removeprefix("    ") for line in lines if line.startswith("    "))
    exec(compile(code, "schedir.__doc__", "exec"), {})

    assert (folder / "gantt.png").read_bytes().startswith(b"\x89PNG")

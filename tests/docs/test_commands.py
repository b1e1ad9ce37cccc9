"""Commands of README and docs can be typed in the repository's root: the files that they name are there, or made before."""

import re
from pathlib import Path

import pytest

from schedir.cli import main
from tests.repository import ROOT, relative

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FILE = re.compile(r"[\w./-]+\.(?:py|toml|csv|txt|trace\.json|json)(?=$|:)")
QUICK = ["docs/adding_a_schedule.md", "docs/search.md"]
"""Pages whose commands take seconds, all together."""


def commands(page: str) -> list[list[str]]:
    """Return the words of a page's commands, without what is said beside them."""
    lines = page.replace("\\\n", " ").splitlines()
    shown = [line.strip() for line in lines if re.match(r"(?:    )?schedir [a-z]+ ", line)]
    return [re.split(r"(?: {2,}| #)(?!-)", re.sub(r" {2,}(?=--)", " ", line))[0].split()[1:] for line in shown]


def missing(page: str) -> list[str]:
    """Return the files that commands of a page read and nobody made."""
    made: set[str] = set()
    lost = []
    for words in commands(page):
        files = {found[0] for word in words if (found := FILE.match(word))}
        written = {words[place + 1] for place, word in enumerate(words) if word in {"-o", "--output", "--trace", "--plot"}}
        if words[0] == "convert":
            written |= set(words[2:3])
        lost += sorted(file for file in files - written - made if not (ROOT / file).exists() or file.startswith("out/"))
        made |= written
        if words[0] == "compare" and "--model" in words:
            made |= {f"out/{name}.trace.json" for name in words[1 : words.index("--model")]}
    return lost


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_files_that_commands_name_are_in_the_repository_or_made_before(page: Path) -> None:
    assert missing(page.read_text(encoding="utf-8")) == []


def test_a_file_that_nobody_made_is_found() -> None:
    assert missing("schedir convert 1f1b a.toml\nschedir check a.toml    b.toml is no file here\nschedir plot c.py:c -o d.svg") == [
        "c.py"
    ]


@pytest.mark.parametrize("name", QUICK)
def test_the_commands_of_a_page_run_one_after_the_other(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    typed = commands((ROOT / name).read_text(encoding="utf-8"))

    assert [words for words in typed if main(words) != 0] == []
    assert len(typed) == 3

"""What the pages name exists: other tools' names of schedules, links, columns of tables; README keeps its length."""

import re
from pathlib import Path

import pytest

from schedir.cli import main
from schedir.schedules.registry import ALIASES, SCHEDULES, find_schedule
from tests.repository import ROOT, relative

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


def test_names_in_other_tools_are_understood() -> None:
    rows = re.findall(r"^\| ([\w-]+) \| ([\w, -]+) \| [^|]*\|$", GLOSSARY.partition("| schedir | elsewhere |")[2], re.MULTILINE)
    named = {other.strip(): ours for ours, others in rows for other in others.split(",")}

    assert len(rows) == 8
    assert {other: find_schedule(other).name for other in named} == named
    assert {alias.lower() for alias in named} >= set(ALIASES)


@pytest.mark.parametrize("page", ["README.md", "docs/schedules/README.md", "docs/glossary.md"])
def test_the_page_names_every_schedule(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")

    assert [name for name in SCHEDULES if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)] == []


def test_every_column_of_show_stands_in_the_glossary(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["show", "xpipe", "--micro-batches", "1", "--horizon", "round-trip"]) == 0
    (head,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("stage "))
    columns = re.split(r"  +", head)
    words = {cell.strip("` ") for line in GLOSSARY.splitlines() if line.startswith("|") for cell in re.split(r"[|,]", line)}

    assert len(columns) == 10
    assert [name for name in columns if not {name, name.rstrip("s"), name.partition(" ")[2]} & words] == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))

    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_readme_has_at_most_150_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150

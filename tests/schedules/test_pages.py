"""docs/schedules: a page with a picture for every schedule, named in the table of all."""

import pytest

from schedir.schedules.registry import SCHEDULES
from tests.repository import ROOT

PAGES = ROOT / "docs" / "schedules"


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_has_a_page_that_shows_its_picture(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")

    assert page.startswith(f"# {name}\n")
    assert f"](pictures/{name}.svg)" in page
    assert (PAGES / "pictures" / f"{name}.svg").is_file()


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_page_stands_in_the_table_of_all(name: str) -> None:
    assert f"[{name}]({name}.md)" in (PAGES / "README.md").read_text(encoding="utf-8")

"""docs/search.md: its example runs and its table is that of the benchmark."""

import re

from tests.repository import ROOT

PAGE = (ROOT / "docs" / "search.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_page_says() -> None:
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code is not None
    printed: list[str] = []

    exec(code[1], {"print": lambda *values: printed.append(" ".join(map(str, values)))})

    assert printed == ["27.0 27.0 True"]


def test_the_table_is_that_of_the_benchmark() -> None:
    measured = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    rows = [line for line in PAGE.splitlines() if re.match(r"\| .* \| \d+ x \d+ \|", line)]

    assert rows
    assert [row for row in rows if row.removesuffix("|") not in measured] == []

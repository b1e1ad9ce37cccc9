"""Sections of docs/performance.md."""

from pathlib import Path

from benchmarks.sections import table, write_section


def test_a_section_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "performance.md"
    path.write_text(
        "# Performance\n\nWords.\n\n## One\n\nold\nlines\n\n## One and a half\n\nkept\n\n## Two\n\nkept\n", encoding="utf-8"
    )

    write_section("One", "new\n", path)

    assert path.read_text(encoding="utf-8") == (
        "# Performance\n\nWords.\n\n## One\n\nnew\n\n## One and a half\n\nkept\n\n## Two\n\nkept\n"
    )


def test_a_new_section_is_added_as_the_last_and_a_file_is_begun(tmp_path: Path) -> None:
    path = tmp_path / "performance.md"

    write_section("One", "1", path)
    write_section("Two", "2", path)

    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Performance\n\nMeasured by")
    assert text.endswith("\n\n## One\n\n1\n\n## Two\n\n2\n")


def test_a_table_is_markdown() -> None:
    assert table(("what", "s"), [("a", 1), ("b", 2.5)]) == "| what | s |\n| --- | ---: |\n| a | 1 |\n| b | 2.5 |"

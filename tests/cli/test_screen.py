"""Tables hold every cell at every width."""

import pytest

from schedir.cli.screen import fitted, print_table

TABLE = [["stage", "busy", "idle"], ["0", "24.5 s", "9 s"], ["1", "3 s", "30.5 s"]]


def test_a_table_that_fits_stands_as_it_is() -> None:
    assert fitted(TABLE, 21) == [
        [
            "stage    busy    idle",
            "─────────────────────",
            "0      24.5 s     9 s",
            "1         3 s  30.5 s",
        ]
    ]


def test_a_table_that_is_too_wide_is_turned() -> None:
    assert fitted([[*TABLE[0], "end"], ["0", "1", "2", "3"]], 16) == [
        [
            "stage  0",
            "────────",
            "busy   1",
            "idle   2",
            "end    3",
        ]
    ]


def test_a_table_that_is_too_wide_both_ways_is_cut_into_tables_with_the_same_first_column() -> None:
    assert fitted(TABLE, 14) == [
        [
            "stage    busy",
            "─────────────",
            "0      24.5 s",
            "1         3 s",
        ],
        [
            "stage    idle",
            "─────────────",
            "0         9 s",
            "1      30.5 s",
        ],
    ]


def test_a_column_wider_than_the_line_stands_whole() -> None:
    assert [table[0] for table in fitted([["a", "b" * 30, "c"], ["1" * 9, "2", "3"]], 8)] == [
        f"a{' ' * 10}{'b' * 30}",
        f"a{' ' * 10}c",
    ]


def test_where_nobody_limits_a_line_no_table_is_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table([f"column {number}" for number in range(40)], [[str(number) for number in range(40)]])

    # ten names of 8 and thirty of 9 characters, 39 gaps of 2
    assert [len(line) for line in capsys.readouterr().out.splitlines()] == [428] * 3

"""Tables hold every cell at every width."""

import pytest

from schedir.cli.screen.screen import fitted, print_table
from tests.cli.command import Command
from tests.repository import ROOT

COSTS = ROOT / "examples" / "stages.costs.toml"

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


@pytest.mark.parametrize("columns", [60, 80, 100])
@pytest.mark.parametrize(
    "words",
    [
        ("show", "xpipe", "--devices", 8),
        ("show", "dualpipe"),
        ("check", "pipedream", "--replicas", "2,1,1", "--micro-batches", 1),
        ("simulate", "xpipe", "--devices", 8, "--micro-batches", 2, "--costs", COSTS, "--memory-limit", "80GB"),
        ("simulate", "zb-v", "--devices", 4, "--transfer", 0.25),
    ],
    ids=lambda words: f"{words[0]} {words[1]}",
)
def test_nothing_is_elided_and_no_table_or_drawing_is_wider_than_the_terminal(
    command: Command, monkeypatch: pytest.MonkeyPatch, *, words: tuple[object, ...], columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = command.succeed(*words).splitlines()
    drawn = [line for line in lines if line.startswith("device ") or set(line) == {"─"}]

    assert not [line for line in lines if "…" in line]
    assert drawn
    assert max(map(len, drawn)) <= columns


def test_every_figure_is_there_at_every_width(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same cells, whole at 200 columns, turned or in pieces at 60."""
    words = ("simulate", "xpipe", "--devices", 8, "--micro-batches", 2, "--costs", COSTS, "--memory-limit", "80GB")
    found = []
    for columns in (200, 60):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = [line for line in command.succeed(*words).splitlines() if not line.startswith((" ", "device ", "cut: "))]
        found.append({word for line in lines for word in line.split()})
    wide, narrow = found

    assert {word for word in wide - narrow if word.replace(".", "").isdigit()} == set()

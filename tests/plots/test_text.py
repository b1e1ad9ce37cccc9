import pytest

from plots.text import SECONDS, show_bytes, show_seconds, text_width, unit_for, wrap


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((33.0,), "33 s"),
        ((0.0,), "0 s"),
        ((1.0, 2.0), "1–2 s"),
        ((2.0, 2.0), "2 s"),
        ((0.01234567,), "12.35 ms"),
        ((0.001,), "1 ms"),
        ((2.5e-7,), "0.25 µs"),
        ((3.3e-5, 4.4e-5), "33–44 µs"),
    ],
)
def test_seconds_are_shown_in_the_unit_that_suits_them(values: tuple[float, ...], expected: str) -> None:
    assert show_seconds(*values) == expected


@pytest.mark.parametrize(("amount", "expected"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (74e9, "74 GB"), (1.5e12, "1.5 TB")])
def test_bytes_are_shown_in_decimal_units(amount: float, expected: str) -> None:
    assert show_bytes(amount) == expected


def test_the_smallest_unit_serves_what_is_below_it() -> None:
    assert unit_for(1e-12, SECONDS).name == "µs"


def test_parts_wrap_at_commas_and_then_at_words() -> None:
    width = text_width("makespan 33 s,", 8)

    assert wrap(["makespan 33 s", "F 1 s", "B 2 s", "a part that is longer"], width, 8) == [
        "makespan 33 s,",
        "F 1 s, B 2 s,",
        "a part that is",
        "longer",
    ]


def test_no_parts_make_no_lines() -> None:
    assert wrap([], 100, 8) == []


def test_a_word_that_is_wider_than_the_line_breaks_behind_a_sign_and_loses_nothing() -> None:
    lines = wrap(["my-very-long-schedule-name", "p = 4"], 60.0, 8.0)

    assert "".join(lines) == "my-very-long-schedule-name, p = 4"
    assert all(text_width(line, 8.0) <= 62 for line in lines)
    assert lines[0] == "my-very-long-"
    assert wrap(["mmmmmm"], 1.0, 8.0) == ["m"] * 6

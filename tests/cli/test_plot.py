"""`schedir plot`: pictures of schedules and of timeline files."""

import re
from pathlib import Path

import pytest

from tests.cli.command import Command


@pytest.mark.parametrize(("suffix", "start"), [("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_schedule_is_drawn(command: Command, suffix: str, start: bytes) -> None:
    assert command.succeed("plot", "1f1b", "-o", f"fig.{suffix}") == f"wrote fig.{suffix}\n"
    assert Path(f"fig.{suffix}").read_bytes().startswith(start)


def test_files_and_schedules_are_panels_of_one_picture(command: Command) -> None:
    command.succeed("simulate", "gpipe", "--trace", "gpipe.json.gz")
    command.succeed("plot", "gpipe.json.gz", "xpipe", "--mini-batches", 2, "--output", "fig.svg", "--width", 9, "--font-size", 7)

    assert Path("fig.svg").stat().st_size > 10_000


def headings(path: str) -> list[str]:
    """Return the bold lines of an SVG picture, which name the programs; its text is kept in comments."""
    return re.findall(r"<!-- (\S+, .*?p = .*?) -->", Path(path).read_text("utf-8"))


def test_schedules_on_one_axis_show_equally_many_mini_batches(command: Command) -> None:
    command.succeed("plot", "1f1b", "xpipe", "--micro-batches", 4, "-o", "fig.svg")

    assert headings("fig.svg") == ["1f1b, p = 4, m = 4, 3 mini-batches", "xpipe, p = 4, m = 4, 3 mini-batches"]


def test_schedules_have_as_many_mini_batches_as_a_file_beside_them(command: Command) -> None:
    command.succeed("convert", "xpipe", "--micro-batches", 4, "--mini-batches", 2, "-o", "mine.toml")
    command.succeed("plot", "gpipe", "mine.toml", "--micro-batches", 4, "-o", "fig.svg")

    assert headings("fig.svg") == ["gpipe, p = 4, m = 4, 2 mini-batches", "xpipe, p = 4, m = 4, 2 mini-batches"]


def test_panels_with_other_numbers_of_mini_batches_say_so(command: Command) -> None:
    command.succeed("simulate", "gpipe", "--micro-batches", 4, "--trace", "gpipe.json")
    command.succeed("plot", "gpipe.json", "xpipe", "--micro-batches", 4, "--mini-batches", 2, "-o", "fig.svg")

    assert headings("fig.svg") == ["gpipe, p = 4, m = 4, 1 mini-batch", "xpipe, p = 4, m = 4, 2 mini-batches"]


def test_the_look_is_passed_on(command: Command) -> None:
    words = ("plot", "1f1b", "--devices", 2, "--micro-batches", 2)
    command.succeed(*words, "-o", "plain.svg")
    looks: list[list[object]] = [
        ["--style", "gray"],
        ["--color-by", "stage"],
        ["--number-from", 1],
        ["--title", "Figure 1"],
        ["--links"],
        ["--width", 5],
    ]
    for look in looks:
        command.succeed(*words, "-o", "other.svg", *look)
        assert Path("other.svg").read_text() != Path("plain.svg").read_text(), look


def test_a_title_that_the_font_cannot_write_is_drawn_with_a_note(command: Command) -> None:
    result = command("plot", "1f1b", "--title", "数 of $5 and $x_", "-o", "a.svg")

    assert (result.code, result.out) == (0, "wrote a.svg\n")
    assert result.err == "note: the font of pictures, DejaVu Sans, lacks 数: ? is drawn for each\n"

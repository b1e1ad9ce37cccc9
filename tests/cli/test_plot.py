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

    assert headings("fig.svg") == [
        "1f1b, p = 4, m = 4, mini-batches 0 to 2 of 16",
        "xpipe, p = 4, m = 4, mini-batches 0 to 2 of 16 and what runs meanwhile",  # without a flush mini-batches overlap
    ]


def test_a_model_is_not_deeper_for_schedules_with_more_stages(command: Command) -> None:
    """(m + p - 1)(F + B) = 33 s on four stages; on eight of half the work (p - 1)(F + B)/v + m (F + B) = 28.5 s."""
    said = command.succeed("plot", "1f1b", "interleaved-1f1b", "--devices", 4, "--micro-batches", 8, "-o", "fig.svg")
    text = Path("fig.svg").read_text("utf-8")

    assert said.splitlines()[1] == "note: interleaved-1f1b: 8 stages, each with half of the work of 1f1b's"
    assert re.findall(r"makespan ([\d.]+) s", text) == ["33", "28.5"]
    assert "F 0.5 s, B 1 s" in text
    assert headings("fig.svg")[1].endswith("2 stages per device each with half of the work of 1f1b's")


def test_costs_of_single_stages_are_refused_where_numbers_of_stages_differ(command: Command) -> None:
    assert "costs per layer" in command.fail("plot", "1f1b", "zb-v", "--forward", "1,2,3,4", "-o", "fig.svg")


def test_of_a_long_timeline_a_part_is_drawn_and_another_may_be_chosen(command: Command) -> None:
    """xpipe, p = 4, N = 12: steady from the end of mini-batch 3 to that of 7."""
    command.succeed("simulate", "xpipe", "--micro-batches", 4, "--mini-batches", 12, "--trace", "x.trace.json")
    shown = {
        (): "mini-batches 4 to 6 of 12",
        ("--mini-batches", 2): "mini-batches 5 to 6 of 12",
        ("--part", "1-3"): "mini-batches 1 to 3 of 12",
        ("--part", "all"): "12 mini-batches",
        ("--part", "2-4", "--number-from", 1): "mini-batches 2 to 4 of 12",
    }
    for words, part in shown.items():
        meanwhile = "" if words == ("--part", "all") else " and what runs meanwhile"  # without a flush mini-batches overlap
        said = command.succeed("plot", "x.trace.json", "-o", "x.svg", *words)
        assert headings("x.svg") == [f"xpipe, p = 4, m = 4, {part}{meanwhile}"], words
        assert said == ("wrote x.svg\n" if "all" in words else f"wrote x.svg: {part} drawn; --part all draws all\n")


@pytest.mark.parametrize("part", ["0", "3-1", "a", "", "1-2-3", "-1"])
def test_what_is_no_part_is_refused(command: Command, part: str) -> None:
    assert command.fail("plot", "xpipe", "-o", "x.svg", "--part", part).endswith(
        "must be all, a number of mini-batches, or the first and the last of them, as 4-6"
    )
    assert not Path("x.svg").exists()


def test_a_part_that_no_run_has_is_refused(command: Command) -> None:
    said = command.fail("plot", "gpipe", "--mini-batches", 3, "-o", "x.svg", "--part", "4-6")

    assert said == "mini-batches 4 to 6 are no part of a run of 3: give two of 0..2"


def test_simulate_draws_a_part_that_can_be_read_too(command: Command) -> None:
    said = command.succeed("simulate", "xpipe", "--micro-batches", 4, "--plot", "x.svg")

    assert said.splitlines()[-1] == "wrote     x.svg: mini-batches 0 to 2 of 16 drawn; schedir plot --part all draws all"


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

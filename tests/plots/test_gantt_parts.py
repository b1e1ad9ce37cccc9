"""Some mini-batches of a run in a picture."""

from dataclasses import replace

import pytest

from plots.gantt import gantt
from schedir.errors import ArgumentError
from tests.plots.pictures import words
from tests.plots.timelines import predicted


def test_some_mini_batches_are_drawn_and_the_text_is_that_of_the_whole_run() -> None:
    # gpipe p = 2, m = 1: 1 + 1 + 2 + 2 = 6 s a mini-batch, 18 s in all
    figure = gantt(predicted("gpipe", 2, 1, mini_batches=3), mini_batches=(1, 1))

    assert figure.axes[0].get_xlim() == (0.0, 6.0)
    assert "makespan 18 s" in words(figure)


def test_the_title_says_which_mini_batches_are_drawn() -> None:
    timeline = predicted("gpipe", 2, 1, mini_batches=12)

    assert "gpipe, p = 2, m = 1, mini-batches 4 to 6 of 12" in words(gantt(timeline, mini_batches=(4, 6))).splitlines()
    assert "gpipe, p = 2, m = 1, mini-batch 5 of 12" in words(gantt(timeline, mini_batches=(4, 4), number_from=1)).splitlines()
    assert "mini-batches 4 to 6 of 12 drawn" in words(gantt(timeline, mini_batches=(4, 6), title="Figure 1"))
    assert "12 mini-batches" in words(gantt(timeline, mini_batches=(0, 11)))


def test_so_many_mini_batches_are_those_of_the_middle_of_the_steady_state() -> None:
    # pipedream p = 2, N = 12: its steady state is from the end of mini-batch 1 to that of 9 (b = N - p - 1)
    continuous, flushed = predicted("pipedream", 2, 1, mini_batches=12), predicted("gpipe", 2, 1, mini_batches=2)

    assert "pipedream, p = 2, m = 1, mini-batches 4 to 6 of 12 and what runs meanwhile" in words(gantt(continuous, mini_batches=3))
    assert "gpipe, p = 2, m = 1, 2 mini-batches" in words(gantt(flushed, mini_batches=3))


def test_a_shorter_run_beside_a_longer_one_is_drawn_to_its_end() -> None:
    longer, shorter = predicted("gpipe", 2, 1, mini_batches=4), predicted("1f1b", 2, 1, mini_batches=2)
    text = words(gantt(longer, shorter, mini_batches=(1, 2)))

    assert "mini-batches 1 to 2 of 4" in text
    assert "mini-batch 1 of 2" in text
    with pytest.raises(ArgumentError, match="mini-batches 1 to 9 are no part of a run of 4"):
        gantt(longer, shorter, mini_batches=(1, 9))
    with pytest.raises(ArgumentError, match="mini_batches 0 must be at least 1"):
        gantt(longer, mini_batches=0)


def test_a_part_of_a_longer_run_is_numbered_as_that_is() -> None:
    """Mini-batches 20 to 31 of a training: of the middle ones the first micro-batches are 24 to 26, too, since m = 1."""
    timeline = predicted("pipedream", 2, 1, mini_batches=12)
    figure = gantt(replace(timeline, meta={"numbered_from": 20}), mini_batches=3, title="while training")
    labels = {text.get_text() for text in figure.axes[0].texts}

    assert "mini-batches 24 to 26 drawn" in words(figure)
    assert {"F25", "B24"} <= labels
    assert not {label for label in labels if label.startswith("F") and int(label[1:]) < 20}


@pytest.mark.parametrize(("mini_batches", "name"), [(1, "bubble of the mini-batch 33.3 %"), (2, "bubble of these mini-batches ")])
def test_what_a_trainer_has_measured_is_not_called_a_whole_run(mini_batches: int, name: str) -> None:
    timeline = predicted("gpipe", 2, 2, mini_batches=mini_batches)

    assert name in words(gantt(replace(timeline, meta={"measured_mini_batches": 8})))


def test_panels_that_are_cut_say_that_they_are_aligned_at_the_start_of_their_part_only() -> None:
    timeline = predicted("gpipe", 2, 1, mini_batches=12)
    label = "time (s), in each panel from the start of its own part"

    assert gantt(timeline, timeline, mini_batches=(4, 6)).axes[-1].get_xlabel() == label
    assert gantt(timeline, timeline, mini_batches=(0, 2)).axes[-1].get_xlabel() == "time (s)"
    assert gantt(timeline, mini_batches=(4, 6)).axes[-1].get_xlabel() == "time (s)"

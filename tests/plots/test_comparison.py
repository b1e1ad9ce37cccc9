from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from plots.comparison import comparison
from schedir.errors import ArgumentError
from schedir.timeline.comparison.noise_floor import noise_words
from schedir.timeline.timeline import Source, Timeline
from tests.plots.pictures import beyond_page, legend, overlapping, words
from tests.plots.timelines import predicted, with_memory


def column(figure: Figure, heading: str) -> Axes:
    return next(axes for axes in figure.axes if axes.get_title(loc="left") == heading)


def lengths(axes: Axes) -> list[float]:
    """Return the lengths of all bars of a column, one source after the other."""
    return [bar.get_width() for bars in axes.containers if isinstance(bars, BarContainer) for bar in bars]


def numbers(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def rows(figure: Figure) -> list[str]:
    return [tick.get_text() for tick in figure.axes[0].get_yticklabels()]


def slower(timeline: Timeline, factor: float) -> Timeline:
    return replace(timeline, start=timeline.start * factor, end=timeline.end * factor, release=None, source=Source.MEASURED)


def test_schedules_stand_side_by_side_with_their_figures() -> None:
    # p = 4, m = 8, F = 1, B = 2: 33 s and 27.3 % (formats/1f1b-4-8.simulate.json); in steady state a schedule without
    # flush takes m (F + B) = 24 s. Live activations: m, min(m, p). Versions: 1.
    figure = comparison(predicted("gpipe", 4, 8), predicted("1f1b", 4, 8), predicted("xpipe", 4, 8, mini_batches=12))

    assert rows(figure) == ["gpipe", "1f1b", "xpipe\n12 mini-batches"]
    assert numbers(column(figure, "time per mini-batch")) == ["33 s", "33 s", "24 s"]
    assert lengths(column(figure, "time per mini-batch")) == pytest.approx([33, 33, 24])
    assert numbers(column(figure, "bubble")) == ["27.3 %", "27.3 %", "0.0 %"]
    assert numbers(column(figure, "live activations")) == ["8", "4", "4"]
    assert numbers(column(figure, "versions of weights"))[:2] == ["1", "1"]
    assert words(figure).splitlines() == [
        "p = 4, m = 8",
        "time and bubble in steady state where there is one, else of the whole run",
    ]


def test_a_measurement_stands_below_its_prediction() -> None:
    prediction = predicted("gpipe", 2, 2)
    figure = comparison(slower(prediction, 2.0), prediction)
    times = column(figure, "time per mini-batch")
    first, second = (container[0] for container in times.containers)

    assert rows(figure) == ["gpipe\nerror -50.0 %"]
    assert numbers(times) == ["9 s", "18 s"]  # (2 + 2 - 1) x (1 + 2), and twice that
    assert first.get_y() < second.get_y()  # the axis counts downwards
    assert legend(figure) == ["predicted", "measured"]


def test_error_noise_and_model_stand_in_the_picture() -> None:
    """Predicted 9 s, measured 10 s: 9 / 10 - 1."""
    prediction = predicted("gpipe", 2, 2)
    marked = [
        replace(timeline, meta={"model": "small", "noise_floor_fraction": 0.034, "noise_floor_of": noise_words(1)})
        for timeline in (prediction, slower(prediction, 10 / 9))
    ]
    figure = comparison(*marked)

    assert rows(figure) == ["gpipe\nerror -10.0 %\nnoise 3.4 %"]
    assert words(figure).splitlines() == [
        "small, p = 2, m = 2",
        "error: predicted / measured − 1; noise: the mini-batches of the one run against each other",
    ]


def test_rounds_are_drawn_as_their_median_with_whiskers_from_least_to_most() -> None:
    """Predicted 9 s each, measured 6, 9 and 18 s: errors +50, 0 and -50 %; the caution stands in bold behind the shape."""
    prediction = predicted("gpipe", 2, 2)
    rounds = [replace(slower(prediction, factor), meta={"caution": "machine busy"}) for factor in (2, 2 / 3, 1)]
    figure = comparison(prediction, rounds[0], prediction, rounds[1], prediction, rounds[2])
    times = column(figure, "time per mini-batch")

    assert rows(figure) == ["gpipe\nerror +0.0 %\n(-50.0 % to +50.0 %)"]
    assert numbers(times) == ["9 s", "9 s"]
    (whisker,) = (line for line in times.lines if line.get_marker() == "|")
    assert np.asarray(whisker.get_xdata()) == pytest.approx([6.0, 18.0])
    assert words(figure).splitlines()[0] == "p = 2, m = 2; machine busy"
    assert "bars: medians of 3 rounds, whiskers: least to most" in words(figure)
    assert overlapping(figure) == []
    assert beyond_page(figure) == []


def test_a_negative_bubble_is_drawn_to_the_left_with_its_number() -> None:
    """1f1b p=1 over 4 mini-batches of 3 s, the first one of 9: Σ busy / N = 4.5 s a mini-batch, steady 3 s: 1 - 4.5 / 3."""
    timeline = predicted("1f1b", 1, 1, mini_batches=4)
    late = np.where(timeline.start > 0, 6.0, 0.0)
    figure = comparison(
        replace(timeline, start=timeline.start + late, end=timeline.end + 6.0, release=None), predicted("gpipe", 2, 2)
    )
    bubbles = column(figure, "bubble")

    assert numbers(bubbles) == ["-50.0 %", "33.3 %"]
    assert lengths(bubbles)[0] == pytest.approx(-0.5)
    assert bubbles.get_xlim()[0] == pytest.approx(-0.5)
    assert "below 0: tasks took longer before and after it" in words(figure)
    assert overlapping(figure) == []
    assert beyond_page(figure) == []


def test_the_heading_says_which_bubble_it_is() -> None:
    whole, steady = predicted("gpipe", 2, 2), predicted("xpipe", 2, 2, mini_batches=12)

    assert numbers(column(comparison(whole), "bubble of the whole run")) == ["33.3 %"]
    assert numbers(column(comparison(steady), "steady bubble")) == ["0.0 %"]


def test_timelines_of_one_program_that_have_labels_have_rows_of_their_own() -> None:
    one = predicted("gpipe", 2, 2)
    named = [replace(timeline, meta={"label": name}) for timeline, name in ((one, "mon/train"), (slower(one, 2), "tue/train"))]
    figure = comparison(*named)

    assert rows(figure) == ["gpipe\nmon/train", "gpipe\ntue/train"]
    assert numbers(column(figure, "time per mini-batch")) == ["9 s", "18 s"]


@pytest.mark.parametrize("width", [3.6, 5.2, 5.8, 7.0])
def test_long_names_break_and_headings_do_not_meet(width: float) -> None:
    one = predicted("gpipe", 2, 2)
    name = "a-very-long-name-of-a-schedule-that-somebody-made-for-their-own-cluster"
    figure = comparison(replace(one, meta={"label": name}), predicted("1f1b", 2, 2), width=width)

    assert rows(figure)[0].replace("\n", "") == f"gpipe{name}"
    assert overlapping(figure) == []
    assert beyond_page(figure) == []


def test_one_source_alone_needs_no_legend() -> None:
    assert comparison(predicted("gpipe", 2, 2)).legends == []


def test_micro_batches_of_different_size_are_compared_as_parts_of_a_mini_batch() -> None:
    figure = comparison(predicted("gpipe", 4, 8), predicted("pipedream", 4, 1, mini_batches=6))

    assert rows(figure) == ["gpipe\nm = 8", "pipedream\nm = 1\n6 mini-batches"]
    # GPipe holds its m micro-batches, which are one mini-batch; PipeDream p - k = 4 mini-batches on device 0 (PAPERS.md).
    assert numbers(column(figure, "live, in mini-batches")) == ["1", "4"]


def test_bytes_are_compared_where_all_timelines_carry_them() -> None:
    one, other = (
        with_memory(predicted(name, 2, 2), levels) for name, levels in (("gpipe", [3_000, 5_000]), ("1f1b", [1_000, 500]))
    )

    assert numbers(column(comparison(one, other), "peak memory")) == ["5 kB", "1 kB"]
    assert numbers(column(comparison(one, predicted("1f1b", 2, 2)), "live activations")) == ["2", "2"]


def test_the_same_schedule_with_and_without_recomputation_has_two_rows() -> None:
    figure = comparison(predicted("gpipe", 2, 2), predicted("gpipe", 2, 2, recompute_mode="always"))

    assert rows(figure) == ["gpipe", "gpipe\nrecompute always"]


def test_a_title_takes_the_place_of_the_first_line() -> None:
    assert words(comparison(predicted("gpipe", 2, 2), title="Table 2")) == "Table 2"


@pytest.mark.parametrize(("style", "width", "rows_of_columns"), [("paper", 7, 1), ("gray", 4.5, 2), ("screen", 3.6, 4)])
def test_columns_wrap_on_narrow_pages_and_no_text_meets_another(style: str, width: float, rows_of_columns: int) -> None:
    prediction = predicted("xpipe", 4, 8, mini_batches=12)
    figure = comparison(predicted("gpipe", 4, 8), prediction, slower(prediction, 1.01), style=style, width=width)

    assert len({round(axes.get_position().y0, 3) for axes in figure.axes}) == rows_of_columns
    assert overlapping(figure) == []
    assert beyond_page(figure) == []


def test_a_comparison_of_nothing_is_refused() -> None:
    with pytest.raises(ArgumentError, match="no timeline was given: give at least one"):
        comparison()

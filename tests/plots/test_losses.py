"""The picture of a training's losses."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes

from plots.losses import Course, losses, running_mean
from schedir.errors import ArgumentError

NONE = np.full(4, np.nan)
COURSE = Course(
    mini_batch=np.arange(4.0),
    loss=np.array([4.0, 3.0, 2.0, 1.0]),
    learning_rate=np.full(4, 0.1),
    gradient_norm=np.array([1.0, 2.0, 1.0, 2.0]),
    validated=np.array([0.0, 4.0]),
    validation_loss=np.array([4.5, 1.5]),
)


def lines(panel: int, course: Course = COURSE) -> list[list[tuple[float, float]]]:
    """Return the points of all lines of a panel."""
    drawn = losses(course).axes[panel].lines
    return [[(x, y) for x, y in np.asarray(line.get_xydata()).tolist()] for line in drawn]


def texts(course: Course) -> list[str]:
    return [text.get_text() for text in losses(course, title="small: 1f1b").texts]


def test_losses_and_validation_stand_over_the_mini_batches_that_they_are_behind() -> None:
    assert lines(0) == [[(0, 4), (1, 3), (2, 2), (3, 1)], [(0, 4.5), (4, 1.5)]]
    assert texts(COURSE) == ["small: 1f1b", "4 mini-batches, loss 4 at first, 1 at last, validation loss best 1.5 after 4"]


def test_rates_and_norms_have_panels_of_their_own_where_they_are_known() -> None:
    assert [axes.get_ylabel() for axes in losses(COURSE).axes] == ["loss", "learning\nrate", "gradient\nnorm"]
    assert lines(2) == [[(0, 1), (1, 2), (2, 1), (3, 2)]]
    without = replace(COURSE, learning_rate=NONE, gradient_norm=NONE)
    assert [axes.get_ylabel() for axes in losses(without).axes] == ["loss"]


def test_metrics_have_panels_of_their_own_and_are_said_where_the_loss_is_best() -> None:
    course = replace(COURSE, metrics={"accuracy": np.array([0.25, 0.75]), "top_five": np.array([np.nan, np.nan])})
    names = ["loss", "accuracy", "top\nfive", "learning\nrate", "gradient\nnorm"]
    assert [axes.get_ylabel() for axes in losses(course).axes] == names
    assert lines(1, course) == [[(0, 0.25), (4, 0.75)]]
    assert texts(course)[1].endswith("validation loss best 1.5 after 4, accuracy 0.75 there")
    with pytest.raises(ArgumentError, match="columns of a course"):
        replace(COURSE, metrics={"accuracy": np.ones(3)})


def test_names_of_panels_end_in_one_column_inside_the_picture() -> None:
    figure = losses(replace(COURSE, metrics={"perplexity_of_words": np.array([12345.0, 98765.0])}))
    figure.canvas.draw()
    boxes = [axes.yaxis.label.get_window_extent() for axes in figure.axes]

    assert len({round(box.x1, 3) for box in boxes}) == 1
    assert min(box.x0 for box in boxes) >= 0


def test_a_loss_that_is_not_finite_is_left_out_and_said() -> None:
    course = replace(COURSE, loss=np.array([4.0, np.nan, np.inf, 1.0]))
    shown = np.array([value for _, value in lines(0, course)[0]])
    assert np.isfinite(shown).tolist() == [True, False, False, True]
    assert "2 losses that are not finite are left out" in texts(course)[1]


def test_nothing_but_losses_that_are_not_finite_is_drawn_too() -> None:
    course = replace(COURSE, loss=NONE, gradient_norm=NONE, validated=np.empty(0), validation_loss=np.empty(0))
    assert texts(course)[1] == "4 mini-batches, 4 losses that are not finite are left out"


@pytest.mark.parametrize(
    ("values", "marks"),
    [
        ([40.0, 3.0, 2.0, 1.0], ["1", "2", "5", "10", "20"]),
        ([0.7, 0.1, 0.04, 0.03], ["0.05", "0.1", "0.2", "0.5"]),
        ([2e4, 1.0, 1e-3, 2e-5], ["0.0001", "0.01", "1", "100", "1e4"]),
    ],
)
def test_marks_of_a_logarithmic_scale_are_plain_numbers(values: list[float], marks: list[str]) -> None:
    course = replace(COURSE, loss=np.array(values), validated=np.empty(0), validation_loss=np.empty(0))
    figure = losses(course)
    figure.canvas.draw()
    low, high = figure.axes[0].get_ylim()
    shown = [label.get_text() for label in figure.axes[0].yaxis.get_ticklabels() if low <= label.get_position()[1] <= high]

    assert shown == marks


def test_validation_losses_of_which_none_is_finite_are_said() -> None:
    course = replace(COURSE, validation_loss=np.array([np.nan, np.inf]), metrics={"accuracy": np.array([0.25, np.inf])})
    assert texts(course)[1] == "4 mini-batches, loss 4 at first, 1 at last, no validation loss is finite"
    assert lines(1, course)[0][0] == (0.0, 0.25)


def test_the_best_validation_loss_is_a_finite_one() -> None:
    course = replace(COURSE, validation_loss=np.array([-np.inf, 1.5]))
    assert texts(course)[1].endswith("validation loss best 1.5 after 4")


def test_a_single_mini_batch_has_one_loss_and_marks_inside_the_panels() -> None:
    one = Course(
        mini_batch=np.zeros(1),
        loss=np.array([4.0]),
        learning_rate=np.array([0.1]),
        gradient_norm=np.array([0.56]),
        validated=np.empty(0),
        validation_loss=np.empty(0),
    )
    assert texts(one)[1] == "1 mini-batch, loss 4"
    for panel, value in ((1, 0.1), (2, 0.56)):
        assert losses(one).axes[panel].get_ylim()[1] > 1.05 * value


def test_losses_far_apart_have_a_logarithmic_scale() -> None:
    assert losses(COURSE).axes[0].get_yscale() == "linear"
    assert losses(replace(COURSE, loss=np.array([40.0, 3.0, 2.0, 1.0]))).axes[0].get_yscale() == "log"
    assert losses(replace(COURSE, loss=np.array([40.0, 3.0, 2.0, -1.0]))).axes[0].get_yscale() == "linear"


def test_many_losses_have_their_running_mean_over_them() -> None:
    """The mean of a fiftieth: 5 of 200, symmetric inside, of what there is at the ends."""
    many = Course(
        mini_batch=np.arange(200.0),
        loss=np.arange(200.0) % 2,
        learning_rate=np.full(200, np.nan),
        gradient_norm=np.full(200, np.nan),
        validated=np.empty(0),
        validation_loss=np.empty(0),
    )
    raw, mean, _ = lines(0, many)
    assert raw[:3] == [(0, 0), (1, 1), (2, 0)]
    assert [value for _, value in mean[:4]] == pytest.approx([1 / 3, 2 / 4, 2 / 5, 3 / 5])
    assert [text.get_text() for text in losses(many).legends[0].texts] == ["loss of a mini-batch", "mean of 5"]


def test_the_running_mean_leaves_out_what_is_not_finite() -> None:
    values = np.array([1.0, np.nan, 3.0, np.nan, np.nan, np.nan])
    assert running_mean(values, 3).tolist()[:4] == [1.0, 2.0, 3.0, 3.0]
    assert np.isnan(running_mean(values, 3)[5])


def test_no_losses_and_columns_of_other_lengths_are_refused() -> None:
    empty = np.empty(0)
    with pytest.raises(ArgumentError, match="there are no losses to draw: train on at least one mini-batch"):
        losses(
            Course(mini_batch=empty, loss=empty, learning_rate=empty, gradient_norm=empty, validated=empty, validation_loss=empty)
        )
    with pytest.raises(ArgumentError, match=r"columns of a course have \[3, 4\] rows"):
        replace(COURSE, loss=np.ones(3))


def ticks(axes: Axes, which: str) -> list[str]:
    """Return the labels of the marks that an axis shows."""
    axis = getattr(axes, f"{which}axis")
    low, high = sorted(axis.get_view_interval())
    values = [value for value in axis.get_majorticklocs() if low <= value <= high]
    return [label.replace("\N{MINUS SIGN}", "-") for label in axis.get_major_formatter().format_ticks(values)]


@pytest.mark.parametrize(
    ("rate", "marks"),
    [(0.001, ["0", "0.001"]), (3e-5, ["0", "2e-5", "4e-5"]), (0.5, ["0", "0.5"]), (0.003, ["0", "0.002", "0.004"])],
)
def test_the_axis_of_the_rate_has_round_marks(rate: float, marks: list[str]) -> None:
    figure = losses(replace(COURSE, learning_rate=np.full(4, rate)))
    figure.draw_without_rendering()
    assert ticks(figure.axes[1], "y") == marks


def test_mini_batches_are_marked_by_round_numbers() -> None:
    course = Course(
        mini_batch=np.arange(60.0),
        loss=np.ones(60),
        learning_rate=np.full(60, np.nan),
        gradient_norm=np.full(60, np.nan),
        validated=np.array([60.0]),
        validation_loss=np.array([1.0]),
    )
    figure = losses(course)
    figure.draw_without_rendering()
    assert ticks(figure.axes[-1], "x") == ["0", "10", "20", "30", "40", "50", "60"]

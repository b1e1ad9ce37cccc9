"""What devices hold over time, below the bars of a Gantt chart."""

from dataclasses import replace

import numpy as np
import pytest

from plots.gantt import gantt
from plots.held import held_memory
from schedir.timeline.timeline import MemorySteps
from tests.plots.pictures import labels, vertices, words
from tests.plots.timelines import measured, predicted, with_memory


def test_memory_held_before_the_first_task_is_drawn_from_its_start() -> None:
    timeline = with_memory(measured(predicted("1f1b", 2, 2), begin=3.0), [8, 4])

    assert min(float(time.min()) for time in held_memory(timeline).time) == 0.0


def test_memory_without_bytes_shows_live_activations() -> None:
    # PAPERS.md: 1F1B holds min(m, p - k) activations on device k.
    figure = gantt(predicted("1f1b", 4, 8), memory=True)

    assert labels(figure.axes[1]) == ["4", "3", "2", "1"]
    assert "live activations of each device, peak at the right" in words(figure)


def test_bytes_and_numbers_of_activations_have_a_scale_of_their_own() -> None:
    # a prediction with bytes above a measurement without: 4 activations fill 0.84 of a row as 8 GB do
    prediction = with_memory(predicted("1f1b", 4, 8), [8_000_000_000, 4_000_000_000, 2_000_000_000, 1_000_000_000])
    figure = gantt(prediction, measured(predicted("1f1b", 4, 8)), memory=True)
    held, counted = (figure.axes[number].collections[0].get_paths() for number in (1, 3))

    assert [number + 1 - vertices(path)[:, 1].min() for number, path in enumerate(held)] == pytest.approx([0.84, 0.42, 0.21, 0.105])
    assert [number + 1 - vertices(path)[:, 1].min() for number, path in enumerate(counted)] == pytest.approx(
        [0.84, 0.63, 0.42, 0.21]
    )


def test_memory_shows_peaks_and_the_limit_and_marks_who_exceeds_it() -> None:
    timeline = with_memory(predicted("gpipe", 2, 2), [4_000_000_000, 2_000_000_000], [3_000_000_000, 3_000_000_000])
    figure = gantt(timeline, memory=True)
    held = figure.axes[1]

    assert labels(held) == ["4 GB", "2 GB"]
    assert [text.get_fontweight() for text in held.texts] == ["bold", "normal"]
    assert "memory of each device, peak at the right, limit 3 GB (dashed)" in words(figure)
    # rows are 1 high and 4 GB takes 0.84 of one
    assert [vertices(path)[0, 1] for path in held.collections[-1].get_paths()] == pytest.approx([1 - 0.63, 2 - 0.63])


def test_a_limit_far_above_the_curves_is_named_but_not_drawn() -> None:
    timeline = with_memory(predicted("gpipe", 2, 2), [4_000_000_000, 2_000_000_000], [80_000_000_000] * 2)
    figure = gantt(timeline, memory=True)

    assert "limit 80 GB (out of sight)" in words(figure)
    assert figure.axes[1].collections[1].get_paths() == []


def test_memory_of_some_mini_batches_is_what_was_held_then() -> None:
    # gpipe p = 2, m = 1: 6 s a mini-batch, 18 s in all; 8 and 4 bytes in the first 9 s, then 4 and 2
    timeline = with_memory(predicted("gpipe", 2, 1, mini_batches=3), [8, 4])
    figure = gantt(timeline, mini_batches=(2, 2), memory=True)

    assert labels(figure.axes[1]) == ["4 B", "2 B"]
    assert "memory of each device, peak of this part at the right" in words(figure)
    assert labels(gantt(timeline, mini_batches=(1, 1), memory=True).axes[1]) == ["8 B", "4 B"]


def test_live_activations_of_some_mini_batches_count_those_from_before() -> None:
    # PAPERS.md: pipedream holds p - k = 4, 3, 2, 1 activations on device k
    figure = gantt(predicted("pipedream", 4, 1, mini_batches=12), mini_batches=(5, 6), memory=True)

    assert labels(figure.axes[1]) == ["4", "3", "2", "1"]


def test_every_class_of_memory_has_its_colour_and_its_entry_in_a_legend() -> None:
    timeline = predicted("gpipe", 2, 2)
    by_class = np.zeros((1, 8), np.int64)
    by_class[:, [0, 4]] = (3, 5)  # weights and activations
    held = replace(timeline, memory=tuple(MemorySteps(np.zeros(1), by_class) for _ in range(2)))
    figure = gantt(held, memory=True)
    weights, activations = (figure.axes[1].collections[number].get_paths() for number in (0, 1))

    assert [text.get_text() for text in figure.legends[1].get_texts()] == ["memory: weights", "memory: activations"]
    # 8 bytes fill 0.84 of a row: weights from its bottom to 3/8, activations from there to the top
    lower, upper = vertices(weights[0])[:, 1], vertices(activations[0])[:, 1]
    assert (lower.max(), lower.min()) == pytest.approx((1, 1 - 0.84 * 3 / 8))
    assert (upper.max(), upper.min()) == pytest.approx((1 - 0.84 * 3 / 8, 1 - 0.84))

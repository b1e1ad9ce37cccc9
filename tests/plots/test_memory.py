from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import FillBetweenPolyCollection

from plots.memory import memory
from plots.palette import MEMORY_COLOURS
from schedir.errors import ArgumentError
from schedir.timeline.timeline import MemoryClass, MemorySteps, Timeline
from tests.plots.pictures import beyond_page, fill_of, labels, legend, overlapping, vertices, words
from tests.plots.timelines import predicted

GB = 1_000_000_000


def holding(*devices: dict[MemoryClass, list[int]], limit: int | None = None) -> Timeline:
    """Return a run of as many devices in which device d holds the given bytes from 0 s, 1 s, 2 s, … on."""
    timeline = predicted("gpipe", len(devices), 2)
    steps = []
    for held in devices:
        count = len(next(iter(held.values())))
        by_class = np.array([held.get(name, [0] * count) for name in MemoryClass], np.int64).T
        steps.append(MemorySteps(np.arange(count, dtype=np.float64), by_class))
    return replace(timeline, memory=tuple(steps), meta={} if limit is None else {"limit_bytes": [limit] * len(devices)})


def test_classes_are_stacked_and_only_those_that_hold_anything_are_shown() -> None:
    figure = memory(holding({MemoryClass.WEIGHTS: [2 * GB, 2 * GB], MemoryClass.ACTIVATIONS: [0, 3 * GB]}))
    weights, activations = figure.axes[0].collections

    assert legend(figure) == ["weights", "activations"]
    assert fill_of(weights) == MEMORY_COLOURS[MemoryClass.WEIGHTS]
    assert isinstance(activations, FillBetweenPolyCollection)
    assert vertices(activations.get_paths()[0])[:, 1].max() == 5  # GB: 2 of weights below 3 of activations
    assert labels(figure.axes[0]) == ["5 GB"]


def test_steps_hold_until_the_next_one() -> None:
    figure = memory(holding({MemoryClass.WEIGHTS: [1, 4, 2]}))
    (weights,) = figure.axes[0].collections
    upper = {(x, y) for x, y in vertices(weights.get_paths()[0]).tolist() if y > 0}

    assert {(0.0, 1.0), (1.0, 1.0), (1.0, 4.0), (2.0, 4.0), (2.0, 2.0)} <= upper


def test_every_device_has_a_panel_to_the_same_scale() -> None:
    figure = memory(holding({MemoryClass.WEIGHTS: [4 * GB]}, {MemoryClass.WEIGHTS: [1 * GB]}), number_from=1)

    assert [axes.get_ylabel() for axes in figure.axes] == ["device 1", "device 2"]
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert figure.axes[-1].get_xlabel() == "time (s)"


def test_the_limit_is_drawn_and_who_exceeds_it_is_marked() -> None:
    figure = memory(holding({MemoryClass.WEIGHTS: [4 * GB]}, {MemoryClass.WEIGHTS: [1 * GB]}, limit=3 * GB))

    assert [np.asarray(axes.lines[0].get_ydata())[0] for axes in figure.axes] == [3, 3]
    assert [axes.texts[0].get_fontweight() for axes in figure.axes] == ["bold", "normal"]
    assert words(figure).splitlines()[1] == "memory of each device, peak at the right, limit 3 GB (dashed), axes in GB"


def test_classes_are_told_apart_without_colour() -> None:
    figure = memory(holding({name: [GB] for name in MemoryClass}), style="gray")
    looks = {(fill_of(artist), artist.get_hatch()) for artist in figure.axes[0].collections}

    assert len(looks) == len(MemoryClass)


@pytest.mark.parametrize("count", [1, 4, 12])
def test_no_text_meets_another_for_few_and_many_devices(count: int) -> None:
    figure = memory(holding(*[{MemoryClass.WEIGHTS: [123 * GB], MemoryClass.VERSIONS: [7 * GB]}] * count, limit=100 * GB))

    assert overlapping(figure) == []
    assert beyond_page(figure) == []


def test_a_timeline_without_bytes_is_refused_with_what_to_do() -> None:
    with pytest.raises(ArgumentError, match=r"timeline of gpipe carries no bytes: .* use gantt\(memory=True\)"):
        memory(predicted("gpipe", 2, 2))

"""The measured timeline of a training without an end."""

import pytest
from torch import Tensor

from schedir.errors import ArgumentError
from schedir.timeline.metrics.metrics import metrics
from tests.executor.small.models import assert_dependencies_kept, batches, compiled
from tests.executor.small.trainers import trainer


def test_the_timeline_of_a_drained_training_has_every_task_of_its_program() -> None:
    with trainer(2, "pipedream", 2) as made:
        for mini_batch in batches(6):
            made.step(*mini_batch)
        made.drain()
        timeline = made.timeline
    assert timeline.graph.program == compiled("pipedream", 2, 2, num_mini_batches=6).program
    assert timeline.recorded.all()
    assert_dependencies_kept(timeline)
    assert timeline.meta["first_mini_batch"] == 0
    assert timeline.meta["mini_batch_size"] == 8
    assert 0 <= metrics(timeline).bubble_fraction < 1


def test_the_timeline_of_a_long_training_has_its_newest_steps() -> None:
    with trainer(2, "xpipe", 2) as made:
        for mini_batch in batches(60):
            made.step(*mini_batch)
        made.drain()
        timeline = made.timeline
    graph = timeline.graph
    assert set(graph.mini_batch[timeline.recorded].tolist()) == set(
        range(graph.program.num_mini_batches - 10, graph.program.num_mini_batches)
    )
    assert timeline.meta["first_mini_batch"] == 60 - graph.program.num_mini_batches
    assert metrics(timeline).steady is not None


def test_the_timeline_of_a_synchronous_training_is_a_median_step_behind_the_warm_up() -> None:
    with trainer(2, "1f1b", 2) as made:
        with pytest.raises(ArgumentError, match="nothing was trained yet, so there is no timeline"):
            made.timeline  # noqa: B018 - it raises
        for mini_batch in batches(4):
            made.step(*mini_batch)
        timeline = made.timeline
    assert timeline.recorded.all()
    assert not timeline.meta["warm_up"]
    assert timeline.graph.program.num_mini_batches == 1
    assert_dependencies_kept(timeline)


def sized(*sizes: int) -> list[tuple[Tensor, Tensor]]:
    """Return mini-batches of so many samples."""
    return [(inputs[:size], target[:size]) for size, (inputs, target) in zip(sizes, batches(len(sizes)), strict=True)]


def test_a_synchronous_training_is_measured_on_mini_batches_of_full_size() -> None:
    """The first warms up, and what is left of epochs is smaller: of eight two stay, the shorter of which counts."""
    with trainer(2, "1f1b", 2) as made:
        for mini_batch in sized(8, 8, 8, 3, 3, 3, 3, 3):
            made.step(*mini_batch)
        meta = made.timeline.meta
    assert meta["first_mini_batch"] in {1, 2}
    assert (meta["mini_batch_size"], meta["measured_mini_batches"], meta["smaller_mini_batches"]) == (8, 2, 0)


def test_a_continuous_training_says_how_many_of_its_mini_batches_are_smaller() -> None:
    with trainer(2, "xpipe", 2) as made:
        for mini_batch in sized(*[8] * 20, 3, 8, 3):
            made.step(*mini_batch)
        made.drain()
        meta = made.timeline.meta
    assert (meta["mini_batch_size"], meta["measured_mini_batches"], meta["smaller_mini_batches"]) == (8, 9, 2)

"""Which mini-batches a training's figures are of."""

from typing import Any

import numpy as np
import pytest

from schedir.compiler import compile_program
from schedir.schedules.registry import build_program
from schedir.timeline.timeline import Source, Timeline
from schedir.workflows.training.measured import measured_text


def timeline(schedule: str, mini_batches: int, **meta: Any) -> Timeline:
    graph = compile_program(build_program(schedule, num_devices=2, num_micro_batches=1, num_mini_batches=mini_batches))
    times = np.zeros(graph.num_tasks)
    return Timeline(graph, times, times, Source.MEASURED, meta={"smaller_mini_batches": 0} | meta)


@pytest.mark.parametrize(
    ("schedule", "mini_batches", "meta", "text"),
    [
        ("1f1b", 1, {"first_mini_batch": 41, "measured_mini_batches": 1}, "mini-batch 41"),
        ("1f1b", 1, {"first_mini_batch": 41, "measured_mini_batches": 8}, "mini-batch 41, the median of 8"),
        ("1f1b", 2, {"first_mini_batch": 40, "measured_mini_batches": 8}, "mini-batches 40 to 41, the median of 4 times as many"),
        ("pipedream", 10, {"first_mini_batch": 20, "measured_mini_batches": 9}, "mini-batches 21 to 29"),
        (
            "pipedream",
            10,
            {"first_mini_batch": 20, "measured_mini_batches": 9, "smaller_mini_batches": 2},
            "mini-batches 21 to 29, 2 of them smaller",
        ),
    ],
)
def test_they_are_numbered_as_the_training_is(*, schedule: str, mini_batches: int, meta: dict[str, int], text: str) -> None:
    assert measured_text(timeline(schedule, mini_batches, **meta)) == text

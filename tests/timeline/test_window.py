import numpy as np
import pytest

from schedir.errors import ArgumentError
from schedir.timeline.window import steady_part, window
from tests.timeline.build import graph_of, run


def test_a_part_of_a_flushed_run_is_its_mini_batches() -> None:
    """gpipe p=2 m=1: 1 + 1 + 2 + 2 = 6 s a mini-batch."""
    timeline = run(graph_of("gpipe", 2, 1, num_mini_batches=3))
    part = window(timeline, 1, 1)

    assert {span.mini_batch for span in part.records() if span.kind != "update"} == {1}
    assert (float(np.nanmin(part.start)), float(np.nanmax(part.end))) == (6.0, 12.0)
    assert window(timeline, 0, 1).makespan_s == 12.0
    assert window(timeline, 0, 2).makespan_s == timeline.makespan_s == 18.0


def test_spans_across_the_border_are_cut() -> None:
    """pipedream p=2 m=1: 0F0 0-1, 1F0 1-2, 1B0 2-4, 0B0 and mini-batch 0 end at 6; 1F1 4-5, 1B1 5-7; then 3 s a mini-batch."""
    timeline = run(graph_of("pipedream", 2, 1, num_mini_batches=9))
    part = window(timeline, 1, 2)
    cut = next(span for span in part.records() if (span.kind, span.stage, span.micro_batch) == ("backward", 1, 1))

    assert (cut.start_s, cut.end_s) == (6.0, 7.0)
    assert (float(np.nanmin(part.start)), part.makespan_s) == (6.0, 6.0)


def test_mini_batches_that_are_not_there_are_refused() -> None:
    timeline = run(graph_of("gpipe", 2, 1, num_mini_batches=3))

    with pytest.raises(ArgumentError, match=r"mini-batches 2 to 3 are no part of a run of 3: give two of 0\.\.2"):
        window(timeline, 2, 3)


@pytest.mark.parametrize(
    ("name", "mini_batches", "expected"),
    [
        ("gpipe", 12, (5, 7)),  # steady from the end of 0 to that of 11: mini-batches 1..11
        ("gpipe", 3, (1, 2)),
        ("gpipe", 1, (0, 0)),
        ("xpipe", 12, (4, 6)),  # p = 2: from the end of 1 to that of 9
        ("xpipe", 4, (0, 2)),  # no steady state below 2p + 1
    ],
)
def test_the_part_that_is_shown_lies_in_the_middle_of_the_steady_state(
    name: str, mini_batches: int, expected: tuple[int, int]
) -> None:
    assert steady_part(run(graph_of(name, 2, 2, num_mini_batches=mini_batches)), 3) == expected

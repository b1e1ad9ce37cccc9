"""Processes do not wait for each other between passes: they exchange what they know now and then. One launch."""

from functools import cache

import pytest

from executor.run.results import MOST_KEPT
from executor.workers.distributed.meeting.launch import launch
from tests.distributed.programs.passes import Passes, everything, many_passes
from tests.distributed.programs.work import LAUNCH_S, same

COUNTS = (2, 12, MOST_KEPT + 6)


@cache
def launched() -> list[dict[int, Passes]]:
    return launch(everything, COUNTS, num_processes=2, timeout_s=LAUNCH_S)


@pytest.mark.parametrize("process", [0, 1])
def test_further_passes_send_nothing_but_the_values_of_their_tasks(process: int) -> None:
    """1f1b with 2 micro-batches: each process sends 2 outputs, or 2 gradients, in a pass."""
    few, many = (launched()[process][count].sent for count in COUNTS[:2])

    assert (few["values"], many["values"]) == (2 * 2, 12 * 2)
    assert few["words"] == many["words"]


@pytest.mark.parametrize("process", [0, 1])
def test_what_is_kept_is_bounded(process: int) -> None:
    """One more exchange behind the pass that fills what is kept: two words, one way or the other."""
    many, most = (launched()[process][count].sent["words"] for count in COUNTS[1:])

    assert most == many + 2


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("count", COUNTS)
def test_losses_and_weights_are_those_of_threads_bit_for_bit(count: int, process: int) -> None:
    found, expected = launched()[process][count], many_passes(count, "threads")

    assert found.losses == expected.losses
    assert same(found.weights, expected.weights)


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("count", COUNTS)
def test_every_pass_has_a_whole_timeline(count: int, process: int) -> None:
    found = launched()[process][count]

    assert found.whole == [True] * count
    assert found.starts == [0.0] * count
    assert found.abouts == [(number, number, number == 0) for number in range(count)]

"""What the benchmark of split backwards computes from its measurements."""

import torch
from torch import nn

from benchmarks.split_backward import DEFERRED, DIFFERENTIATE, WAYS, WHOLE, Case, Stage, row, seconds_of

SMALL = Case("small", lambda: nn.Linear(3, 2), lambda: torch.ones(4, 3))


def test_halves_are_added_and_held_against_the_whole() -> None:
    found = {WHOLE: (0.010, 0.0), DIFFERENTIATE: (0.006, 0.009), DEFERRED: (0.007, 0.004)}

    assert row(SMALL, found) == ("small", "10.00 ms", "6.00 ms", "9.00 ms", "1.50", "7.00 ms", "4.00 ms", "1.10")


def test_every_way_runs_and_only_split_ones_have_a_second_half() -> None:
    found = seconds_of(Stage(SMALL), repeats=1)

    assert list(found) == list(WAYS)
    assert [second > 0 for _, second in found.values()] == [False, True, True]

"""Changes between steps are counted while the caller is outside, and never those of training itself."""

import pytest
import torch

from executor.workers.distributed.edits import Edits, check_alike
from schedir.errors import ArgumentError
from tests.executor.models import mlp


@torch.no_grad()
def test_changes_outside_are_counted_and_those_inside_are_not() -> None:
    stages = mlp(2)
    first, second = (next(stage.parameters()) for stage in stages)
    edits = Edits(stages, own=[0])
    edits.leave(idle=True)
    first.mul_(2)
    second.zero_()
    second.add_(1)
    edits.enter()
    first.mul_(2)  # training does this
    edits.leave(idle=True)
    edits.enter()
    assert edits.counts == (1, 2)


@torch.no_grad()
def test_stages_that_may_be_trained_meanwhile_are_not_looked_at() -> None:
    stages = mlp(2)
    edits = Edits(stages, own=[0])
    edits.leave(idle=False)
    for stage in stages:
        next(stage.parameters()).mul_(2)
    edits.enter()
    assert edits.counts == (0, 1)


def test_who_has_changed_what_is_said() -> None:
    check_alike((1, 2), (1, 2), number=0, other=1)
    message = "^parameters of stage 1 were changed between steps 0 times by process 0 and 3 times by process 2, of which one"
    with pytest.raises(ArgumentError, match=message):
        check_alike((1, 0), (1, 3), number=0, other=2)

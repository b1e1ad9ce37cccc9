"""What a device notices at the tasks of a stage that somebody else has changed."""

import pytest
import torch
from torch import nn

from executor.model.stage_copy import StageCopy
from executor.stage.undisturbed import Undisturbed
from schedir.errors import RefusedError


def watched() -> tuple[nn.BatchNorm1d, Undisturbed]:
    norm = nn.BatchNorm1d(2)
    return norm, Undisturbed(3, StageCopy(norm, lambda parameters: torch.optim.SGD(parameters, lr=0.1), None))


def test_a_mode_that_is_changed_during_a_task_is_refused_behind_it() -> None:
    norm, undisturbed = watched()
    with pytest.raises(RefusedError, match=r"^stage 3's training was changed from True to False while mini-batches were on"):
        undisturbed.run(norm.eval)


def test_a_buffer_that_a_task_changes_is_its_own_and_one_that_is_changed_between_two_is_not() -> None:
    norm, undisturbed = watched()
    assert norm.running_mean is not None
    undisturbed.run(norm, torch.ones(4, 2))
    undisturbed.run(norm.running_mean.fill_, 1.0)
    norm.running_mean.fill_(2.0)
    with pytest.raises(RefusedError, match=r"^stage 3's running_mean was changed while mini-batches were on their way"):
        undisturbed.check()

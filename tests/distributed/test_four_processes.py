"""D17: four processes, eight micro-batches, activations of 8 bytes and of 1 MiB, ten passes each. One launch."""

from functools import cache
from math import isfinite

import pytest
import torch

from executor.workers.distributed.meeting.launch import launch
from schedir.schedules.registry import SCHEDULES
from tests.distributed.programs.models import elementwise, scales, slowly, ten_times
from tests.distributed.programs.work import LAUNCH_S, Found, same
from tests.executor.small.models import compiled, reference

pytestmark = pytest.mark.slow
SYNCHRONOUS = [name for name, schedule in SCHEDULES.items() if not schedule.continuous]
SIZES = {"8 B": 1, "1 MiB": 2**17}
SETUPS = [(name, 4, 8, size) for name in SYNCHRONOUS for size in SIZES.values()]


def everything() -> list[Found]:
    return [elementwise(setup, "distributed") for setup in SETUPS]


@cache
def launched() -> list[list[Found]]:
    return launch(everything, num_processes=4, timeout_s=LAUNCH_S)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_d17_every_schedule_ends_with_the_gradients_of_threads_which_are_right(name: str, size: str) -> None:
    setup = name, 4, 8, SIZES[size]
    expected = elementwise(setup, "threads")
    losses, gradients = reference(scales(compiled(name, 4, 8).program.num_stages), ten_times(8, SIZES[size]), slowly)
    assert expected.losses == pytest.approx(losses, rel=1e-12)
    assert expected.gradients.keys() == gradients.keys()
    assert all(torch.allclose(expected.gradients[key], gradients[key], rtol=1e-12, atol=0) for key in gradients)
    for process in launched():
        found = process[SETUPS.index(setup)]
        assert found.losses == expected.losses
        assert len(found.losses) == 10
        assert all(map(isfinite, found.losses))
        assert same(found.weights, expected.weights)
        assert same(found.gradients, expected.gradients)

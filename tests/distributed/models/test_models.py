"""Models with habits train in three processes as in three threads, bit for bit. One launch."""

from functools import cache

import pytest

from executor.workers.distributed.meeting.launch import launch
from tests.distributed.programs.models import MODELS, all_models
from tests.distributed.programs.work import LAUNCH_S, Found, same


@cache
def launched() -> list[dict[str, Found]]:
    return launch(all_models, "distributed", num_processes=3, timeout_s=LAUNCH_S)


@pytest.mark.parametrize("name", MODELS)
def test_every_process_ends_with_what_threads_give(name: str) -> None:
    expected = MODELS[name]("threads")
    for process in launched():
        found = process[name]
        assert found.losses == expected.losses
        assert same(found.weights, expected.weights)
        assert same(found.gradients, expected.gradients)

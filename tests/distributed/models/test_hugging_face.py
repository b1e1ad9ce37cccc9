"""Tiny models of Hugging Face train in three processes as in three threads, bit for bit. One launch."""

from functools import cache

import pytest

from executor.workers.distributed.meeting.launch import launch
from tests.distributed.programs.hugging_face import NAMES, all_models, trained
from tests.distributed.programs.work import LAUNCH_S, Found, same

pytestmark = pytest.mark.slow


@cache
def launched() -> list[dict[str, Found]]:
    return launch(all_models, "distributed", num_processes=3, timeout_s=LAUNCH_S)


@pytest.mark.parametrize("name", NAMES)
def test_every_process_ends_with_what_threads_give(name: str) -> None:
    expected = trained(name, "threads")
    for process in launched():
        assert process[name].losses == expected.losses
        assert same(process[name].weights, expected.weights)
        assert same(process[name].gradients, expected.gradients)

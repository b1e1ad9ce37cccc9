"""Tasks and messages that take any time change nothing: same gradients, and it always ends. One launch of four processes.

The four train together, then three of them, then two pairs at once; each seed draws a schedule, and who sleeps when.
"""

import os
import random
import socket
from contextlib import ExitStack
from functools import cache
from time import sleep
from typing import Any

import pytest
from torch import Tensor

from executor.stage.stage import StageRuntime
from executor.training import train
from executor.workers.distributed.meeting import start
from executor.workers.distributed.meeting.launch import HOST, launch
from executor.workers.distributed.messages import lanes
from executor.workers.environment import LISTENING, process_number
from schedir.schedules.registry import SCHEDULES
from tests.distributed.programs.work import LAUNCH_S, TIMEOUT_S, same
from tests.executor.small.models import batches, compiled, mlp, pipeline_of
from tests.programs import accepted_shape

SEEDS = range(20)
LONGEST_S = 0.004


def schedule_of(seed: int, num_devices: int) -> tuple[str, int, int]:
    """Return a schedule that takes this number of devices, and a shape for it."""
    names = [name for name in SCHEDULES if accepted_shape(name, num_devices, 3)[0] == num_devices]
    name = random.Random(f"{seed} {num_devices}").choice(names)
    return (name, *accepted_shape(name, num_devices, 3))


def gradients(seed: int, num_devices: int, workers: str) -> tuple[list[float], dict[str, Tensor]]:
    graph = compiled(*schedule_of(seed, num_devices))
    pipeline = pipeline_of(mlp(graph.program.num_stages, seed=seed))
    passes = 2 if graph.program.weights.synchronous else 1  # nobody waits between them for who is slower
    data = batches(passes * graph.program.num_mini_batches, samples=12, seed=seed)
    run = train(graph, pipeline, data, workers=workers, timeout=TIMEOUT_S)
    return run.losses, dict(run.gradients)


def with_sleeps(seed: int, patch: pytest.MonkeyPatch) -> None:
    """Let methods of stages and sendings of lanes sleep at random in this process."""
    drawn = random.Random(f"{seed} {os.getpid()}")

    def sleepy(method: Any) -> Any:
        def slept(*values: Any) -> Any:
            if drawn.random() < 0.3:
                sleep(drawn.uniform(0, LONGEST_S))
            return method(*values)

        return slept

    for owner, names in ((StageRuntime, ("forward", "backward", "update")), (lanes.Outgoing, ("_started",))):
        for name in names:
            patch.setattr(owner, name, sleepy(getattr(owner, name)))


def join_group(number: int, num_devices: int, listening: socket.socket) -> None:
    """Let this process be one of a smaller group, which has a store of its own."""
    port = listening.getsockname()[1]
    os.environ |= {"RANK": str(number), "WORLD_SIZE": str(num_devices), "MASTER_PORT": str(port)}
    os.environ[LISTENING] = str(listening.fileno())
    start.store.cache_clear()


def everything(listening: dict[str, socket.socket]) -> dict[tuple[int, int], tuple[list[float], dict[str, Tensor]]]:
    """Return what this process found, by seed and number of devices."""
    own, found = process_number(), {}
    for num_devices, seeds in groups_of(own):
        join_group(own % num_devices, num_devices, listening[f"{num_devices} {own // num_devices}"])
        for seed in seeds:
            with pytest.MonkeyPatch.context() as patch:
                with_sleeps(seed, patch)
                found[seed, num_devices] = gradients(seed, num_devices, "distributed")
    return found


def groups_of(number: int) -> list[tuple[int, range]]:
    """Return which groups a process of four is in, and the seeds that each trains with; the two pairs share them."""
    three = [(3, SEEDS)] if number < 3 else []
    return [(4, SEEDS), *three, (2, SEEDS[number // 2 :: 2])]


@cache
def launched() -> list[dict[tuple[int, int], tuple[list[float], dict[str, Tensor]]]]:
    with ExitStack() as stack:  # open from here on, so that nobody takes their ports
        sockets = {name: stack.enter_context(socket.create_server((HOST, 0))) for name in ("4 0", "3 0", "2 0", "2 1")}
        return launch(everything, sockets, num_processes=4, timeout_s=LAUNCH_S)


@pytest.mark.slow
@pytest.mark.parametrize("num_devices", [2, 3, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_losses_and_gradients_do_not_depend_on_who_sleeps(seed: int, num_devices: int) -> None:
    losses, expected = gradients(seed, num_devices, "threads")
    found = [process[seed, num_devices] for process in launched() if (seed, num_devices) in process]

    assert len(found) == num_devices
    for own_losses, own in found:
        assert own_losses == losses
        assert same(own, expected)

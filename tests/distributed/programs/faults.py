"""Things that go wrong in one process, and what every process says then. Called by name in processes of its own."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from torch import nn

from executor.plan.actions import PlannedAction
from executor.stage.stage import StageRuntime
from executor.trainer.trainer import Trainer
from executor.training import train
from executor.workers.environment import process_number
from schedir.ir.action import Kind
from tests.executor.small.models import batches, compiled, mlp, pipeline_of, sgd
from tests.left_threads import left_since

OVER = threading.Event()
"""Set when this process's run is over: a task that is stuck goes on then."""
METHODS = {Kind.FORWARD: "forward", Kind.BACKWARD: "backward", Kind.UPDATE: "update"}

Task = tuple[Kind, int, int]
"""(kind, stage, micro-batch)."""


@dataclass
class Said:
    """What one process said about a run."""

    error: str
    """Class of the error."""
    text: str
    notes: str
    seconds: float
    threads: list[str]
    """Threads that were left, and did not end by themselves."""


def at(task: Task, fault: Callable[[], None]) -> Callable[[], None]:
    """Let a fault happen in a task; return what takes it away."""
    kind, stage, micro_batch = task
    patch = pytest.MonkeyPatch()
    method: Any = getattr(StageRuntime, METHODS[kind])

    def faulty(runtime: StageRuntime, action: PlannedAction, *values: Any) -> Any:
        if (runtime.number, action.micro_batch) == (stage, micro_batch):
            fault()
        return method(runtime, action, *values)

    patch.setattr(StageRuntime, METHODS[kind], faulty)
    return patch.undo


def said_with(task: Task, fault: Callable[[], None], *, num_devices: int, timeout: float, num_passes: int = 2) -> Said:
    """Train with a fault; one process runs each stage, so it happens in one of them."""
    undo = at(task, fault)
    OVER.clear()
    before, begin = threading.enumerate(), monotonic()
    try:
        graph = compiled("1f1b", num_devices, 2)
        train(graph, pipeline_of(mlp(num_devices)), batches(num_passes), workers="distributed", timeout=timeout)
    except BaseException as error:  # noqa: BLE001 - the test looks at it
        notes = "\n".join(getattr(error, "__notes__", ()))
        seconds = monotonic() - begin
        OVER.set()
        return Said(type(error).__name__, str(error), notes, seconds, [thread.name for thread in left_since(before)])
    finally:
        undo()
    return Said("", "", "", monotonic() - begin, [])


def raise_lookup_error() -> None:
    raise LookupError("the cause")


def interrupt() -> None:
    """Do as Ctrl-C does, to this process only."""
    os.kill(os.getpid(), signal.SIGINT)
    OVER.wait(600)


def be_stuck() -> None:
    OVER.wait(600)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    """Stop this process for good; when all others of its launch have ended, another process kills it, or the launch would wait."""
    subprocess.Popen([sys.executable, str(Path(__file__).with_name("undertaker.py")), str(os.getpid()), str(os.getppid())])
    os.kill(os.getpid(), signal.SIGSTOP)


def here() -> int:
    return process_number()


def raised_with(task: Task, fault: Callable[[], None], num_devices: int, timeout: float) -> None:  # noqa: PLR0917 - called by name
    """Train with a fault, and let its error end the process."""
    at(task, fault)
    train(compiled("1f1b", num_devices, 2), pipeline_of(mlp(num_devices)), batches(2), workers="distributed", timeout=timeout)


def raised_in_steps_with(task: Task, fault: Callable[[], None], num_devices: int, timeout: float) -> None:  # noqa: PLR0917 - called by name
    """Train with a fault step by step, by a trainer, and let its error end the process."""
    at(task, fault)
    options: dict[str, Any] = {"num_micro_batches": 2, "loss": nn.functional.mse_loss, "optimizer": sgd}
    with Trainer(mlp(num_devices), workers="distributed", timeout=timeout, **options) as trainer:
        for pair in batches(2):
            trainer.step(*pair)

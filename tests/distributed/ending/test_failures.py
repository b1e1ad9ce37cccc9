"""One process fails: every process says why, within a bound, and can go on to the next run. One launch of three processes."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from executor.training import train
from executor.workers.distributed import mesh
from executor.workers.distributed.meeting.launch import launch
from schedir.ir.action import Kind
from tests.distributed.programs import faults
from tests.distributed.programs.faults import Said, Task, said_with
from tests.distributed.programs.work import LAUNCH_S
from tests.executor.small.models import batches, compiled, mlp, pipeline_of

TASKS: list[Task] = [
    (kind, stage, micro_batch)
    for stage in range(3)
    for kind, micro_batch in ((Kind.FORWARD, 0), (Kind.FORWARD, 1), (Kind.BACKWARD, 0), (Kind.BACKWARD, 1), (Kind.UPDATE, 1))
]
TIMEOUT_S = 300.0
SOON_S = 150.0
"""Far more than a failure needs to come round, and less than TIMEOUT_S: nobody has waited for his own limit."""
STUCK_S = 5.0
"""Far more than any other task needs."""


def refused_with(change: Callable[[int], dict[str, Any]]) -> str:
    """Train with something that differs between the processes; return what this one says."""
    options = {"weights": 0, "batches": 2, "data": 1, "devices": 3} | change(faults.here())
    data = batches(options["batches"], seed=options["data"])
    graph = compiled("gpipe", options["devices"], 2)
    pipeline = pipeline_of(mlp(options["devices"], seed=options["weights"]))
    try:
        train(graph, pipeline, data, workers="distributed", timeout=TIMEOUT_S)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return ""


CHANGES: dict[str, Callable[[int], dict[str, Any]]] = {
    "weights": lambda number: {"weights": number},
    "data": lambda number: {"data": number},
    "batches": lambda number: {"batches": 2 + (number == 1)},
    "devices": lambda _: {"devices": 2},
}


def stuck() -> Said:
    """Train with a task that does not end; nobody is taken for lost, however long a busy machine keeps a process from speaking."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mesh, "lost_after", lambda _: SOON_S)
        return said_with((Kind.FORWARD, 1, 1), faults.be_stuck, num_devices=3, timeout=STUCK_S)


def everything() -> dict[str, Any]:
    return {
        "raised": [said_with(task, faults.raise_lookup_error, num_devices=3, timeout=TIMEOUT_S) for task in TASKS],
        "interrupted": said_with((Kind.FORWARD, 1, 1), faults.interrupt, num_devices=3, timeout=TIMEOUT_S),
        "stuck": stuck(),
        "refused": {name: refused_with(change) for name, change in CHANGES.items()},
        "afterwards": train(compiled("1f1b", 3, 2), pipeline_of(mlp(3)), batches(2), workers="distributed").losses,
    }


@cache
def launched() -> list[dict[str, Any]]:
    return launch(everything, num_processes=3, timeout_s=LAUNCH_S)


@pytest.mark.parametrize("task", TASKS, ids=[f"{stage}{kind.letter}{micro_batch}" for kind, stage, micro_batch in TASKS])
def test_an_error_in_any_task_is_the_first_cause_everywhere(task: Task) -> None:
    kind, stage, micro_batch = task
    label = f"{stage}{kind.letter}{micro_batch}"
    for number, process in enumerate(launched()):
        said: Said = process["raised"][TASKS.index(task)]
        assert said.seconds < SOON_S
        assert said.threads == []
        if number == stage:
            assert (said.error, said.text) == ("LookupError", "the cause")
            assert f"in {label} on device {stage}" in said.notes
        else:
            assert said.error == "RunError"
            assert said.text.startswith(f"process {stage} (host ")
            assert f", device {stage}) failed in {label} on device {stage}" in said.text
            assert said.text.endswith("LookupError: the cause")
            assert "raise_lookup_error" in said.notes  # the traceback


def test_an_interrupt_of_one_process_ends_all() -> None:
    said = [process["interrupted"] for process in launched()]

    assert [one.error for one in said] == ["RunError", "KeyboardInterrupt", "RunError"]
    for one in (said[0], said[2]):
        assert "process 1 (host " in one.text
        assert one.text.endswith("was ended by KeyboardInterrupt")
    assert max(one.seconds for one in said) < SOON_S


def test_a_task_that_does_not_end_ends_the_run_after_the_timeout_and_is_named() -> None:
    said: list[Said] = [process["stuck"] for process in launched()]

    assert {one.error for one in said} == {"RunError"}
    assert all(STUCK_S <= one.seconds < SOON_S for one in said)
    assert all("process 1 (host " in one.text + one.notes for one in said)
    assert all("1F1" in one.text + one.notes for one in said)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("weights", "process 1 has weights of stage 0 that process 0 does not have: build the same in every process"),
        ("data", "process 1 has trained on other data than process 0: let every process read the same mini-batches"),
        ("batches", "process 0 comes to the end of the data after pass 2 while process 1 comes to the start of pass 3"),
        ("devices", "the program has 2 devices, but 3 processes were started: start one process per device"),
    ],
)
def test_what_differs_between_processes_is_refused(name: str, text: str) -> None:
    for process in launched():
        assert "ArgumentError: " in process["refused"][name]
        assert text in process["refused"][name]


def test_the_next_run_trains_as_if_nothing_had_happened() -> None:
    expected = train(compiled("1f1b", 3, 2), pipeline_of(mlp(3)), batches(2), workers="threads").losses

    assert [process["afterwards"] for process in launched()] == [expected] * 3

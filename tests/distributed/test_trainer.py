"""Trainers train in two processes as in two threads, bit for bit, step by step. One launch."""

from functools import cache
from math import isnan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from executor.workers.distributed.meeting.launch import launch
from schedir.compiler import compile_program
from schedir.schedules.registry import build_program
from tests.distributed.programs.trainers import (
    Setup,
    Trained,
    edited,
    everything,
    interleaved,
    saved_and_gone_on,
    scaled,
    step_by_step,
)
from tests.distributed.programs.work import LAUNCH_S, same

SETUPS: list[Setup] = [
    ("1f1b", 2, 2, 3, {}),
    ("gpipe", 2, 2, 3, {"clip": 0.05}),
    ("zb-v", 2, 4, 4, {"recompute": "always"}),
    ("chimera", 2, 2, 4, {}),
    ("pipedream", 2, 2, 1, {}),
    ("pipedream-2bw", 2, 2, 3, {}),
    ("xpipe", 2, 2, 2, {}),
]


@cache
def launched() -> list[tuple[list[Trained], dict[str, Any]]]:
    with TemporaryDirectory() as folder:
        (Path(folder) / "a file").write_text("not a folder", encoding="utf-8")
        return launch(everything, SETUPS, folder, num_processes=2, timeout_s=LAUNCH_S)


@cache
def by_threads(number: int) -> Trained:
    return step_by_step(SETUPS[number], "threads")


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("number", range(len(SETUPS)), ids=[setup[0] for setup in SETUPS])
def test_losses_evaluations_and_weights_are_those_of_threads(number: int, process: int) -> None:
    found, expected = launched()[process][0][number], by_threads(number)

    assert found.losses == expected.losses
    assert found.between == expected.between
    assert found.after == expected.after
    assert len(found.updates) == 12
    assert found.updates == expected.updates
    assert same(found.weights, expected.weights)


@pytest.mark.parametrize("number", range(len(SETUPS)), ids=[setup[0] for setup in SETUPS])
def test_both_processes_have_one_whole_timeline(number: int) -> None:
    first, second = (launched()[process][0][number] for process in (0, 1))

    assert (first.start, first.end) == (second.start, second.end)
    assert not any(isnan(start) for start in first.start)
    assert first.meta["workers"] == "distributed"
    assert [member["process"] for member in first.meta["processes"]] == [0, 1]


def test_what_all_processes_clip_by_is_a_task_of_the_timeline() -> None:
    program = build_program("gpipe", num_devices=2, num_micro_batches=3)
    graph = compile_program(program, common_update=True)
    [exchange] = graph.lane_range(len(graph.lanes) - 1)
    found = launched()[0][0][1]

    assert str(graph.lanes[-1]) == "reduce all stages"
    assert (len(found.start), isnan(found.start[exchange]), isnan(found.end[exchange])) == (graph.num_tasks, False, False)


def test_an_error_in_a_step_is_the_first_cause_everywhere_and_the_next_trainer_trains() -> None:
    first, second = (process[1] for process in launched())

    assert second["error"] == "LookupError: the cause"
    assert first["error"].startswith("RunError: process 1 (host ")
    assert first["error"].endswith("LookupError: the cause")
    assert first["afterwards"] == second["afterwards"] == ""


def test_other_data_in_another_process_are_refused() -> None:
    for process in launched():
        assert process[1]["data"].startswith("ArgumentError: ")
        assert "process 0 trains on other data than process 1: let every process read the same mini-batches" in process[1]["data"]


def test_a_checkpoint_is_written_by_one_process_and_read_by_all(tmp_path: Path) -> None:
    losses, weights = saved_and_gone_on(str(tmp_path), "threads")

    for _, found in launched():
        assert found["gone on"][0] == losses
        assert same(found["gone on"][1], weights)


def test_a_process_that_begins_elsewhere_than_the_first_is_refused_before_it_trains() -> None:
    """Hosts may share no disk: then one has the checkpoint and the other none, or that of another training."""
    same_for_all = "let all processes read the same one; hosts that share no disk need a copy each"
    four = "checkpoint after 4 mini-batches"
    for process in launched():
        assert process[1]["loaded apart"] == [
            f"process 1 begins anew, but process 0 goes on from a {four}: {same_for_all}",
            f"process 1 goes on from another {four}, but process 0 goes on from a {four}: {same_for_all}",
        ]


def test_a_timeline_of_processes_that_have_parted_is_refused_at_once() -> None:
    for process in launched():
        assert process[1]["after close"].startswith("the processes of this training have parted: ask for its timeline before")


def test_an_error_of_one_process_s_data_ends_all() -> None:
    first, second = (process[1]["data fails"] for process in launched())

    assert first == "OSError: the disk is gone"
    assert second.startswith("RunError: process 0 (host ")
    assert second.endswith("OSError: the disk is gone")


def test_a_trainer_that_one_process_lets_go_of_ends_those_of_the_others() -> None:
    first, second = (process[1]["dropped"] for process in launched())

    assert first == ""
    assert "process 0 (host " in second
    assert "a trainer was let go of, but not closed" in second


def test_steps_of_two_trainers_may_take_turns_and_no_thread_is_left() -> None:
    expected = interleaved()

    for _, found in launched():
        assert found["interleaved"] == expected
        assert found["threads"] == []


def test_a_checkpoint_that_cannot_be_written_is_told_to_all_and_they_go_on() -> None:
    (first, loss), (second, other) = (process[1]["not saved"] for process in launched())

    assert first == second
    assert first.startswith("RunError: ")
    assert loss == other


def test_both_processes_scale_and_leave_out_as_threads_do() -> None:
    weights, losses, skipped, scale = scaled("threads")

    assert skipped
    for _, found in launched():
        assert same(found["scaled"][0], weights)
        assert found["scaled"][1:] == (losses, skipped, scale)


def test_a_loss_that_is_no_number_ends_both_processes() -> None:
    first, second = (process[1]["spoilt"] for process in launched())

    assert second.startswith(
        "RunError: the loss of mini-batch 0 is nan on stage 1 (micro-batch 0, whose input is not finite either)"
    )
    assert first.startswith("RunError: process 1 (host ")
    assert "the loss of mini-batch 0 is nan on stage 1" in first


def test_what_all_processes_change_between_steps_is_trained_on_as_threads_do() -> None:
    expected = [edited((0,), schedule=schedule, workers="threads") for schedule in ("1f1b", "xpipe")]

    for _, found in launched():
        assert found["edited by all"] == expected


def test_what_one_process_alone_changes_between_steps_is_refused_whoever_trains_it_and_whatever_comes_next() -> None:
    for _, found in launched():
        assert len(found["edited by one"]) == 5
        for said in found["edited by one"]:
            assert "parameters, buffers or modes of stage 0 were changed between steps" in said
            assert "make the same change in every process" in said

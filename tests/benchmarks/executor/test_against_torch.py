"""Both sides of the comparison with torch train the same, and all that is measured of them is there.

Every launch is of two processes, bounded, for several schedules.
"""

import re
from functools import cache
from math import inf, nan

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.executor.against_torch import HEAD, check_equal, result_of, rows, verdict
from benchmarks.executor.contestants import Contest, Laps, Match, Part, Way, compete
from benchmarks.executor.stopwatch import Stopwatch
from executor.recipe.recipe import Recipe
from executor.workers.distributed.meeting.launch import launch
from schedir.compiler import compile_program
from schedir.errors import RunError
from schedir.ir.action import Kind
from schedir.schedules.registry import build_program
from tests.distributed.programs.work import LAUNCH_S


def tiny() -> Recipe:
    """Return eight layers in float64."""
    torch.manual_seed(0)
    layers = (nn.Sequential(nn.Linear(6, 6, dtype=torch.float64), nn.Tanh()) for _ in range(8))
    inputs, targets = torch.randn(2, 8, 6, dtype=torch.float64)
    return Recipe(
        model=nn.Sequential(*layers),
        loss=nn.functional.mse_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        data=lambda seed: iter([(inputs, targets)] * 4),  # noqa: ARG005 - the same for every seed
    )


FAST, SLOW = ("1f1b", "interleaved-zb"), ("gpipe", "interleaved-1f1b", "zb-v")
"""Schedules; one launch each."""


def match_of(schedule: str) -> Match:
    return Match(schedule, tiny, num_micro_batches=4)


def everything(contests: list[Contest]) -> list[Part]:
    """Hold one contest after the other; runs in every process."""
    return [compete(contest) for contest in contests]


@cache
def held(schedules: tuple[str, ...]) -> dict[str, list[Part]]:
    """Return by schedule what both processes know."""
    contests = [Contest(match_of(schedule), rounds=1, steps=2) for schedule in schedules]
    by_process = launch(everything, contests, num_processes=2, timeout_s=LAUNCH_S)
    return {schedule: [parts[number] for parts in by_process] for number, schedule in enumerate(schedules)}


def assert_compared(schedule: str, parts: list[Part]) -> None:
    match = match_of(schedule)
    check_equal(parts, match, 1e-10)
    results = {way: result_of(match, way, parts) for way in Way}
    for result in results.values():
        assert len(result.step_s) == len(result.path_s) == 2
        assert not np.isnan(result.path_s).any()
        assert min(*result.path_s, *result.step_s) > 0.0
    # a step of several processes is timed in process 0, which does not wait for the last updates of the others
    threads = results[Way.THREADS]
    assert all(path < step for path, step in zip(threads.path_s, threads.step_s, strict=True))
    assert [line[2] for line in rows(match, results)] == ["schedir, processes", "torch, processes", "schedir, threads"]
    assert rows(match, results)[1][6] == "1.000"


@pytest.mark.parametrize("schedule", FAST)
def test_both_sides_train_the_same_and_every_task_is_measured(schedule: str) -> None:
    assert_compared(schedule, held(FAST)[schedule])


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SLOW)
def test_so_they_do_by_the_other_schedules(schedule: str) -> None:
    assert_compared(schedule, held(SLOW)[schedule])


@pytest.mark.parametrize(("wrong", "text"), [(0.5, "5.0e-01"), (inf, "inf"), (nan, "nan")])
def test_gradients_that_differ_are_refused(wrong: float, text: str) -> None:
    with pytest.raises(RunError, match=f"^gpipe: losses or gradients differ by {re.escape(text)} between both"):
        check_equal([Part(0.0, wrong), Part(0.0, 0.0)], match_of("gpipe"), 1e-4)


def test_what_processes_know_is_put_together() -> None:
    match = Match("gpipe", tiny, num_micro_batches=1)
    graph = match.graph()  # 0F0 0B0 0U0 1F0 1B0 1U0 and two transfers
    first, second = (np.where(graph.device == device, 1.0 + device, np.nan) for device in (0, 1))
    known = [Part(0.0, 0.0, [{Way.TORCH: Laps([10.0], [duration])}]) for duration in (first, second)]

    result = result_of(match, Way.TORCH, known)

    assert result.path_s == [1.0 + 2.0 + 2.0 + 2.0]  # 0F0 1F0 1B0, then 1U0 is longer than 0B0 and 0U0 are together
    assert result.round_s == [10.0]


class _Part:
    """A stage of torch's that does nothing."""

    stage_index = 1

    def forward_one_chunk(self, micro_batch: int) -> int:
        return micro_batch

    def backward_one_chunk(self, micro_batch: int, *, full_backward: bool) -> tuple[int, bool]:
        return micro_batch, full_backward

    def backward_weight_one_chunk(self, micro_batch: int) -> int:
        return micro_batch

    def perform_reduce_grad(self, factor: int) -> int:
        return factor


def test_the_stopwatch_knows_which_actions_ran() -> None:
    graph = compile_program(build_program("zb-h1", num_devices=2, num_micro_batches=2))
    watch, part = Stopwatch(), _Part()
    watch.watch(part)
    returned = [part.forward_one_chunk(0), part.backward_one_chunk(1, full_backward=False), part.perform_reduce_grad(2)]
    found = watch.take(graph)
    known = [(Kind(graph.kind[task]), int(graph.stage[task])) for task in np.flatnonzero(~np.isnan(found))]

    assert returned == [0, (1, False), 2]
    assert known == [(Kind.FORWARD, 1), (Kind.INPUT_GRAD, 1), (Kind.UPDATE, 1)]
    assert np.isnan(watch.take(graph)).all()


def test_the_loss_counts_to_the_forward_before_it() -> None:
    graph = compile_program(build_program("gpipe", num_devices=2, num_micro_batches=2))
    watch, part = Stopwatch(), _Part()
    watch.watch(part)
    loss = watch.watched_loss(lambda output, target: sum(range(200_000)) + output - target)
    part.forward_one_chunk(1)
    before = watch._seconds[Kind.FORWARD, 1, 1]

    loss(1, 1)

    [task] = np.flatnonzero(~np.isnan(found := watch.take(graph)))
    assert graph.label(int(task)) == "1F1"
    assert found[task] > before


def test_the_verdict_says_where_the_goal_is_missed() -> None:
    def line(way: Way, ratio: str) -> tuple[str, ...]:
        known = {"trained by": way.value, "step / torch's": ratio}
        return tuple(known.get(name, "") for name in HEAD)

    lines = [line(Way.PROCESSES, "0.987"), line(Way.TORCH, "1.000"), line(Way.THREADS, "0.861"), line(Way.PROCESSES, "1.084")]
    lines.append(line(Way.THREADS, "1.000"))
    assert verdict(lines) == (
        "The goal is a step of at most torch's. schedir, processes: missed in 1 of 2 (0.987 to 1.084); "
        "schedir, threads: missed in 0 of 2 (0.861 to 1.000)."
    )

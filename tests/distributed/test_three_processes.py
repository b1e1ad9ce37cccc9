"""Three processes: replicas and the scalar cases of three devices; then clocks that do not agree. One launch."""

from dataclasses import dataclass
from functools import cache
from time import perf_counter_ns

import numpy as np
import pytest

from executor.run import clock
from executor.workers.distributed.meeting import start
from executor.workers.distributed.meeting.launch import launch
from executor.workers.environment import process_number
from schedir.ir.action import Kind
from schedir.timeline.timeline import Source, Timeline
from tests import async_cases
from tests.distributed.programs.work import LAUNCH_S, Found, Setup, all_trained, same, scalar_case, trained
from tests.executor.serial.scalar_cases import ALL, TRAINED
from tests.executor.small.models import assert_dependencies_kept, compiled

CASES = [name for name in TRAINED if sum(async_cases.case(name)["replicas"] or [1] * async_cases.case(name)["p"]) == 3]
SETUPS: list[Setup] = [
    ("pipedream", 3, 1, {"replicas": (2, 1), "num_mini_batches": 7}),
    ("pipedream", 3, 2, {"replicas": (1, 2), "num_mini_batches": 7}),
    ("zb-v", 3, 6, {}),
    ("xpipe", 3, 4, {}),
]
SKEWED: Setup = ("1f1b", 3, 4, {})
OFFSET_NS, DRIFT = 1_000_000_000_000, 2e-3
"""How far and how fast the clock of process k is wrong: k times this."""
TOLERANCE = 1e-9


@dataclass
class Everything:
    found: list[Found]
    cases: list[tuple[list[float], list[float]]]
    skewed: Found
    began: int
    """When the skewed run began, on the true clock."""
    ended: int


def wrong_clock() -> int:
    true, number = perf_counter_ns(), process_number()
    return true + number * OFFSET_NS + round(number * DRIFT * true)


def everything() -> Everything:
    found, cases = all_trained(SETUPS), [scalar_case(name) for name in CASES]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "perf_counter_ns", wrong_clock)
        patch.setattr(start, "clock_name", lambda: f"clock {process_number()}")
        began = perf_counter_ns()
        skewed = trained(SKEWED, "distributed")
    return Everything(found, cases, skewed, began, perf_counter_ns())


@cache
def launched() -> list[Everything]:
    return launch(everything, num_processes=3, timeout_s=LAUNCH_S)


@cache
def by_threads(number: int) -> Found:
    return trained(SETUPS[number], "threads")


@pytest.mark.parametrize("process", range(3))
@pytest.mark.parametrize("number", range(len(SETUPS)), ids=[f"{name}-{options}" for name, _, _, options in SETUPS])
def test_weights_gradients_and_losses_are_those_of_threads_bit_for_bit(number: int, process: int) -> None:
    found, expected = launched()[process].found[number], by_threads(number)

    assert found.losses == expected.losses
    assert same(found.weights, expected.weights)
    assert same(found.gradients, expected.gradients)
    assert found.reads == expected.reads


@pytest.mark.parametrize("name", CASES)
def test_the_scalar_cases_give_what_was_worked_out(name: str) -> None:
    for process in launched():
        losses, weights = process.cases[CASES.index(name)]
        assert losses == pytest.approx([float(loss) for loss in ALL[name]["losses"]], abs=TOLERANCE)
        assert weights == pytest.approx([float(weight) for weight in ALL[name]["final_16"]], abs=TOLERANCE)


def test_clocks_that_do_not_agree_are_corrected_within_the_bound_that_is_stated() -> None:
    """θ, what must be added to clock k at true time t, is −(k offset + k drift t)."""
    for process in launched():
        members = process.skewed.meta["processes"]
        for number, member in enumerate(members):
            theta = -number * (OFFSET_NS + DRIFT * process.began) * 1e-9
            passed = number * DRIFT * (process.ended - process.began) * 1e-9  # the clocks were compared somewhere in between
            assert member["offset_s"] == pytest.approx(theta, abs=member["bound_s"] + passed)
            assert member["bound_s"] < 0.01 * OFFSET_NS * 1e-9
        assert process.skewed.meta["clock"] == max(member["bound_s"] for member in members)


def test_a_timeline_of_clocks_that_do_not_agree_keeps_the_order_of_cause_and_effect() -> None:
    found, graph = launched()[0].skewed, compiled(*SKEWED[:3])
    timeline = Timeline(graph, np.array(found.start), np.array(found.end), Source.MEASURED)

    assert found.meta["causal"]
    assert timeline.recorded.all()
    assert timeline.makespan_s < OFFSET_NS * 1e-9  # uncorrected, the clocks lie twice that apart
    assert_dependencies_kept(timeline)
    transfers = graph.kind == Kind.TRANSFER
    assert (timeline.end[transfers] >= timeline.start[transfers]).all()

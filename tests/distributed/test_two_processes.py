"""Two processes train as two threads do, bit for bit. One launch does it all; every test looks at a part of what it gave."""

from functools import cache

import numpy as np
import pytest

from executor.workers.distributed.meeting.launch import launch
from schedir.ir.action import Kind
from schedir.schedules.registry import SCHEDULES
from schedir.timeline.timeline import Source, Timeline
from tests import async_cases
from tests.distributed.programs.work import LAUNCH_S, Found, Setup, all_trained, graph_of, same, scalar_case, trained
from tests.executor.serial.scalar_cases import ALL, TRAINED
from tests.executor.small.models import assert_dependencies_kept
from tests.programs import accepted_shape

SETUPS: list[Setup] = [(name, *accepted_shape(name, 2, 3), {}) for name in SCHEDULES]
SETUPS += [
    ("gpipe", 2, 3, {"recompute": "except-last"}),
    ("1f1b", 2, 3, {"recompute": "always", "recompute_start": "on-gradient"}),
    ("pipedream", 2, 2, {"weights": "vertical-sync"}),
    ("pipedream", 2, 2, {"weights": "current"}),
    ("xpipe", 2, 2, {"horizon": "exact", "recompute": "always"}),
    ("late-halves", 2, 1, {}),
]
SETUPS = [setup for setup in SETUPS if setup[1] == 2]
CASES = [name for name in TRAINED if sum(async_cases.case(name)["replicas"] or [1] * async_cases.case(name)["p"]) == 2]
TOLERANCE = 1e-9


def everything(setups: list[Setup], cases: list[str]) -> tuple[list[Found], list[tuple[list[float], list[float]]]]:
    return all_trained(setups), [scalar_case(name) for name in cases]


@cache
def launched() -> list[tuple[list[Found], list[tuple[list[float], list[float]]]]]:
    return launch(everything, SETUPS, CASES, num_processes=2, timeout_s=LAUNCH_S)


@cache
def by_threads(number: int) -> Found:
    return trained(SETUPS[number], "threads")


IDS = ["-".join(map(str, (name, *options.values()))) for name, _, _, options in SETUPS]
every_setup = pytest.mark.parametrize("number", range(len(SETUPS)), ids=IDS)
every_process = pytest.mark.parametrize("process", [0, 1])


@every_process
@every_setup
def test_weights_gradients_and_losses_are_those_of_threads_bit_for_bit(number: int, process: int) -> None:
    found, expected = launched()[process][0][number], by_threads(number)

    assert found.losses == expected.losses
    assert same(found.weights, expected.weights)
    assert same(found.gradients, expected.gradients)


@every_process
@every_setup
def test_every_process_knows_what_all_tasks_read(number: int, process: int) -> None:
    assert launched()[process][0][number].reads == by_threads(number).reads


@every_setup
def test_every_task_is_recorded_behind_what_it_waits_for(number: int) -> None:
    found, graph = launched()[0][0][number], graph_of(SETUPS[number])
    timeline = Timeline(graph, np.array(found.start), np.array(found.end), Source.MEASURED)

    assert timeline.recorded.all()
    assert_dependencies_kept(timeline)
    transfers = graph.kind == Kind.TRANSFER
    assert (timeline.end[transfers] >= timeline.start[transfers]).all()


def test_both_processes_have_one_timeline() -> None:
    first, second = (launched()[process][0] for process in (0, 1))

    assert [(found.start, found.end) for found in first] == [(found.start, found.end) for found in second]


def test_a_timeline_says_which_processes_made_it() -> None:
    meta = launched()[1][0][0].meta

    assert meta["workers"] == "distributed"
    assert [member["process"] for member in meta["processes"]] == [0, 1]
    assert meta["clock"] == 0  # two processes of one host read one clock
    assert meta["causal"]


@pytest.mark.parametrize("name", CASES)
def test_the_scalar_cases_give_what_was_worked_out(name: str) -> None:
    number = CASES.index(name)
    expected = [float(loss) for loss in ALL[name]["losses"]], [float(weight) for weight in ALL[name]["final_16"]]

    for _, cases in launched():
        losses, weights = cases[number]
        assert losses == pytest.approx(expected[0], abs=TOLERANCE)
        assert weights == pytest.approx(expected[1], abs=TOLERANCE)

import numpy as np
import pytest

from schedir.ir.action import Kind
from schedir.timeline.metrics.metrics import metrics
from schedir.timeline.metrics.steady import Steady, steady_range, step_seconds
from schedir.timeline.timeline import Source, Timeline
from tests.near import near
from tests.timeline.build import graph_of, run


def test_a_flushing_schedule_is_steady_from_its_first_mini_batch_to_its_last() -> None:
    """PAPERS.md: one more mini-batch of 1f1b p=4 m=8 at F=I=W=1 costs 33, of which 24 are busy."""
    steady = metrics(run(graph_of("1f1b", 4, 8, num_mini_batches=3))).steady

    assert steady == Steady(33.0, near(9 / 33), 0, 2)


def test_no_barrier_lies_between_mini_batches() -> None:
    """gpipe p=2 m=2 F=1 B=2: device 0 ends mini-batch 0 at 9 = (m + p - 1)(F + B) and starts the next at once, so device 1 gets it
    at 10, as it got the first at 1: T_1 = 18."""
    steady = metrics(run(graph_of("gpipe", 2, 2, num_mini_batches=2))).steady

    assert steady == Steady(9.0, near(1 / 3), 0, 1)


def test_one_mini_batch_of_a_flushing_schedule_has_no_steady_state() -> None:
    assert metrics(run(graph_of("1f1b", 4, 8))).steady is None


def test_pipedream_costs_one_forward_and_one_backward_in_steady_state() -> None:
    """p=2: device 1 runs F0 B0 F1 B1 … without a gap from 1 on, B_n ends at 4 + 3n, on device 0 at T_n = 6 + 3n."""
    steady = metrics(run(graph_of("pipedream", 2, 1, num_mini_batches=5))).steady

    assert steady == Steady(3.0, near(0.0), 1, 2)


def test_an_unbalanced_pipeline_is_as_fast_as_its_slowest_stage() -> None:
    """Stage 1 of 2 twice slower: 6 s per mini-batch, of which device 0 is busy 3: 1 - (3 + 6) / (2 x 6) = 1/4."""
    steady = metrics(run(graph_of("pipedream", 2, 1, num_mini_batches=9), slower={1: 2.0})).steady

    assert steady == Steady(6.0, near(0.25), 1, 6)


def test_a_part_of_a_run_is_as_busy_in_steady_state_as_the_whole() -> None:
    """The unbalanced pipeline without the forwards of its first mini-batch, as a trainer records its newest ones."""
    whole = run(graph_of("pipedream", 2, 1, num_mini_batches=9), slower={1: 2.0})
    unknown = (whole.graph.kind == Kind.FORWARD) & (whole.graph.micro_batch == 0)
    start, end = (np.where(unknown, np.nan, times) for times in (whole.start, whole.end))
    steady = metrics(Timeline(whole.graph, start, end, Source.MEASURED)).steady

    assert steady == Steady(6.0, near(0.25), 1, 6)


@pytest.mark.parametrize(("mini_batches", "expected"), [(7, None), (8, None), (9, (3, 4)), (16, (3, 11))])
def test_a_continuous_schedule_needs_twice_its_devices_and_one(mini_batches: int, expected: tuple[int, int] | None) -> None:
    """p=4: a = p - 1 = 3, b = N - p - 1, from N = 2p + 1 = 9 on."""
    assert steady_range(graph_of("pipedream", 4, 1, num_mini_batches=mini_batches)) == expected


@pytest.mark.parametrize(("mini_batches", "expected"), [(7, None), (8, (2, 4)), (9, (2, 4)), (14, (2, 10))])
def test_whole_rounds_of_replicas_are_compared(mini_batches: int, expected: tuple[int, int] | None) -> None:
    """Replicas 2, 1 on p=3 devices: a = 2, b = N - 4, lowered until b - a is even; null where nothing is left."""
    graph = graph_of("pipedream", 3, 1, num_mini_batches=mini_batches, replicas=(2, 1))

    assert steady_range(graph) == expected


@pytest.mark.parametrize(("mini_batches", "expected"), [(15, None), (16, (4, 10)), (19, (4, 10)), (22, (4, 16))])
def test_rounds_of_several_sizes_end_together_at_their_least_common_multiple(
    mini_batches: int, expected: tuple[int, int] | None
) -> None:
    """Replicas 2, 3 on p=5 devices: a = 4, b = N - 6, lowered until b - a is a multiple of 6, not just of 3 (N=15: 5, N=19: 9)."""
    graph = graph_of("pipedream", 5, 1, num_mini_batches=mini_batches, replicas=(2, 3))

    assert steady_range(graph) == expected


def test_a_mini_batch_is_over_when_its_last_task_ends() -> None:
    """One device, F=1 B=2, an update of no time: T_0 = 3, T_1 = 6; a last update of 10 s ends at 16."""
    whole = run(graph_of("gpipe", 1, 1, num_mini_batches=2))
    end = np.where(whole.start == 6.0, 16.0, whole.end)

    assert step_seconds(Timeline(whole.graph, whole.start, end, Source.SIMULATED)) == 13.0


@pytest.mark.parametrize("missing", [0, 1])
def test_a_measured_run_without_spans_of_a_mini_batch_has_no_steady_state(missing: int) -> None:
    whole = run(graph_of("1f1b", 2, 2, num_mini_batches=2))
    start = np.where(whole.graph.mini_batch == missing, np.nan, whole.start)
    end = np.where(whole.graph.mini_batch == missing, np.nan, whole.end)

    assert metrics(Timeline(whole.graph, start, end, Source.MEASURED)).steady is None


@pytest.mark.parametrize(
    ("name", "mini_batches", "seconds"), [("1f1b", 1, 9.0), ("1f1b", 3, 9.0), ("pipedream", 4, 3.75), ("pipedream", 5, 3.0)]
)
def test_rankings_order_by_the_steady_state_where_there_is_one(name: str, mini_batches: int, seconds: float) -> None:
    """p=2 m=2 of 1f1b: (2 + 1) x 3. pipedream p=2 m=1: with 4 mini-batches T_3 = 6 + 3 x 3 = 15 in all, with 5 steady at 3 s."""
    timeline = run(graph_of(name, 2, 2 if name == "1f1b" else 1, num_mini_batches=mini_batches))

    assert step_seconds(timeline) == seconds
    assert metrics(timeline).step_s == seconds

import numpy as np
import pytest

from schedir.compiler import compile_program
from schedir.ir.action import Kind
from schedir.ir.order.in_order import TaskTimes, evaluate
from schedir.schedules.registry import build_program
from schedir.timeline.metrics.idle import Idle, idle_by_cause
from schedir.timeline.settled import settle
from schedir.timeline.timeline import Source, Timeline
from tests.timeline.build import UNITS, graph_of, run, two_devices_by_hand


def test_one_forward_one_backward_waits_for_its_neighbours() -> None:
    """p=4 m=8 F=1 B=2 (formats/1f1b-4-8.simulate.json): device k starts k later, ends 2k earlier, and waits 9 - 3k between."""
    causes = idle_by_cause(settle(run(graph_of("1f1b", 4, 8))))

    assert causes == (
        Idle(start_up=0.0, drain=0.0, dependency=9.0, transfer=0.0, reduce=0.0),
        Idle(start_up=1.0, drain=2.0, dependency=6.0, transfer=0.0, reduce=0.0),
        Idle(start_up=2.0, drain=4.0, dependency=3.0, transfer=0.0, reduce=0.0),
        Idle(start_up=3.0, drain=6.0, dependency=0.0, transfer=0.0, reduce=0.0),
    )


def test_waiting_for_a_transfer_under_way_is_told_apart_from_waiting_for_its_sender() -> None:
    """p=2 m=1 F=1 B=2, latency 0.5: device 0 computes in [0, 1] and [5, 7], device 1 in [1.5, 4.5], the gradient is under way in
    [4.5, 5]."""
    causes = idle_by_cause(settle(run(graph_of("1f1b", 2, 1), latency=0.5)))

    assert causes[0] == Idle(start_up=0.0, drain=0.0, dependency=3.5, transfer=0.5, reduce=0.0)
    assert causes[1] == Idle(start_up=1.5, drain=2.5, dependency=0.0, transfer=0.0, reduce=0.0)


def test_queueing_for_a_link_counts_as_transfer() -> None:
    """p=2 m=2 gpipe, F=1 B=2, the link is occupied for 3: it carries F0 in [1, 4], F1 in [4, 7]; device 1 runs F0 in [4, 5] and
    waits for F1, which is queueing or under way all the time, until 7."""
    causes = idle_by_cause(settle(run(graph_of("gpipe", 2, 2), {Kind.TRANSFER: 3.0})))

    assert causes[1].start_up == 4.0
    assert causes[1].transfer == 2.0


def test_a_replica_waits_for_the_sum_of_the_gradients() -> None:
    """pipedream replicas 2, 1 with two mini-batches, F=1 B=2, reduction 1. Stage 0: F in [0, 1] on devices 0 and 1; stage 1 on
    device 2: F0 B0 F1 B1 in [1, 7]; B on device 0 in [4, 6], on device 1 in [7, 9]; the reduction in [9, 10]."""
    graph = graph_of("pipedream", 3, 1, num_mini_batches=2, replicas=(2, 1))
    causes = idle_by_cause(settle(run(graph, {Kind.REDUCE: 1.0})))

    assert causes[0] == Idle(start_up=0.0, drain=0.0, dependency=6.0, transfer=0.0, reduce=1.0)
    assert causes[1] == Idle(start_up=0.0, drain=0.0, dependency=6.0, transfer=0.0, reduce=1.0)
    assert causes[2] == Idle(start_up=1.0, drain=3.0, dependency=0.0, transfer=0.0, reduce=0.0)


@pytest.mark.parametrize(
    ("late", "seconds", "transfer", "dependency"), [((2, 0), 4.0, 4.0, 4.0), ((1, 0), 1.5, 1.5, 6.0), ((2, 0), 1.0, 0.0, 6.0)]
)
def test_of_several_things_that_a_task_waits_for_the_last_to_arrive_counts(
    *, late: tuple[int, int], seconds: float, transfer: float, dependency: float
) -> None:
    """p=3 m=1 F=1 B=2, a skip connection from 0 to 2: 2B ends at 5, 1B at 7, and 0B, which waits for both gradients from 1 on,
    starts at 5 + 4 if that of the skip connection takes 4, at 7 + 1.5 if the other takes 1.5, at 7 if neither comes later."""
    graph = compile_program(build_program("1f1b", num_devices=3, num_micro_batches=1), skips=((0, 2),))
    duration = np.array([UNITS.get(Kind(kind), 0.0) for kind in graph.kind.tolist()])
    lanes = [(lane.device, lane.peer) == late for lane in graph.lanes]
    times = TaskTimes(duration, np.where(np.array(lanes)[graph.lane], seconds, 0.0))
    spans = evaluate(graph, times)
    timeline = Timeline(graph, spans.start, spans.end, Source.SIMULATED, spans.release)

    assert idle_by_cause(settle(timeline))[0] == Idle(start_up=0.0, drain=0.0, dependency=dependency, transfer=transfer, reduce=0.0)


def test_a_dispatch_gap_is_no_transfer() -> None:
    """p=1 m=2, F=1 B=2: each of F0 B0 F1 B1 starts 0.25 late, the first before the run's first start."""
    causes = idle_by_cause(settle(run(graph_of("1f1b", 1, 2), gap=0.25)))

    assert causes == (Idle(start_up=0.0, drain=0.0, dependency=0.75, transfer=0.0, reduce=0.0),)


def test_a_measured_run_without_recorded_transfers_waits_for_dependencies() -> None:
    """D27: device 0 waits in [4, 6], device 1 before 4 and behind 6."""
    causes = idle_by_cause(settle(two_devices_by_hand()))

    assert causes[0] == Idle(start_up=0.0, drain=0.0, dependency=2.0, transfer=0.0, reduce=0.0)
    assert causes[1] == Idle(start_up=4.0, drain=2.0, dependency=0.0, transfer=0.0, reduce=0.0)


def test_predictions_that_cost_nothing_do_not_start_a_device() -> None:
    # XPipe predicts before the first forward; at no cost that is at 0, while F = 1 reaches stage k at k.
    causes = idle_by_cause(settle(run(graph_of("xpipe", 4, 2))))

    assert [idle.start_up for idle in causes] == [0.0, 1.0, 2.0, 3.0]

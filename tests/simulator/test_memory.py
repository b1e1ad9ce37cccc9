"""The memory ledger: steps and peaks in bytes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.compiler import compile_program
from schedir.costs.uniform import UniformCosts
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import Spans, TaskTimes, evaluate
from schedir.lowering.effects import CLASSES
from schedir.timeline.timeline import MemoryClass, MemorySteps
from simulator import simulate
from simulator.memory import ledger
from tests.late_halves import late_halves
from tests.simulator.doubles import CostsWithBytes, graph_of, random_times, unit_bytes
from tests.strategies import graphs

TEMPORARY = (
    MemoryClass.VERSIONS,
    MemoryClass.ACTIVATIONS,
    MemoryClass.RECOMPUTED,
    MemoryClass.TRANSFER_BUFFERS,
    MemoryClass.WORKSPACE,
)


def column(steps: MemorySteps, memory_class: MemoryClass) -> np.ndarray:
    return steps.by_class[:, CLASSES.index(memory_class)]


def memory_of(graph: TaskGraph, **given: Any) -> tuple[MemorySteps, ...]:
    memory = simulate(graph, CostsWithBytes(**given)).memory
    assert memory is not None
    return memory


ADAM = {"weights": 100, "gradients": 100, "optimizer": 200, "activations": 10, "workspace": 30}
"""Known problem D24: bytes of a stage; 30 while computing."""


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("1f1b", [470, 460, 450, 440]), ("gpipe", [510, 510, 510, 510])],
)
def test_peaks_count_all_micro_batches_in_flight_and_the_workspace(schedule: str, expected: list[int]) -> None:
    memory = memory_of(graph_of(schedule, 4, 8), **ADAM)  # D24

    assert [int(steps.total.max()) for steps in memory] == expected


def test_weight_stashing_adds_the_versions_beside_the_current_one() -> None:
    memory = memory_of(graph_of("pipedream", 4, 1), **ADAM)

    # D24: 1F1B's [470, 460, 450, 440] + (versions - 1) x 100, versions [4, 3, 2, 1]
    assert [int(steps.total.max()) for steps in memory] == [770, 660, 550, 440]


@pytest.mark.parametrize(("recompute", "expected"), [("never", 80), ("always", 18)])
def test_recomputation_holds_one_full_set_in_addition_to_the_boundaries(recompute: str, expected: int) -> None:
    graph = graph_of("gpipe", 4, 8, recompute=recompute)
    memory = memory_of(graph, activations=10, recomputed=10, boundary=1)  # D20

    assert [int(steps.total.max()) for steps in memory] == [expected] * 4


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        # Stage k of zb-h1 runs W of micro-batch j behind I of j + k: p - k sets of 10 before their I, k remains behind it.
        (10, [40, 40, 40, 40]),  # p live activations
        (4, [4 * 10, 3 * 10 + 4, 2 * 10 + 2 * 4, 10 + 3 * 4]),
        (0, [40, 30, 20, 10]),
        # Larger than a set: fullest when an I has ended.
        (20, [3 * 10 + 20, 2 * 10 + 2 * 20, 10 + 3 * 20, 4 * 20]),
    ],
)
def test_what_the_weight_gradient_needs_lives_on_behind_the_input_gradient(late: int, expected: list[int]) -> None:
    memory = memory_of(graph_of("zb-h1", 4, 8), activations=10, freed_activations=10 - late)

    assert [int(steps.total.max()) for steps in memory] == expected


def test_weights_are_kept_until_the_late_weight_gradient_that_reads_them() -> None:
    """F, R, I and W take 1 s: W0 ends at 7 s and update 1 follows, W1, W2 and W3, which read what is old, end at 9, 12, 13 s."""
    graph = compile_program(late_halves(1))

    (steps,) = ledger(graph, evaluate(graph, UniformCosts().times(graph)), unit_bytes(1, weights=5))

    versions = column(steps, MemoryClass.VERSIONS)
    assert [int(versions[steps.time <= time][-1]) for time in (6, 7, 8, 9, 10, 11, 12, 13)] == [0, 5, 5, 5, 5, 5, 5, 0]


@pytest.mark.parametrize(("late", "expected"), [(10, [(0, 10), (3, 0)]), (4, [(0, 10), (2, 4), (3, 0)])])
def test_a_split_backward_gives_back_in_two_steps(late: int, expected: list[tuple[float, int]]) -> None:
    (steps,) = memory_of(graph_of("zb-h1", 1, 1), activations=10, freed_activations=10 - late)  # F, I, W end at 1, 2, 3 s

    assert list(zip(steps.time.tolist(), steps.total.tolist(), strict=True))[1:] == expected


def test_of_a_recomputed_set_the_weight_gradient_keeps_what_it_needs_beside_the_boundary() -> None:
    """Boundary 1, recomputed 10, W needs 4 with the boundary: 1 until R, 11 until I ends, 1 + 3 until W ends."""
    graph = graph_of("zb-h1", 1, 1, recompute="always")
    (steps,) = memory_of(graph, boundary=1, recomputed=10, freed_recomputed=10 - (4 - 1))

    assert steps.total.tolist() == [0, 1, 11, 4, 0]
    assert column(steps, MemoryClass.RECOMPUTED).tolist() == [0, 0, 10, 3, 0]


def test_devices_hold_m_and_p_minus_k_activations_where_there_are_fewer_micro_batches_than_stages() -> None:
    peaks = {
        name: [int(steps.total.max()) for steps in memory_of(graph_of(name, 4, 2), activations=1)] for name in ("gpipe", "1f1b")
    }

    assert peaks == {"gpipe": [2, 2, 2, 2], "1f1b": [2, 2, 2, 1]}  # D1


def test_sizes_of_micro_batches_scale_what_belongs_to_a_micro_batch_and_nothing_else() -> None:
    graph = graph_of("gpipe", 1, 3)
    spans = evaluate(graph, UniformCosts().times(graph))

    (steps,) = ledger(graph, spans, unit_bytes(1, scale=(3.0, 3.0, 2.0), weights=7, activations=10))

    assert column(steps, MemoryClass.WEIGHTS).tolist() == [7] * 7
    assert column(steps, MemoryClass.ACTIVATIONS).tolist() == [0, 30, 60, 80, 60, 30, 0]  # D2: sizes 3, 3, 2


def test_transfer_buffers_are_held_at_both_ends_while_a_message_is_under_way() -> None:
    graph = graph_of("gpipe", 2, 1)
    times = UniformCosts().times(graph)
    link = slice(graph.num_compute_tasks, graph.num_tasks)
    duration, latency = times.duration.copy(), np.zeros(graph.num_tasks)
    duration[link], latency[link] = 0.5, 0.25  # the link is occupied for 0.5 s, then 0.25 s of latency

    sender, receiver = ledger(graph, evaluate(graph, TaskTimes(duration, latency)), unit_bytes(2, output=8))

    assert list(zip(sender.time.tolist(), sender.total.tolist(), strict=True)) == [(0.0, 0), (1.0, 8), (1.5, 0)]
    assert list(zip(receiver.time.tolist(), receiver.total.tolist(), strict=True)) == [(0.0, 0), (1.0, 8), (1.75, 0)]


def test_what_one_task_frees_is_free_for_the_next_at_the_same_time() -> None:
    graph = graph_of("1f1b", 1, 4)  # F0 B0 F1 B1 …, without a break

    (steps,) = memory_of(graph, activations=10)

    assert steps.total.max() == 10


def test_a_task_that_takes_no_time_still_needs_its_memory() -> None:
    graph = graph_of("gpipe", 1, 1)

    memory = simulate(graph, CostsWithBytes(UniformCosts(forward=0.0, backward=0.0), workspace=30)).memory

    assert memory is not None
    assert memory[0].total.max() == 30


def test_a_device_without_any_bytes_has_one_step_of_nothing() -> None:
    (steps,) = memory_of(graph_of("gpipe", 1, 2))

    assert steps.time.tolist() == [0.0]
    assert steps.by_class.tolist() == [[0] * 8]


def draw_freed(seed: int, most: int) -> int:
    """Return what I gives back already: all at most, below 0 where W needs more than was kept."""
    return int(np.random.default_rng(seed).integers(-10, most + 1))


@given(graph=graphs(), seed=st.integers(0, 2**32))
def test_memory_is_never_negative_and_only_what_is_resident_is_left(graph: TaskGraph, seed: int) -> None:
    everything: dict[str, Any] = dict.fromkeys(("weights", "gradients", "optimizer"), 1000.0) | {
        "activations": 7,
        "boundary": 3,
        "recomputed": 5,
        "output": 2,
        "input_gradient": 4,
        "workspace": 6,
        "freed_activations": draw_freed(seed, 7),
        "freed_boundary": draw_freed(seed + 1, 3),
        "freed_recomputed": draw_freed(seed + 2, 5),
    }
    spans = evaluate(graph, random_times(graph, seed))

    memory = ledger(graph, spans, unit_bytes(graph.program.num_stages, **everything))

    for device, steps in enumerate(memory):
        assert steps.by_class.min() >= 0
        assert (np.diff(steps.time) >= 0).all()
        assert [int(column(steps, name)[-1]) for name in TEMPORARY] == [0] * 5
        stages = sum(device in devices for devices in graph.stage_devices())
        assert column(steps, MemoryClass.WEIGHTS).tolist() == [1000 * stages] * len(steps.time)


@given(graph=graphs())
def test_memory_is_never_negative_where_nothing_takes_time(graph: TaskGraph) -> None:
    nothing = np.zeros(graph.num_tasks)
    ones: dict[str, Any] = dict.fromkeys(ADAM, 1.0)

    memory = ledger(graph, Spans(nothing, nothing, nothing), unit_bytes(graph.program.num_stages, **ones))

    assert all(steps.by_class.min() >= 0 for steps in memory)

"""What skip connections and ties take of a device's memory, and what their links carry (known problem D28)."""

from dataclasses import replace

import numpy as np
import pytest

from schedir.compiler import compile_program
from schedir.costs.cluster.cluster_file import load_cluster
from schedir.costs.table.pieces import PieceBytes, PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.uniform import UniformCosts
from schedir.ir.graph import TaskGraph
from schedir.ir.skips import skip_sources
from schedir.schedules.registry import build_program
from schedir.timeline.timeline import MemoryClass
from simulator import simulate
from tests.programs import written

MB = 1_000_000


def carried(graph: TaskGraph, sizes: np.typing.NDArray[np.float64]) -> dict[str, float]:
    """Return the bytes that every link carries."""
    found: dict[str, float] = {}
    for task, size in zip(range(graph.num_compute_tasks, graph.num_tasks), sizes.tolist(), strict=True):
        lane = str(graph.lanes[graph.task(task).lane])
        found[lane] = found.get(lane, 0.0) + size
    return found


def three_stages(*, through: bool) -> tuple[TaskGraph, TableCosts]:
    """One micro-batch over three stages that hand over 1 MB; 10 MB more go from stage 0 to stage 2."""
    extra = 10 * MB if through else 0
    row = PieceCosts(
        forward=1.0, backward=2.0, bytes=PieceBytes(activations=5 * MB, output=MB + extra, skip=None if through else 10 * MB)
    )
    last = replace(row, bytes=PieceBytes(activations=5 * MB, output=0.0))
    program = build_program("1f1b", num_devices=3, num_micro_batches=1)
    return compile_program(program, skips=() if through else [(0, 2)]), TableCosts(rows=(row, row, last))


def test_d28_through_the_stages_between_every_link_carries_it() -> None:
    graph, costs = three_stages(through=True)
    sizes = costs.bytes_of_transfers(graph)
    assert sizes is not None

    assert carried(graph, sizes) == {
        "link 0->1": 11.0 * MB,
        "link 1->0": 11.0 * MB,
        "link 1->2": 11.0 * MB,
        "link 2->1": 11.0 * MB,
    }


def test_d28_directly_one_link_carries_it_there_and_its_gradient_back() -> None:
    graph, costs = three_stages(through=False)
    sizes = costs.bytes_of_transfers(graph)
    assert sizes is not None

    assert carried(graph, sizes) == {
        "link 0->1": 1.0 * MB,
        "link 1->0": 1.0 * MB,
        "link 1->2": 1.0 * MB,
        "link 2->1": 1.0 * MB,
        "link 0->2": 10.0 * MB,
        "link 2->0": 10.0 * MB,
    }
    assert carried(graph, UniformCosts(transfer_bytes=MB, skip_bytes=10 * MB).bytes_of_transfers(graph)) == carried(graph, sizes)  # type: ignore[arg-type]  # stated


def test_d28_it_is_in_the_memory_of_the_stages_that_hold_it() -> None:
    """Buffers of 0, 1 and 2: an output until it is sent (at once, without a cluster), what arrives until it is read."""
    peaks = {}
    for through in (True, False):
        graph, costs = three_stages(through=through)
        memory = simulate(graph, costs).memory
        assert memory is not None
        column = tuple(MemoryClass).index(MemoryClass.TRANSFER_BUFFERS)
        peaks[through] = [int(steps.by_class[:, column].max()) for steps in memory]

    assert peaks[True] == [11 * MB, 11 * MB, 11 * MB]
    assert peaks[False] == [11 * MB, 1 * MB, 11 * MB]


def test_a_gradient_that_comes_back_belongs_to_the_stage_that_sent_the_value() -> None:
    graph = compile_program(build_program("1f1b", num_devices=4, num_micro_batches=2), skips=[(0, 2), (1, 3)])
    found = sorted(
        (str(graph.lanes[graph.task(graph.num_compute_tasks + number).lane]), source)
        for number, source in enumerate(skip_sources(graph).tolist())
        if source >= 0
    )

    assert found == [
        (lane, source)
        for lane, source in (("link 0->2", 0), ("link 1->3", 1), ("link 2->0", 0), ("link 3->1", 1))
        for _ in range(2)
    ]


def test_a_skip_on_one_device_lies_in_one_buffer_until_it_is_read() -> None:
    graph = compile_program(written("0F0 1F0 2F0 2B0 1B0 0B0", m=1, stages=3), skips=[(0, 2)])
    memory = simulate(graph, three_stages(through=False)[1]).memory
    assert memory is not None
    column = tuple(MemoryClass).index(MemoryClass.TRANSFER_BUFFERS)

    assert int(memory[0].by_class[:, column].max()) == 11 * MB
    assert int(memory[0].by_class[-1, column]) == 0


# ---------------------------------------------------------------- ties

OWN = PieceBytes(weights=100.0, gradients=100.0, optimizer=200.0, activations=10.0, output=1.0, tied=40.0)
TIED = PieceCosts(forward=1.0, backward=2.0, bytes=OWN)


def resident(graph: TaskGraph, device: int) -> list[int]:
    memory = simulate(graph, TableCosts(default=TIED)).memory
    assert memory is not None
    classes = [MemoryClass.WEIGHTS, MemoryClass.GRADIENTS, MemoryClass.OPTIMIZER]
    return [int(memory[device].by_class[-1, tuple(MemoryClass).index(each)]) for each in classes]


def test_stages_of_a_tie_on_one_device_have_one_copy_and_gradients_each() -> None:
    program = written("0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0", m=1, stages=4)

    assert resident(compile_program(program), 0) == [200, 200, 400]
    assert resident(compile_program(program, ties=[(0, 3)]), 0) == [160, 200, 320]
    assert resident(compile_program(program, ties=[(0, 3)]), 1) == [200, 200, 400]


def test_on_several_devices_each_has_a_copy() -> None:
    graph = compile_program(build_program("1f1b", num_devices=2, num_micro_batches=1), ties=[(0, 1)])

    assert [resident(graph, device) for device in (0, 1)] == [[100, 100, 200]] * 2


def test_the_exchange_takes_what_a_ring_of_the_devices_needs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two devices, 40 bytes: 2 (2 - 1) / 2 * 40 / bandwidth + 2 (2 - 1) latency, with 10 bytes/s and 0.5 s: 5 s."""
    path = tmp_path_factory.mktemp("cluster") / "two.cluster.toml"
    path.write_text(
        'schema = "schedir.cluster/1"\n[device]\nmemory = "1 GB"\n[hosts]\ncount = 1\ndevices_per_host = 2\n'
        '[[links]]\nname = "wire"\njoins = "host"\nbandwidth = "10 B/s"\nlatency = "0.5 s"\n',
        encoding="utf-8",
    )
    graph = compile_program(build_program("1f1b", num_devices=2, num_micro_batches=1), ties=[(0, 1)])
    [exchange] = [task for task in range(graph.num_tasks) if str(graph.lanes[graph.task(task).lane]) == "reduce tied stages 0, 1"]

    assert load_cluster(path).times(graph, TableCosts(default=TIED)).duration[exchange] == 5.0

"""Task graphs: views of tasks, lanes, edges, members, and the networkx form."""

import networkx
import pytest

from schedir.compiler import compile_program
from schedir.ir.action import Direction, Kind
from schedir.ir.graph import TaskGraph
from schedir.ir.graph_data import EdgeKind
from schedir.ir.lanes import Lane, LaneKind
from schedir.schedules.registry import build_program
from tests.programs import written


@pytest.fixture
def graph() -> TaskGraph:
    """Two devices, one micro-batch: 0F0 0B0 0U0 | 1F0 1B0 1U0 | one transfer each way."""
    return compile_program(build_program("1f1b", num_devices=2, num_micro_batches=1))


def test_tasks_are_numbered_lane_by_lane_computing_first(graph: TaskGraph) -> None:
    assert [graph.label(task) for task in range(graph.num_tasks)] == ["0F0", "0B0", "0U0", "1F0", "1B0", "1U0", "0T0", "1T0"]
    assert (graph.num_tasks, graph.num_compute_tasks) == (8, 6)
    assert [list(graph.lane_range(lane)) for lane in range(4)] == [[0, 1, 2], [3, 4, 5], [6], [7]]
    assert graph.lane.tolist() == [0, 0, 0, 1, 1, 1, 2, 3]


def test_lanes_say_what_they_are(graph: TaskGraph) -> None:
    assert graph.lanes == (
        Lane(LaneKind.COMPUTE, 0),
        Lane(LaneKind.COMPUTE, 1),
        Lane(LaneKind.LINK, 0, 1),
        Lane(LaneKind.LINK, 1, 0),
    )
    assert [str(lane) for lane in graph.lanes] == ["device 0", "device 1", "link 0->1", "link 1->0"]


def test_a_task_is_a_readable_view(graph: TaskGraph) -> None:
    task = graph.task(4)

    assert (task.kind, task.stage, task.micro_batch, task.mini_batch, task.device, task.lane) == (Kind.BACKWARD, 1, 0, 0, 1, 1)
    assert (task.version, task.horizon, task.direction, task.predicted_by) == (0, 0, Direction.BACKWARD, -1)
    assert str(task) == "1B0"
    assert [task.index for task in graph.tasks()] == list(range(8))


def test_edges_are_stored_by_target_without_those_of_lanes(graph: TaskGraph) -> None:
    assert [graph.sources(task).tolist() for task in range(8)] == [[], [7], [], [6], [], [], [0], [4]]


def test_all_edges_include_those_between_neighbours_of_a_lane(graph: TaskGraph) -> None:
    source, target, kind = graph.edges()
    found = sorted(zip(source.tolist(), target.tolist(), kind.tolist(), strict=True))

    assert found == [
        (0, 1, EdgeKind.ORDER),
        (0, 6, EdgeKind.DATA),
        (1, 2, EdgeKind.ORDER),
        (3, 4, EdgeKind.ORDER),
        (4, 5, EdgeKind.ORDER),
        (4, 7, EdgeKind.DATA),
        (6, 3, EdgeKind.DATA),
        (7, 1, EdgeKind.DATA),
    ]


def test_networkx_gets_every_task_and_edge_with_its_kind(graph: TaskGraph) -> None:
    found = graph.to_networkx()

    assert networkx.is_directed_acyclic_graph(found)
    assert (found.number_of_nodes(), found.number_of_edges()) == (8, 8)
    assert found.nodes[3] == {"kind": "forward", "stage": 1, "micro_batch": 0, "device": 1, "version": 0, "label": "1F0"}
    assert found.edges[6, 3] == {"kind": "data"}


def test_an_update_names_the_micro_batches_that_it_averages() -> None:
    graph = compile_program(build_program("gpipe", num_devices=1, num_micro_batches=2, num_mini_batches=2))
    updates = [task.index for task in graph.tasks() if task.kind is Kind.UPDATE]

    assert [list(graph.members(update)) for update in updates] == [[0, 1], [2, 3]]


def test_devices_of_stages_include_those_of_backward_halves_and_replicas() -> None:
    graph = compile_program(written("0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1", m=2, stages=2))

    assert graph.stage_devices() == ((0, 1), (0, 1))


def test_a_pair_has_the_label_of_both_halves_and_its_backward_apart() -> None:
    graph = compile_program(written("0F0 (0F1;0I0)OVERLAP_F_B 0W0 0B1", m=2))

    assert graph.label(1) == "(0F1;0I0)OVERLAP_F_B"
    assert len(graph.pairs) == 1
    assert (graph.pairs.task.tolist(), graph.pairs.kind.tolist(), graph.pairs.micro_batch.tolist()) == ([1], [Kind.INPUT_GRAD], [0])


def test_its_arrays_cannot_be_written_to(graph: TaskGraph) -> None:
    for array in (graph.kind, graph.version, graph.edge_source, graph.lane_start, graph.topology.order):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_compile_options_are_kept(graph: TaskGraph) -> None:
    again = compile_program(graph.program, recompute="always", recompute_start="on-gradient")

    assert (graph.options.recompute_text, graph.options.recompute_start) == ("never", "early")
    assert (again.options.recompute, again.options.recompute_start) == (("always", "always"), "on-gradient")

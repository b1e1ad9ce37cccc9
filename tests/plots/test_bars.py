import pytest

from plots.bars import lay_out, place_rows
from plots.gantt import gantt
from plots.palette import KIND_COLOURS
from plots.panel import row_label
from schedir.compiler import compile_program
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import build_program
from tests.plots.pictures import extents, labels, legend, words
from tests.plots.programs import PAIRS, TWO_STAGES
from tests.plots.timelines import of_program, predicted


def replicated() -> TaskGraph:
    """1F1B-RR: stage 0 on devices 0 and 1, stage 1 on device 2."""
    return compile_program(build_program("pipedream", num_devices=3, num_micro_batches=1, num_mini_batches=4, replicas=(2, 1)))


def lanes(graph: TaskGraph, *, links: bool) -> list[str]:
    return [str(graph.lanes[row.lane]) for row in place_rows(graph, links=links)]


def test_devices_stand_one_below_the_other() -> None:
    rows = place_rows(predicted("gpipe", 3, 1).graph, links=False)

    assert [(row.lane, row.top, row.height) for row in rows] == [(0, 0, 1), (1, 1, 1), (2, 2, 1)]


def test_links_between_neighbours_lie_between_their_rows() -> None:
    graph = predicted("gpipe", 3, 1).graph

    assert lanes(graph, links=True) == [
        *("device 0", "link 0->1", "link 1->0"),
        *("device 1", "link 1->2", "link 2->1"),
        "device 2",
    ]


def test_reductions_stand_under_the_first_device_of_their_stage() -> None:
    graph = replicated()

    assert lanes(graph, links=True)[:4] == ["device 0", "link 0->2", "link 2->0", "reduce stage 0"]
    assert lanes(graph, links=False) == ["device 0", "device 1", "device 2"]


def test_an_overlapped_pair_is_drawn_as_two_halves_of_one_bar() -> None:
    # F0 from 0 to 1, the pair from 1 to 3.5, I1 to 4.5, W1 to 5.5
    timeline = of_program(PAIRS, overlapped=2.5, input_grad=1, weight_grad=1, backward=2)
    bars = lay_out(timeline, place_rows(timeline.graph, links=False))
    found = {
        (Kind(kind).letter, int(micro_batch), left, right, top < 0.5, bottom > 0.5)
        for kind, micro_batch, left, right, top, bottom in zip(
            bars.kind, bars.micro_batch, bars.left, bars.right, bars.top, bars.bottom, strict=True
        )
    }

    assert found == {
        ("F", 0, 0.0, 1.0, True, True),
        ("F", 1, 1.0, 3.5, True, False),
        ("B", 0, 1.0, 3.5, False, True),
        ("I", 1, 3.5, 4.5, True, True),
        ("W", 1, 4.5, 5.5, True, True),
    }


def test_a_pair_has_the_colours_labels_and_duration_of_both_its_actions() -> None:
    # D19 of known_problems.md: a figure of an overlapped schedule depends on the time of a pair, so it prints it.
    figure = gantt(of_program(PAIRS, overlapped=2.5, input_grad=1, weight_grad=1, backward=2))
    (axes,) = figure.axes

    assert extents(axes, KIND_COLOURS[Kind.FORWARD]) == {(0, 1, 0), (1, 3.5, 0)}
    assert extents(axes, KIND_COLOURS[Kind.BACKWARD]) == {(1, 3.5, 0)}
    assert sorted(labels(axes)) == ["B0", "F0", "F1", "I1", "W1"]
    assert legend(figure) == ["F forward", "B backward", "I input gradient", "W weight gradient", "idle"]
    assert "F 1 s, I 1 s, W 1 s, F&B 2.5 s" in words(figure)


def test_a_pair_counts_as_one_live_activation_more_and_then_one_less() -> None:
    figure = gantt(of_program(PAIRS, overlapped=2.5, input_grad=1, weight_grad=1, backward=2), memory=True)

    assert labels(figure.axes[1]) == ["2"]


def test_labels_name_the_stage_where_devices_host_several() -> None:
    figure = gantt(of_program(TWO_STAGES))

    assert {"0F0", "2F0", "1B1", "3B1"} <= set(labels(figure.axes[0]))
    assert words(figure).startswith("looped, p = 2, m = 2, 2 stages per device")


@pytest.mark.parametrize(("number_from", "expected"), [(0, "Σ 0"), (1, "Σ 1")])
def test_rows_of_reductions_are_named_by_their_stage(number_from: int, expected: str) -> None:
    graph = replicated()
    row = place_rows(graph, links=True)[3]

    assert row_label(graph.lanes[row.lane], number_from, named=False) == expected

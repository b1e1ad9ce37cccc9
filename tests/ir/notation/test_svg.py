from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from schedir.compiler import compile_program
from schedir.ir.action import Action, Kind, Overlapped
from schedir.ir.notation.axis import nice_ticks
from schedir.ir.notation.pictures import spans_svg
from schedir.ir.notation.svg import KIND_COLOURS, MOST_RECTANGLES
from schedir.ir.program import Program
from schedir.schedules.registry import build_program

SVG = "{http://www.w3.org/2000/svg}"
FORWARD, BACKWARD = KIND_COLOURS[Kind.FORWARD], KIND_COLOURS[Kind.BACKWARD]


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def texts(picture: ElementTree.Element) -> list[str]:
    return ["".join(node.itertext()) for node in picture.iter(f"{SVG}text")]


def bars(picture: ElementTree.Element) -> list[tuple[str, float, float, str]]:
    """Return (tooltip, x, width, colour) of every bar."""
    found = []
    for group in picture.iter(f"{SVG}g"):
        rectangle, title = group.find(f"{SVG}rect"), group.find(f"{SVG}title")
        assert rectangle is not None
        assert title is not None
        assert title.text is not None
        found.append((title.text, float(rectangle.get("x", "")), float(rectangle.get("width", "")), rectangle.get("fill", "")))
    return found


def program() -> Program:
    return build_program("1f1b", num_devices=2, num_micro_batches=2)


def test_a_program_shows_one_cell_for_each_entry_in_order() -> None:
    """1f1b p=2 m=2: F0 F1 B0 B1 over F0 B0 F1 B1."""
    shown = [bar[0].split(":")[0] for bar in bars(parsed(program()._repr_svg_()))]

    assert shown == ["F0", "F1", "B0", "B1", "F0", "B0", "F1", "B1"]


def test_a_name_may_have_signs_that_xml_forbids() -> None:
    named = replace(program(), name="mine \x1f \x00 \uffff <b>")

    assert any(
        "mine \N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER} \N{REPLACEMENT CHARACTER} <b>" in text
        for text in texts(parsed(named._repr_svg_()))
    )


def test_a_graph_is_drawn_at_nominal_durations_which_it_names() -> None:
    """1f1b p=2 m=2 at F=1 B=2 ends at (2 + 1) x 3 = 9; device 1 starts with F0 in [1, 2] and B0 in [2, 4]."""
    picture = parsed(compile_program(program())._repr_svg_())

    assert bars(picture)[0][0] == "F0: 0 to 1"
    assert [bar[0] for bar in bars(picture)][4:6] == ["F0: 1 to 2", "B0: 2 to 4"]
    assert any("F = 1, B = 2" in text for text in texts(picture))


def test_bars_are_as_long_as_their_spans() -> None:
    shown = bars(parsed(compile_program(program())._repr_svg_()))
    forward, backward = shown[4], shown[5]

    assert backward[2] == pytest.approx(2 * forward[2], abs=0.05)
    assert backward[1] == pytest.approx(forward[1] + forward[2], abs=0.05)
    assert (forward[3], backward[3]) == (FORWARD, BACKWARD)


def test_letters_stand_only_where_they_fit() -> None:
    """Of two spans on an axis of 1000 s the one of 1 s is narrower than a letter."""
    graph = compile_program(build_program("1f1b", num_devices=1, num_micro_batches=1))
    picture = parsed(spans_svg(graph, np.array([0.0, 1.0, 1000.0]), np.array([1.0, 1000.0, 1000.0]), title="one"))

    assert "B0" in texts(picture)
    assert not {"F0", "F"} & set(texts(picture))


def test_the_legend_names_the_kinds_that_occur() -> None:
    shown = texts(parsed(program()._repr_svg_()))

    assert {"F forward", "B backward"} <= set(shown)
    assert not any(text.startswith("R ") for text in shown)


def test_a_device_with_several_stages_shows_them() -> None:
    orders = [[Action(stage, Kind.FORWARD, 0) for stage in (0, 1)] + [Action(stage, Kind.BACKWARD, 0) for stage in (1, 0)]]
    several = Program.from_orders("two", orders, num_stages=2, num_micro_batches=1)

    assert [bar[0].split(":")[0] for bar in bars(parsed(several._repr_svg_()))] == ["0F0", "1F0", "1B0", "0B0"]


def test_an_overlapped_pair_is_drawn_as_its_two_halves() -> None:
    pair = Overlapped(Action(0, Kind.FORWARD, 1), Action(0, Kind.BACKWARD, 0))
    overlapped = Program.from_orders(
        "pair", [[Action(0, Kind.FORWARD, 0), pair, Action(0, Kind.BACKWARD, 1)]], num_stages=1, num_micro_batches=2
    )

    for picture in (parsed(overlapped._repr_svg_()), parsed(compile_program(overlapped)._repr_svg_())):
        group = next(group for group in picture.iter(f"{SVG}g") if "0F1 0B0" in "".join(group.itertext()))
        assert [node.get("fill") for node in group.iter(f"{SVG}rect")] == [FORWARD, BACKWARD]


def test_transfers_are_drawn_only_where_they_take_time() -> None:
    graph = compile_program(program())
    start, end = np.zeros(graph.num_tasks), np.ones(graph.num_tasks)
    compute_only = np.where(graph.kind == Kind.TRANSFER, start, end)

    assert "link 0->1" not in texts(parsed(spans_svg(graph, start, compute_only, title="")))
    assert "link 0->1" in texts(parsed(spans_svg(graph, start, end, title="")))


def test_tasks_without_a_span_are_not_drawn() -> None:
    graph = compile_program(program())
    start, end = np.full(graph.num_tasks, np.nan), np.full(graph.num_tasks, np.nan)
    start[0], end[0] = 0.0, 1.0

    assert [bar[0] for bar in bars(parsed(spans_svg(graph, start, end, title="")))] == ["F0: 0 to 1"]


def test_a_picture_of_very_many_bars_stays_small() -> None:
    """1f1b p=4 m=2000 has 16,000 bars; drawn one by one they would take more than 2 MB."""
    many = build_program("1f1b", num_devices=4, num_micro_batches=2000)
    text = compile_program(many)._repr_svg_()

    assert many.num_entries > MOST_RECTANGLES
    assert len(text) < 200_000
    assert len(list(parsed(text).iter(f"{SVG}path"))) >= 2


def test_sampled_bars_cover_what_they_stand_for() -> None:
    """p=1: 2000 forwards then 2000 backwards, twice as long: a third of the lane in the forwards' colour, then the rest."""
    order = [Action(0, Kind.FORWARD, j) for j in range(2000)] + [Action(0, Kind.BACKWARD, j) for j in range(2000)]
    picture = parsed(compile_program(Program.from_orders("big", [order], num_stages=1, num_micro_batches=2000))._repr_svg_())
    lengths = {}
    for path in picture.iter(f"{SVG}path"):
        if path.get("fill"):
            lengths[path.get("fill")] = sum(float(piece.split("v")[0]) for piece in path.get("d", "").split("h")[1::2])

    assert lengths[BACKWARD] == pytest.approx(2 * lengths[FORWARD], rel=0.01)


def test_names_are_escaped() -> None:
    named = Program.from_orders("<a & b>", program().orders(), num_stages=2, num_micro_batches=2)

    assert any(text.startswith("<a & b>: ") for text in texts(parsed(named._repr_svg_())))


@pytest.mark.parametrize(
    ("first", "last", "labels"),
    [
        (0.0, 33.0, ["0", "5", "10", "15", "20", "25", "30"]),
        (0.0, 0.0, ["0"]),
        (2.0, 2.7, ["2", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7"]),
        (0.0, 8e-6, ["0", "1e-06", "2e-06", "3e-06", "4e-06", "5e-06", "6e-06", "7e-06", "8e-06"]),
    ],
)
def test_axes_count_in_round_steps(first: float, last: float, labels: list[str]) -> None:
    assert [label for _, label in nice_ticks(first, last)] == labels


def test_sampled_lanes_keep_their_gaps() -> None:
    """4,001 tasks of 1 s with 1 s between them cover half of the lane."""
    graph = compile_program(build_program("1f1b", num_devices=1, num_micro_batches=2000))
    start = 2.0 * np.arange(graph.num_tasks, dtype=np.float64)
    paths = [
        path.get("d", "") for path in parsed(spans_svg(graph, start, start + 1.0, title="")).iter(f"{SVG}path") if path.get("fill")
    ]
    covered = sum(float(piece.split("v")[0]) for path in paths for piece in path.split("h")[1::2])

    assert covered == pytest.approx(880 / 2, rel=0.1)

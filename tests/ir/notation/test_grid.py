"""Grids: slots of graphs, orders of programs, marked culprits; what does not fit is cut, which a line says."""

import pytest

from schedir.compiler import compile_program
from schedir.ir.notation.grid import grid, marked_grid
from schedir.schedules.registry import build_program
from tests.programs import written

ONE_F_ONE_B = """\
device 0 | F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3*
device 1 | .  F0 F1 .  B0 F2 B1 F3 B2 .  B3*.
device 2 | .  .  F0 B0 F1 B1 F2 B2 F3 B3*.  .
. idle, every action takes one slot   * an update stands behind it"""


def test_a_graph_is_drawn_in_slots() -> None:
    graph = compile_program(build_program("1f1b", num_devices=3, num_micro_batches=4))

    assert grid(graph, width=60) == ONE_F_ONE_B


def test_a_program_that_is_not_compiled_is_drawn_in_its_orders() -> None:
    program = build_program("1f1b", num_devices=3, num_micro_batches=2)

    assert grid(program, width=60).splitlines() == [
        "device 0 | F0 F1 B0 B1",
        "device 1 | F0 F1 B0 B1",
        "device 2 | F0 B0 F1 B1",
    ]


def test_cells_name_the_stage_where_a_device_has_several() -> None:
    graph = compile_program(written("0F0 2F0 2B0 0B0", "1F0 3F0 3B0 1B0", m=1, stages=4))

    assert grid(graph, width=60).splitlines()[:2] == [
        "device 0 | 0F0 .   2F0 .   .   2B0*.   0B0*",
        "device 1 | .   1F0 .   3F0 3B0*.   1B0*.",
    ]


def test_rows_name_the_stage_where_it_is_not_the_devices_number() -> None:
    graph = compile_program(build_program("pipedream", num_devices=3, num_micro_batches=1, num_mini_batches=2, replicas=(2, 1)))

    assert [line.split(" |")[0] for line in grid(graph, width=60).splitlines()[:3]] == [
        "device 0 stage 0",
        "device 1 stage 0",
        "device 2 stage 1",
    ]


def test_pairs_recomputations_and_predicted_reads_are_drawn() -> None:
    pairs = compile_program(written("0F0 (0F1;0B0)OVERLAP_F_B 0B1", m=2), recompute="always")
    predicted = compile_program(build_program("xpipe", num_devices=2, num_micro_batches=1, num_mini_batches=2, horizon="pipeoptim"))

    assert grid(pairs, width=60).splitlines()[0] == "device 0 | F0    R0    F1&B0 R1    B1*"
    assert grid(predicted, width=60).splitlines() == [
        "device 0 | F0^ F1^ .   B0* .   B1*",
        "device 1 | .   F0  B0* F1  B1* .",
        ". idle, every action takes one slot   * an update stands behind it   ^ reads predicted weights",
    ]


@pytest.mark.parametrize("width", [30, 40, 57, 80, 200])
def test_no_line_of_cells_is_wider_than_the_terminal(width: int) -> None:
    program = build_program("pipedream", num_devices=4, num_micro_batches=2)

    for text in (grid(program, width=width), grid(compile_program(program), width=width), marked_grid(program, 20, width=width)):
        assert max(len(line) for line in text.splitlines() if line.startswith("device")) <= width


def test_a_long_graph_is_cut_at_the_edge_and_says_how_wide_it_is() -> None:
    """GPipe, p = 2, m = 50: 2 (m + p - 1) = 102 slots; a cell of two digits takes four characters, 11 stand before them."""
    graph = compile_program(build_program("gpipe", num_devices=2, num_micro_batches=50))

    assert grid(graph, width=45).splitlines() == [
        "device 0 | F0 F1 F2 F3 F4 F5 F6 F7 F8 F9",
        "device 1 | .  F0 F1 F2 F3 F4 F5 F6 F7 F8",
        "cut: slots 0 to 9 of 102; to see all of it, type COLUMNS=419 in front of the command",
        ". idle, every action takes one slot   * an update stands behind it",
    ]
    assert grid(graph, width=419).splitlines()[0].endswith("B2  B1  B0*")


def test_a_long_graph_is_cut_behind_the_last_whole_mini_batch_that_fits() -> None:
    """GPipe, p = 2, m = 2: a mini-batch takes 2 (m + p - 1) = 6 slots."""
    graph = compile_program(build_program("gpipe", num_devices=2, num_micro_batches=2, num_mini_batches=3))

    assert grid(graph, width=40).splitlines()[:3] == [
        "device 0 | F0 F1 .  .  B1 B0*",
        "device 1 | .  F0 F1 B1 B0*.",
        "cut: slots 0 to 5 of 18, 1 of 3 mini-batches; to see all of it, type COLUMNS=65 in front of the command",
    ]


def test_a_long_order_is_cut_at_the_edge() -> None:
    program = build_program("gpipe", num_devices=2, num_micro_batches=5)

    assert grid(program, width=28).splitlines() == [
        "device 0 | F0 F1 F2 F3 F4",
        "device 1 | F0 F1 F2 F3 F4",
        "cut: actions 0 to 4 of 10; to see all of it, type COLUMNS=41 in front of the command",
    ]


def test_the_culprit_is_marked_below() -> None:
    program = written("0F0 0F1 0B0 0B1", "1F0 1B0 1B1 1F1", m=2)

    assert marked_grid(program, 6, width=60).splitlines() == [
        "device 0 | 0F0 0F1 0B0 0B1",
        "device 1 | 1F0 1B0 1B1 1F1",
        "                   ^^^ <-- this is wrong",
    ]


def test_the_mark_stands_before_the_culprit_where_there_is_no_room_behind_it() -> None:
    program = written("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1", m=2)

    assert marked_grid(program, 7, width=36).splitlines()[-1] == "     this is wrong --> ^^^"


def test_in_a_long_program_the_culprit_and_its_surroundings_are_shown() -> None:
    program = build_program("gpipe", num_devices=2, num_micro_batches=100)

    assert marked_grid(program, 200 + 60, width=50).splitlines() == [
        "device 0 | ...  0F58 0F59 0F60 0F61 0F62 ...",
        "device 1 | ...  1F58 1F59 1F60 1F61 1F62 ...",
        "                          ^^^^ <-- this is wrong",
    ]


def test_each_of_several_culprits_is_shown_in_a_window_of_its_own() -> None:
    program = build_program("gpipe", num_devices=2, num_micro_batches=100)

    lines = marked_grid(program, [3, 200 + 196], mark="waits for ever", width=50).splitlines()

    assert lines[0].startswith("device 0 | 0F0  0F1  0F2  0F3 ")
    assert lines[1].split() == ["^^^", "<--", "waits", "for", "ever"]
    assert lines[2].endswith("1B2  1B1  1B0")
    assert lines[3].index("^^^") == lines[2].index("1B3")


def test_of_many_devices_those_around_the_culprit_are_shown() -> None:
    program = build_program("gpipe", num_devices=100, num_micro_batches=1)

    lines = marked_grid(program, 2 * 70 + 1, width=60).splitlines()

    assert lines[0] == lines[-1] == "..."
    assert [line.split()[1] for line in lines[1:-1] if line.startswith("device")] == [str(device) for device in range(59, 81)]
    assert lines[lines.index("device 70 | 70F0 70B0") + 1].strip() == "^^^^ <-- this is wrong"


def test_without_a_culprit_nothing_is_marked() -> None:
    assert marked_grid(written("0F0 0B0", m=1), width=60) == "device 0 | 0F0 0B0"

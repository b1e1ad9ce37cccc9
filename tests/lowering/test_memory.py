"""What tasks take of memory, in counts of units."""

from collections import Counter

import numpy as np

from schedir.compiler import compile_program
from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.graph import TaskGraph
from schedir.ir.program import Program
from schedir.lowering.effects import CLASSES, RUN_START, MemoryEffects, Moment, Unit
from schedir.lowering.memory import memory_effects
from schedir.schedules.registry import build_program
from schedir.timeline.timeline import MemoryClass

Row = tuple[str, str, str, int]
"""Task and moment, class, unit, units: `("0F0 start", "activations", "boundary", 1)`."""


def rows_of(graph: TaskGraph, device: int) -> list[Row]:
    """Return a device's effects, transfers by the label of what they carry."""
    effects = memory_effects(graph)
    return [_row(graph, effects, at) for at in range(int(effects.device_start[device]), int(effects.device_start[device + 1]))]


def _row(graph: TaskGraph, effects: MemoryEffects, at: int) -> Row:
    task = int(effects.task[at])
    moment = Moment(effects.moment[at]).name.lower()
    place = "run" if task == RUN_START else f"{graph.label(task)} {moment}"
    return (place, CLASSES[effects.memory_class[at]].value, Unit(effects.unit[at]).name.lower(), int(effects.units[at]))


def of_class(rows: list[Row], memory_class: MemoryClass) -> list[Row]:
    return [row for row in rows if row[1] == memory_class]


def held(rows: list[Row], memory_class: MemoryClass) -> list[tuple[str, str]]:
    """Return (place, sign and unit) of a class, in order."""
    return [(place, f"{'+' if units > 0 else '-'}{unit}") for place, found, unit, units in rows if found == memory_class]


def two_stages(*orders: str, recompute: str = "never") -> TaskGraph:
    """Compile orders such as `0F0 0B0`, one per device, of two stages."""
    letters = {kind.letter: kind for kind in Kind}
    entries = [[Action(int(word[0]), letters[word[1]], int(word[2:])) for word in order.split()] for order in orders]
    micro_batches = 1 + max(action.micro_batch for order in entries for action in order)
    program = Program.from_orders("two stages", entries, num_stages=2, num_micro_batches=micro_batches)
    return compile_program(program, recompute=recompute)


def test_every_stage_of_a_device_holds_its_weights_gradients_and_optimizer() -> None:
    graph = two_stages("0F0 1F0 1B0 0B0")

    resident = Counter((memory_class, unit) for place, memory_class, unit, units in rows_of(graph, 0) if place == "run")

    assert resident == {("weights", "weights"): 2, ("gradients", "gradients"): 2, ("optimizer", "optimizer"): 2}


def test_every_replica_of_a_stage_holds_its_own_weights() -> None:
    program = build_program("pipedream", num_devices=3, num_micro_batches=1, num_mini_batches=4, replicas=(2, 1))

    rows = [rows_of(compile_program(program), device) for device in range(3)]

    assert [row for each in rows for row in of_class(each, MemoryClass.WEIGHTS)] == [("run", "weights", "weights", 1)] * 3


def test_full_activations_live_from_the_start_of_the_forward_to_the_end_of_the_backward() -> None:
    graph = two_stages("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1")

    assert held(rows_of(graph, 0), MemoryClass.ACTIVATIONS) == [
        ("0F0 start", "+activations"),
        ("0F1 start", "+activations"),
        ("0B0 end", "-activations"),
        ("0B1 end", "-activations"),
    ]


def test_a_recomputed_set_is_held_beside_its_boundary_until_the_backward_ends() -> None:
    rows = rows_of(two_stages("0F0 0B0", "1F0 1B0", recompute="always"), 0)

    assert held(rows, MemoryClass.ACTIVATIONS) == [("0F0 start", "+boundary"), ("0B0 end", "-boundary")]
    assert held(rows, MemoryClass.RECOMPUTED) == [("0R0 start", "+recomputed"), ("0B0 end", "-recomputed")]


def test_where_backward_is_split_a_part_is_given_back_by_the_input_gradient_and_the_rest_by_the_weight_gradient() -> None:
    rows = rows_of(two_stages("0F0 0F1 0I0 0I1 0W1 0W0", "1F0 1F1 1I0 1W0 1I1 1W1", recompute="always"), 0)

    assert held(rows, MemoryClass.ACTIVATIONS)[2:] == [
        ("0I0 end", "-freed_boundary"),
        ("0I1 end", "-freed_boundary"),
        *(("0W1 end", "-boundary"), ("0W1 end", "+freed_boundary")),
        *(("0W0 end", "-boundary"), ("0W0 end", "+freed_boundary")),
    ]
    assert held(rows, MemoryClass.RECOMPUTED) == [
        ("0R0 start", "+recomputed"),
        ("0I0 end", "-freed_recomputed"),
        ("0R1 start", "+recomputed"),
        ("0I1 end", "-freed_recomputed"),
        *(("0W1 end", "-recomputed"), ("0W1 end", "+freed_recomputed")),
        *(("0W0 end", "-recomputed"), ("0W0 end", "+freed_recomputed")),
    ]


def test_split_and_whole_backwards_of_a_stage_may_be_mixed() -> None:
    rows = rows_of(two_stages("0F0 0F1 0I0 0W0 0B1", "1F0 1F1 1B0 1B1"), 0)

    assert held(rows, MemoryClass.ACTIVATIONS)[2:] == [
        ("0I0 end", "-freed_activations"),
        *(("0W0 end", "-activations"), ("0W0 end", "+freed_activations")),
        ("0B1 end", "-activations"),
    ]


def test_a_recomputation_that_the_program_places_itself_counts_like_one_that_is_inserted() -> None:
    rows = rows_of(two_stages("0F0 0R0 0B0", "1F0 1B0"), 0)

    assert held(rows, MemoryClass.RECOMPUTED) == [("0R0 start", "+recomputed"), ("0B0 end", "-recomputed")]


def test_a_sent_output_is_freed_when_the_link_has_sent_it_and_becomes_the_boundary_of_its_reader() -> None:
    graph = two_stages("0F0 0B0", "1F0 1B0")

    assert held(rows_of(graph, 0), MemoryClass.TRANSFER_BUFFERS)[:2] == [("0F0 end", "+output"), ("0T0 release", "-output")]
    assert held(rows_of(graph, 1), MemoryClass.TRANSFER_BUFFERS)[:2] == [("0T0 start", "+output"), ("1F0 start", "-output")]


def test_a_received_gradient_is_held_until_its_backward_ends() -> None:
    graph = two_stages("0F0 0B0", "1F0 1B0")

    assert held(rows_of(graph, 1), MemoryClass.TRANSFER_BUFFERS)[2:] == [
        ("1B0 end", "+input_gradient"),
        ("1T0 release", "-input_gradient"),
    ]
    assert held(rows_of(graph, 0), MemoryClass.TRANSFER_BUFFERS)[2:] == [
        ("1T0 start", "+input_gradient"),
        ("0B0 end", "-input_gradient"),
    ]


def test_a_message_between_two_stages_on_one_device_lies_in_one_buffer() -> None:
    rows = rows_of(two_stages("0F0 1F0 1B0 0B0"), 0)

    assert held(rows, MemoryClass.TRANSFER_BUFFERS) == [
        ("0F0 end", "+output"),
        ("1F0 start", "-output"),
        ("1B0 end", "+input_gradient"),
        ("0B0 end", "-input_gradient"),
    ]


def test_an_overlapped_pair_takes_the_workspace_of_both_halves_and_frees_the_backward_half() -> None:
    forward, backward = Action(0, Kind.FORWARD, 1), Action(0, Kind.BACKWARD, 0)
    order: list[Entry] = [Action(0, Kind.FORWARD, 0), Overlapped(forward, backward), Action(0, Kind.BACKWARD, 1)]
    graph = compile_program(Program.from_orders("pair", [order], num_stages=1, num_micro_batches=2))

    rows = rows_of(graph, 0)

    pair = "(0F1;0B0)OVERLAP_F_B"
    assert [row for row in of_class(rows, MemoryClass.WORKSPACE) if pair in row[0]] == [
        (f"{pair} start", "workspace", "workspace", 1),
        (f"{pair} start", "workspace", "workspace", 1),
        (f"{pair} end", "workspace", "workspace", -1),
        (f"{pair} end", "workspace", "workspace", -1),
    ]
    assert held(rows, MemoryClass.ACTIVATIONS)[1:3] == [(f"{pair} start", "+activations"), (f"{pair} end", "-activations")]


def test_updates_and_predictions_take_no_workspace() -> None:
    graph = compile_program(build_program("xpipe", num_devices=2, num_micro_batches=1, num_mini_batches=4))

    letters = {place.split()[0][1] for place, memory_class, *_ in rows_of(graph, 0) if memory_class == MemoryClass.WORKSPACE}

    assert letters == {"F", "B"}


def test_a_stashed_version_is_extra_from_the_update_that_replaces_it_to_its_last_reader() -> None:
    # device 0 of 2: F0 F1 B0 U F2 B1 U F3 B2 U B3 U: F1 reads version 0, which the first update replaces, B1 reads it last
    graph = compile_program(build_program("pipedream", num_devices=2, num_micro_batches=1, num_mini_batches=4))

    assert held(rows_of(graph, 0), MemoryClass.VERSIONS) == [
        ("0U0 end", "+weights"),
        ("0B1 end", "-weights"),
        ("0U1 end", "+weights"),
        ("0B2 end", "-weights"),
        ("0U2 end", "+weights"),
        ("0B3 end", "-weights"),
    ]
    assert held(rows_of(graph, 1), MemoryClass.VERSIONS) == []


def test_a_flush_keeps_no_version_beside_the_current_one() -> None:
    graph = compile_program(build_program("1f1b", num_devices=3, num_micro_batches=4, num_mini_batches=3))

    assert not (memory_effects(graph).memory_class == CLASSES.index(MemoryClass.VERSIONS)).any()


def test_a_predicted_set_lives_from_its_prediction_to_its_last_reader() -> None:
    # one prediction a mini-batch and stage: F of both micro-batches read it, backwards read true weights
    program = build_program("xpipe", num_devices=2, num_micro_batches=2, num_mini_batches=2, horizon="exact")
    graph = compile_program(program)

    assert [row for row in held(rows_of(graph, 0), MemoryClass.VERSIONS) if "P" in row[0] or "F" in row[0]] == [
        ("0P2 end", "+weights"),
        ("0F3 end", "-weights"),
    ]


def test_effects_of_a_device_are_in_the_order_of_its_lane() -> None:
    graph = compile_program(build_program("1f1b", num_devices=4, num_micro_batches=8), recompute="always")
    effects = memory_effects(graph)

    for device in range(4):
        rows = slice(int(effects.device_start[device]), int(effects.device_start[device + 1]))
        task = effects.task[rows]
        own = task[(task >= 0) & (task < graph.num_compute_tasks)]
        assert (np.diff(own) >= 0).all()

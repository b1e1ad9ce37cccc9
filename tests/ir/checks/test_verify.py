"""What is wrong with a program, said in one line with device, action, rule and remedy, and marked in its grid."""

from dataclasses import replace

import numpy as np
import pytest

from schedir.compiler import compile_program
from schedir.errors import ProgramError
from schedir.ir.action import Kind
from schedir.ir.checks.verify import check_program
from schedir.ir.notation.printing import print_program
from schedir.ir.notation.text import parse_program
from schedir.ir.origin import Origin
from schedir.ir.pairs import Pairs
from schedir.ir.program import Program
from schedir.schedules.registry import build_program
from tests.programs import written

FIRST = "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3"


def fault_of(program: Program) -> ProgramError:
    with pytest.raises(ProgramError, match=r"\S") as error:
        check_program(program)
    assert "\n" not in str(error.value)
    return error.value


def marked(error: ProgramError) -> tuple[str, str]:
    """Return the device and the cell above the mark of a grid."""
    lines = error.grid.splitlines()
    [at] = [number for number, line in enumerate(lines) if "^" in line]
    start = lines[at].index("^")
    return lines[at - 1].split(" | ")[0], lines[at - 1][start : start + lines[at].count("^")]


@pytest.mark.parametrize(
    ("second", "message", "cell"),
    [
        # the line that formats/README.md promises
        ("1F0 1B0 1F1 1B1 1F2 1B2 1B3", "device 1: 1B3 waits for ever: 1F3 is missing (micro-batches 0..3)", "1B3"),
        ("1F0 1B0 1F1 1B1 1F2 1B2 1F3", "device 1: 1F3 has no gradient: 1B3 is missing (micro-batches 0..3)", "1F3"),
        ("1F0 1B0 1F1 1B1 1F2 1B2 1F3 1W3", "device 1: 1W3 waits for ever: 1I3 is missing (micro-batches 0..3)", "1W3"),
        ("1F0 1B0 1F1 1B1 1F2 1B2 1F3 1I3", "device 1: 1I3 is half a backward: 1W3 is missing (micro-batches 0..3)", "1I3"),
        ("1F0 1B0 1F1 1B1 1F2 1B2 1W3", "device 1: 1W3 waits for ever: 1F3 and 1I3 are missing (micro-batches 0..3)", "1W3"),
        ("1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3 1F0", "device 1: 1F0 stands 2 times: every action once", "1F0"),
        ("1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3 1B3 1B3", "device 1: 1B3 stands 3 times: every action once", "1B3"),
        ("1F0 1B0 1F1 1B1 1F2 1B2 1F3 1I3 1I3", "device 1: 1I3 stands 2 times: every action once", "1I3"),
        ("1F0 1B0 1F1 1B1 1F2 1B2 1F3 1R3 1R3 1B3", "device 1: 1R3 stands 2 times: every action once", "1R3"),
        (
            "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1I3 1B3",
            "device 1: 1B3 stands beside 1I3: a backward is whole (B) or split (I and W), so leave one out",
            "1B3",
        ),
        ("1F0 1B0 1F1 1B1 1F2 1B2 1B3 1F3", "device 1: 1B3 stands before its forward: move it behind", "1B3"),
        ("1F0 1B0 1F1 1B1 1F2 1B2 1F3 1W3 1I3", "device 1: 1W3 stands before its input gradient: move it behind", "1W3"),
        (
            "1F0 1B0 1F1 1B1 1F2 1B2 1R3 1F3 1B3",
            "device 1: 1R3 stands not between its forward and its backward: move it there",
            "1R3",
        ),
        (
            "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3 1R3",
            "device 1: 1R3 stands not between its forward and its backward: move it there",
            "1R3",
        ),
        (
            "1F0 1B0 1F1 1B1 1F2 1B2 (1F3;1B3)OVERLAP_F_B",
            "device 1: 1F3 overlaps its own backward: pair it with another micro-batch's",
            "1F3&1B3",
        ),
        ("1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3 2F0", "device 1: 2F0 has stage 2, but the shape says 0..1", "2F0"),
        ("1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3 1F4", "device 1: 1F4 has micro-batch 4, but the shape says 0..3", "1F4"),
    ],
)
def test_the_culprit_is_named_and_marked(second: str, message: str, cell: str) -> None:
    error = fault_of(written(FIRST, second, m=4))

    assert str(error) == message
    assert marked(error) == ("device 1", cell)


def test_what_is_missing_altogether_is_reported_by_who_waits_for_it() -> None:
    last = fault_of(written(FIRST, "1F0 1B0 1F1 1B1 1F2 1B2", m=4))
    first = fault_of(written("0F0 0B0", "1F0 1B0 1F1 1B1", m=2))

    assert str(last) == "device 0: 0B3 waits for ever: 1F3 and 1B3 are missing (micro-batches 0..3)"
    assert str(first) == "device 1: 1F1 waits for ever: 0F1 and 0B1 are missing (micro-batches 0..1)"
    assert marked(first) == ("device 1", "1F1")


def test_a_shape_beyond_the_orders_is_said_as_such() -> None:
    assert str(fault_of(written("0F0 0B0", m=1, stages=2))) == "stage 1 stands on no device: num_stages is 2"
    assert str(fault_of(written("0F0 0F1 0B0 0B1", m=2, n=2))) == (
        "micro-batch 2 stands on no device: 2 x 2 micro-batches are announced (num_mini_batches x num_micro_batches)"
    )


def test_an_absurd_shape_costs_no_memory() -> None:
    assert "micro-batch 1 stands on no device" in str(fault_of(written("0F0 0B0", m=10**8, n=10**8)))


def test_forward_and_backward_on_two_devices_are_refused() -> None:
    error = fault_of(written("0F0 0B0 0F1 1B1", "1F0 1B0 1F1 0B1", m=2))

    assert str(error) == "device 1: 0B1 stands on another device than its forward: one device runs both, so move one of them"


def test_halves_of_a_backward_on_two_devices_are_refused() -> None:
    error = fault_of(written("0F0 0I0", "1F0 1I0 1W0 0W0", m=1, stages=2))

    assert str(error) == "device 1: 0W0 stands on another device than its forward: one device runs both, so move one of them"


def test_a_device_without_actions_is_refused() -> None:
    error = fault_of(written("0F0 0B0", "", m=1, stages=1))

    assert str(error) == "device 1 has no actions: give it some, or leave it out (num_devices 2)"


@pytest.mark.parametrize("count", [0, -1])
def test_counts_below_one_are_refused(count: int) -> None:
    with pytest.raises(ProgramError, match=f"num_micro_batches {count} must be at least 1"):
        check_program(written("0F0 0B0", m=count))


def test_kinds_that_compiling_places_are_refused() -> None:
    program = Program.from_arrays("p", [([Kind.FORWARD, Kind.PREDICT, Kind.BACKWARD], 0, 0)], num_stages=1, num_micro_batches=1)

    assert str(fault_of(program)) == "device 0: 0P0 is a predict, which compiling places: leave it out"


def test_a_pair_of_two_forwards_is_refused() -> None:
    program = Program(
        name="p",
        num_stages=1,
        num_devices=1,
        num_micro_batches=2,
        num_mini_batches=1,
        weights=written("0F0 0B0", m=1).weights,
        device_start=np.array([0, 1]),
        kind=np.array([Kind.OVERLAPPED], np.int8),
        stage=np.array([0], np.int32),
        micro_batch=np.array([0], np.int32),
        pairs=Pairs.of([0], kind=[Kind.FORWARD], stage=[0], micro_batch=[1]),
    )

    assert str(fault_of(program)) == "device 0: (0F0;0F1)OVERLAP_F_B: an overlapped pair is one F and one B or I"


def test_a_half_of_a_pair_outside_the_shape_is_refused() -> None:
    error = fault_of(written("0F0 (0F1;0B5)OVERLAP_F_B 0B1", m=2))

    assert str(error) == "device 0: (0F1;0B5)OVERLAP_F_B has micro-batch 5, but the shape says 0..1"


def test_so_many_of_one_action_that_counts_run_over_are_still_found() -> None:
    """8193 forwards look like one forward and one backward to a count that packs both into one number."""
    error = fault_of(written(" ".join(["0F0"] * (2**13 + 1)), m=1))

    assert str(error) == "device 0: 0F0 stands 8193 times: every action once"


def test_the_file_and_line_of_a_read_program_lead_the_message() -> None:
    text = print_program(written(FIRST, "1F0 1B0 1F1 1B1 1F2 1B2 1B3", m=4))

    error = fault_of(parse_program(text, "zigzag.txt"))

    assert str(error) == "zigzag.txt:9: device 1: 1B3 waits for ever: 1F3 is missing (micro-batches 0..3)"


def test_without_known_lines_the_file_alone_leads_the_message() -> None:
    program = written("0F0", m=1)
    assert str(fault_of(replace(program, origin=Origin("a.toml")))).startswith("a.toml: device 0: 0F0 has no gradient")


# Known problem D1: fewer micro-batches than stages, or one, is neither refused nor does it hang.
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize("micro_batches", [1, 2, 3])
def test_fewer_micro_batches_than_stages_are_valid(name: str, micro_batches: int) -> None:
    compile_program(build_program(name, num_devices=4, num_micro_batches=micro_batches))


# Known problem D6: any order of the backwards is a schedule of its own.
def test_a_users_own_order_of_backwards_is_valid() -> None:
    graph = compile_program(written("0F0 0F1 0F2 0F3 0B2 0B0 0B3 0B1", "1F0 1F1 1F2 1F3 1B2 1B0 1B3 1B1", m=4))

    assert [graph.label(task) for task in graph.lane_range(0)][4:] == ["0B2", "0B0", "0B3", "0B1", "0U3"]

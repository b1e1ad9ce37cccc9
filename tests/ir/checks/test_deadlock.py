"""Programs that can never end: the devices that wait for each other in a circle are named and marked."""

import pytest

from schedir.compiler import compile_program
from schedir.errors import DeadlockError
from schedir.ir.notation.printing import print_program
from schedir.ir.notation.text import parse_program
from tests.programs import written


def test_two_devices_that_wait_for_each_other_are_named_with_what_they_wait_for() -> None:
    program = written("0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0", m=2)

    with pytest.raises(DeadlockError, match=r"^deadlock: ") as error:
        compile_program(program)

    assert str(error.value) == (
        "deadlock: device 0: 0B0 waits for 1B0 of device 1; device 1: 1F1 waits for 0F1 of device 0: none of them can ever "
        "start, so change the order of one of these devices"
    )
    assert error.value.grid.splitlines() == [
        "device 0 | 0F0 0B0 0F1 0B1",
        "               ^^^ <-- waits for ever",
        "device 1 | 1F1 1B1 1F0 1B0",
        "           ^^^ <-- waits for ever",
    ]


def test_a_common_update_does_not_hide_the_circle() -> None:
    """The order of the tasks is sought without the reduction, which nothing of the circle waits for."""
    program = written("0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0", m=2)

    with pytest.raises(DeadlockError, match=r"^deadlock: device 0: 0B0 waits for 1B0 of device 1; device 1: 1F1 waits for 0F1 of"):
        compile_program(program, common_update=True)


def test_devices_outside_of_the_circle_are_not_blamed() -> None:
    """Device 2 waits too, but for device 1, which waits for device 0."""
    program = written("0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0", "2F0 2B0 2F1 2B1", m=2)

    with pytest.raises(DeadlockError, match=r"^deadlock: device 0: 0B0 waits for 1B0 of device 1; device 1: .* of device 0: none"):
        compile_program(program)


def test_a_circle_over_three_devices_is_followed_to_its_end() -> None:
    """Every stage moves on by one device a micro-batch; every device starts with what its neighbour makes too late."""
    program = written(
        "1F2 0F0 2F1 2B1 1B2 0B0",
        "1F0 0F1 2F2 2B2 1B0 0B1",
        "1F1 0F2 2F0 2B0 1B1 0B2",
        m=3,
    )

    with pytest.raises(DeadlockError, match="deadlock: device 0: 1F2 waits") as error:
        compile_program(program)

    assert str(error.value).startswith(
        "deadlock: device 0: 1F2 waits for 0F2 of device 2; device 2: 1F1 waits for 0F1 of device 1; "
        "device 1: 1F0 waits for 0F0 of device 0: none of them can ever start"
    )


def test_of_a_long_circle_the_first_devices_are_named() -> None:
    size = 12
    orders = []
    for device in range(size):
        late, others = (device - 1) % size, [(s, (device - s) % size) for s in range(2, size)]
        forwards = [f"1F{late}", f"0F{device}", *(f"{s}F{j}" for s, j in others)]
        orders.append(" ".join([*forwards, *(cell.replace("F", "B") for cell in reversed(forwards))]))

    with pytest.raises(DeadlockError, match=r"; \.\.\.: none of them") as error:
        compile_program(written(*orders, m=size))

    assert str(error.value).count(" waits for ") == 8


def test_a_pair_is_named_whole() -> None:
    program = written("0F0 (0F1;0B0)OVERLAP_F_B 0B1", "1F1 1B1 1F0 1B0", m=2)

    with pytest.raises(DeadlockError, match=r"device 0: \(0F1;0B0\)OVERLAP_F_B waits for 1B0 of device 1"):
        compile_program(program)


def test_an_update_of_replicas_that_waits_for_a_later_gradient_is_named() -> None:
    program = written("0F0 1F1 1B1 1U1 0B0 0U1", "0F1 1F0 0B1 0U1 1B0 1U1", m=2, stages=2)

    with pytest.raises(DeadlockError, match="device 0: 1U1 waits for 1B0 of device 1; device 1: 0U1 waits for 0B0 of device 0"):
        compile_program(program)


def test_file_and_line_lead_the_message() -> None:
    program = parse_program(print_program(written("0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0", m=2)), "a.txt")

    with pytest.raises(DeadlockError, match=r"^a.txt:8: deadlock: device 0"):
        compile_program(program)

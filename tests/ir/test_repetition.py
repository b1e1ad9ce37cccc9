"""Programs that flush, repeated mini-batch after mini-batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.compiler import compile_program
from schedir.errors import ArgumentError
from schedir.ir.repetition import is_repeatable, repeat_program
from schedir.ir.weights import Rule
from schedir.schedules.registry import SCHEDULES, build_program
from tests.programs import accepted_shape, written

SYNCHRONOUS = tuple(name for name, schedule in SCHEDULES.items() if not schedule.continuous)


def test_every_mini_batch_has_the_same_order() -> None:
    program = repeat_program(written("0F0 0F1 0B1 0B0 0U1", "1F0 1F1 1B1 1B0 1U1", m=2), 2)

    assert " ".join(map(str, program.order(1))) == "1F0 1F1 1B1 1B0 1U1 1F2 1F3 1B3 1B2 1U3"
    assert (program.num_mini_batches, program.num_micro_batches) == (2, 2)
    compile_program(program)


def test_pairs_are_repeated() -> None:
    program = repeat_program(written("0F0 (0F1;0B0)OVERLAP_F_B 0B1", "1F0 1B0 (1F1;2B1)OVERLAP_F_B 1B1", m=2, stages=3), 2)

    assert " ".join(map(str, program.order(0))).endswith("0B1 0F2 (0F3;0B2)OVERLAP_F_B 0B3")
    assert " ".join(map(str, program.order(1))).endswith("1B1 1F2 1B2 (1F3;2B3)OVERLAP_F_B 1B3")


@given(st.sampled_from(SYNCHRONOUS), st.tuples(st.integers(1, 4), st.integers(1, 6)), st.integers(1, 4))
def test_schedules_that_flush_repeat_themselves(name: str, wanted: tuple[int, int], times: int) -> None:
    devices, micro_batches = accepted_shape(name, *wanted)
    shape = {"num_devices": devices, "num_micro_batches": micro_batches}

    assert repeat_program(build_program(name, **shape), times) == build_program(name, **shape, num_mini_batches=times)


def test_what_does_not_flush_or_fit_is_not_repeated() -> None:
    stashed, two = written("0F0 0B0", m=1, weights=Rule.STASH), written("0F0 0B0 0F1 0B1", m=1, n=2)

    assert not is_repeatable(stashed, 2)
    assert not is_repeatable(two, 3)
    assert is_repeatable(two, 4)
    with pytest.raises(ArgumentError, match="written has 2 mini-batches and weights latest, so it cannot be repeated to 3"):
        repeat_program(two, 3)

"""Sends and receives for torch: literal rows, and orders in which even blocking sends come to their end.

That all of it equals torch's own lowering is tested beside the adapter (tests/executor/in_torch/test_torch_orders.py).
"""

import re
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.errors import DeadlockError
from schedir.interop.torch_csv import parse_torch_csv
from schedir.interop.torch_lowering import check_torch_ends, print_torch_communication
from schedir.ir.notation.header import Header
from schedir.ir.program import Program
from schedir.schedules.registry import build_program
from tests.interop.test_torch_limits import RUNS
from tests.programs import accepted_shape, written


def test_1f1b_is_written_with_its_transfers() -> None:
    program = build_program("1f1b", num_devices=2, num_micro_batches=2)

    assert print_torch_communication(program) == (
        "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
        "1UNSHARD,1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD\n"
    )


def test_interleaved_begins_and_ends_as_torch_writes_it() -> None:
    """The row that the notes on torch 2.13 quote: rank 0 of 2, 2 stages each, 4 micro-batches."""
    row = print_torch_communication(build_program("interleaved-1f1b", num_devices=2, num_micro_batches=4)).split("\n")[0]

    assert row.startswith("0UNSHARD,2UNSHARD,0F0,0SEND_F0,2RECV_F0,0F1,")
    assert ",2B3,2SEND_B3,2REDUCE_GRAD,2RESHARD," in row
    assert row.endswith(",0B3,0REDUCE_GRAD,0RESHARD")


def test_a_pair_sends_both_halves_behind_it() -> None:
    rows = print_torch_communication(build_program("dualpipev", num_devices=2, num_micro_batches=4)).splitlines()

    assert ",(0F3;3B1)OVERLAP_F_B,0SEND_F3,3SEND_B1," in rows[0]


def test_weights_are_gathered_for_the_next_three_stages() -> None:
    program = written("0F0 1F0 2F0 3F0 3B0 2B0 1B0 0B0", m=1, stages=4)

    assert print_torch_communication(program) == (
        "0UNSHARD,1UNSHARD,2UNSHARD,0F0,0RESHARD,3UNSHARD,1F0,2F0,3F0,3B0,3REDUCE_GRAD,3RESHARD,0UNSHARD,2B0,"
        "2REDUCE_GRAD,2RESHARD,1B0,1REDUCE_GRAD,1RESHARD,0B0,0REDUCE_GRAD,0RESHARD\n"
    )


def test_updates_and_recomputations_are_left_out() -> None:
    assert print_torch_communication(written("0F0 0R0 0B0 0U0", m=1)) == "0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD\n"


@pytest.mark.parametrize("write", [check_torch_ends, print_torch_communication])
def test_a_circle_is_named(write: object) -> None:
    program = written("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1", m=2)

    assert callable(write)
    with pytest.raises(
        DeadlockError, match=r"^deadlock: device 0: 0B0 waits for 1B0; device 1: 1F1 waits for 0F1: none of them can ever"
    ) as error:
        write(program)

    assert error.value.grid.count("^^^ <-- waits for ever") == 2


@st.composite
def programs(draw: st.DrawFn) -> Program:
    name = draw(st.sampled_from(sorted(RUNS)))
    devices, micro_batches = accepted_shape(name, draw(st.integers(1, 4)), draw(st.integers(1, 7)))
    return build_program(name, num_devices=devices, num_micro_batches=micro_batches)


@given(programs())
def test_what_is_written_is_read_and_proved(program: Program) -> None:
    assert parse_torch_csv(print_torch_communication(program), Header(program.name), "mine.csv") == program


@given(programs())
def test_even_blocking_sends_and_receives_come_to_their_end(program: Program) -> None:
    """Every send and every receive waits until its partner stands at the other: nothing is buffered."""
    rows = [re.findall(r"\w+(?:SEND|RECV)\w+", row) for row in print_torch_communication(program).splitlines()]
    while any(rows):
        standing: dict[str, list[list[str]]] = defaultdict(list)
        for row in filter(None, rows):
            standing[_meeting(row[0])].append(row)
        met = [row for present in standing.values() if len(present) == 2 for row in present]
        assert met, f"nobody meets: {standing}"
        for row in met:
            row.pop(0)


def _meeting(cell: str) -> str:
    """Name what a send and its receive have in common: `0SEND_F1` and `1RECV_F1` are both F of stage 0 on micro-batch 1."""
    stage, what, direction, micro_batch = re.fullmatch(r"(\d+)(SEND|RECV)_([FB])(\d+)", cell).groups()  # type: ignore[union-attr]
    sender = int(stage) if what == "SEND" else int(stage) + (-1 if direction == "F" else 1)
    return f"{sender}{direction}{micro_batch}"

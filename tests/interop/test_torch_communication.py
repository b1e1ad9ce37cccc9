"""Communication in torch's CSV: what its runtime would hang on or compute wrongly is found when the file is read."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.compiler import compile_program
from schedir.errors import DeadlockError, FormatError, ProgramError, SchedirError
from schedir.interop.torch_cells import Communication
from schedir.interop.torch_csv import parse_torch_csv
from schedir.interop.torch_lowering import print_torch_communication
from schedir.ir.notation.header import Header
from schedir.ir.program import Program

# torch 2.13, 1F1B by hand on 2 ranks x 2 micro-batches, after its lowering.
WHOLE = """\
0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD
1UNSHARD,1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD
"""

# torch 2.13, V of 2 ranks with split backwards: stages 1 and 2 share rank 1, so nothing is sent between them.
SPLIT_V = """\
0UNSHARD,3UNSHARD,0F0,0SEND_F0,3RECV_F0,3F0,3I0,3SEND_B0,3W0,3REDUCE_GRAD,3RESHARD,0RECV_B0,0I0,0W0,0REDUCE_GRAD,0RESHARD
1UNSHARD,2UNSHARD,1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2I0,2W0,2REDUCE_GRAD,2RESHARD,1I0,1SEND_B0,1W0,1REDUCE_GRAD,1RESHARD
"""


def read(text: str, **counts: int) -> Program:
    return parse_torch_csv(text, Header("file", **counts), "mine.csv")  # type: ignore[arg-type] # counts only


def test_communication_is_proved_and_left_to_compiling() -> None:
    assert [" ".join(map(str, order)) for order in read(WHOLE).orders()] == ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]
    assert " ".join(map(str, read(SPLIT_V).order(1))) == "1F0 2F0 2I0 2W0 1I0 1W0"


def test_ragged_rows_and_empty_cells_do_not_matter() -> None:
    assert read(WHOLE.replace("0B1,", "0B1,,,").replace("1RESHARD\n", "1RESHARD,,\n")) == read(WHOLE)


def test_a_file_without_gathering_is_read() -> None:
    bare = "\n".join(",".join(cell for cell in row.split(",") if "SHARD" not in cell) for row in WHOLE.split("\n"))

    assert read(bare) == read(WHOLE)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "1RECV_F0,1F0,1RECV_F1,",
            "1RECV_F1,1RECV_F0,1F0,",
            r"^mine.csv:2: device 1: cell 2: 1RECV_F1 stands where device 0 sends 0SEND_F0: torch would take one for the other, so",
        ),
        (
            "1B1,1SEND_B1,1REDUCE_GRAD,",
            "1B1,1SEND_B1,",
            r"^mine.csv:2: device 1: 1REDUCE_GRAD is missing behind 1B1: torch would leave the gradients of stage 1 2 times",
        ),
        (
            "0B0,",
            "0REDUCE_GRAD,0B0,",
            r"cell 11: 0REDUCE_GRAD stands twice, first at mine.csv:1: device 0: cell 7",
        ),
        (
            "0RECV_B1,0B1,0REDUCE_GRAD",
            "0RECV_B1,0REDUCE_GRAD,0B1",
            r"cell 9: 0REDUCE_GRAD stands before 0B1, whose gradient it would",
        ),
        (
            "0SEND_F1,",
            "0SEND_F1,0SEND_F1,",
            r"^mine.csv:1: device 0: cell 6: 0SEND_F1 stands twice, first at mine.csv:1: device 0: cell 5",
        ),
        (
            "0F1,0SEND_F1,",
            "0SEND_F1,0F1,",
            r"^mine.csv:1: device 0: cell 4: 0SEND_F1 stands before 0F1, whose result it sends: move it",
        ),
        (
            "1RECV_F0,1F0,",
            "1F0,1RECV_F0,",
            r"^mine.csv:2: device 1: cell 3: 1RECV_F0 stands behind 1F0, which waits for it: move it",
        ),
        ("1RECV_F1,", "", r"^mine.csv:2: device 1: 1F1 has no 1RECV_F1 before it: write one"),
        ("0RECV_B1,", "", r"^mine.csv:1: device 0: 0B1 has no 0RECV_B1 before it: write one"),
        ("0SEND_F1,", "", r"^mine.csv:2: device 1: cell 4: 1RECV_F1 waits for ever: 0SEND_F1 is missing on device 0: write it"),
        ("1SEND_B0,", "", r"^mine.csv:1: device 0: cell 6: 0RECV_B0 waits for ever: 1SEND_B0 is missing on device 1"),
        ("1F0,", "1F0,1SEND_F0,", r"^mine.csv:2: device 1: cell 4: 1SEND_F0 leads nowhere: stages are 0\.\.1, so delete it"),
        ("1F0,", "1F0,0SEND_F1,", r"0SEND_F1 stands twice"),
        (
            "0RECV_B1,",
            "1RECV_F7,0RECV_B1,",
            r"cell 8: 1RECV_F7 is beyond stages 0\.\.1 and micro-batches 0\.\.1: number them from 0",
        ),
        ("0RESHARD", "0RESHARD,1RESHARD", r"cell 12: 1RESHARD stands on device 0, but its stage on device 1: move it there"),
        ("0UNSHARD,", "", r"cell 10: 0RESHARD stands where stage 0 is not gathered: delete it, or put 0UNSHARD before it"),
        (
            "0UNSHARD,",
            "0UNSHARD,0UNSHARD,",
            r"cell 2: 0UNSHARD stands where stage 0 is gathered already: delete it, or put 0RESHARD",
        ),
        (
            "0RECV_B1,",
            "0RECV_B1,0RESHARD,",
            r"cell 12: 0RESHARD stands where stage 0 is not gathered",
        ),
        (
            "0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD",
            "0RESHARD,0RECV_B1,0B1,0REDUCE_GRAD",
            r"^mine.csv:1: device 0: 0B1 stands where the weights of stage 0 are not gathered: put 0UNSHARD before it, and",
        ),
        ("0SEND_F0", "0SENDF0", r"^mine.csv:1: device 0: cell 3: '0SENDF0': action 'SENDF' is unknown: did you mean SEND_F\?"),
    ],
)
def test_a_fault_is_one_line_with_its_cell(before: str, after: str, message: str) -> None:
    assert before in WHOLE
    with pytest.raises(FormatError, match=message) as error:
        read(WHOLE.replace(before, after, 1))

    assert "\n" not in str(error.value)


def test_transfers_between_stages_of_one_device_are_refused() -> None:
    with pytest.raises(FormatError, match=r"cell 5: 1SEND_F0 leads to stage 2, which is on the same device: torch hands over"):
        read(SPLIT_V.replace("1F0,2F0", "1F0,1SEND_F0,2F0"))


def test_an_activation_is_not_taken_for_a_gradient() -> None:
    """Stages 0 and 2 share a device, so that stage 1 receives both from it."""
    first = "0F0,0SEND_F0,2RECV_F0,2F0,2B0,2SEND_B0,2REDUCE_GRAD,0RECV_B0,0B0,0REDUCE_GRAD\n"
    read(f"{first}1RECV_F0,1F0,1SEND_F0,1RECV_B0,1B0,1SEND_B0,1REDUCE_GRAD\n")

    with pytest.raises(
        FormatError, match=r"device 1: cell 1: 1RECV_B0 stands where device 0 sends 0SEND_F0: torch would take one for"
    ):
        read(f"{first}1RECV_B0,1RECV_F0,1F0,1SEND_F0,1B0,1SEND_B0,1REDUCE_GRAD\n")


def test_a_missing_micro_batch_is_named() -> None:
    with pytest.raises(ProgramError, match=r"^mine.csv:2: device 1: 1F1 has no gradient: 1B1 is missing \(micro-batches 0\.\.1\)"):
        read(WHOLE.replace("1B1,1SEND_B1,", ""))


def test_a_circle_is_named() -> None:
    rows = "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1,0REDUCE_GRAD\n1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1,"

    with pytest.raises(DeadlockError, match=r"^mine.csv:1: deadlock: device 0: 0B0 waits for 1B0; device 1: 1F1 waits for 0F1"):
        read(f"{rows}1REDUCE_GRAD\n")


def test_a_stage_on_two_devices_is_refused() -> None:
    with pytest.raises(FormatError, match=r"^mine.csv: stage 0 runs on several devices, but with torch's communication"):
        read("0F0,0B0,0REDUCE_GRAD\n0F1,0B1\n")


def test_communication_of_several_mini_batches_is_refused() -> None:
    with pytest.raises(FormatError, match=r"^mine.csv: communication of torch belongs to one mini-batch, but 2 are asked for"):
        read(WHOLE, num_micro_batches=1)


@st.composite
def spoilt(draw: st.DrawFn) -> str:
    """Change some cells of a whole file: take away, double, exchange, rename, renumber, move to the other device."""
    rows = [row.split(",") for row in draw(st.sampled_from([WHOLE, SPLIT_V])).splitlines()]
    for _ in range(draw(st.integers(1, 3))):
        row = rows[draw(st.integers(0, 1))]
        if not row:
            continue
        at, other = (draw(st.integers(0, len(row) - 1)) for _ in range(2))
        change = draw(st.sampled_from(["delete", "double", "exchange", "word", "number", "move"]))
        if change == "delete":
            row.pop(at)
        elif change == "double":
            row.insert(other, row[at])
        elif change == "exchange":
            row[at], row[other] = row[other], row[at]
        elif change == "word":
            row[at] = re.sub("[A-Z_]+", draw(st.sampled_from(["F", "B", "I", "W", "U", *Communication])), row[at])
        elif change == "number":
            row[at] = re.sub(r"\d+", str(draw(st.sampled_from([0, 1, 2, 3, 7, 99999999]))), row[at], count=draw(st.integers(0, 1)))
        else:
            rows[draw(st.integers(0, 1))].append(row.pop(at))
    return "\n".join(",".join(row) for row in rows)


@pytest.mark.law
@given(spoilt())
def test_whatever_is_wrong_is_said_in_one_line_or_does_no_harm(text: str) -> None:
    """A file that is read is a program that compiles and is written again, or one whose fault that explains."""
    said = ""
    try:
        said = print_torch_communication(compile_program(read(text)).program).splitlines()[0]
    except SchedirError as error:
        said = str(error)

    assert said
    assert "\n" not in said

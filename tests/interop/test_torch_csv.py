"""CSV as torch.distributed.pipelining writes it: the rows, what is skipped, what is wrong with single cells and counts."""

import pytest
from hypothesis import assume, given

from schedir.compiler import compile_program
from schedir.errors import FormatError
from schedir.interop.torch_csv import parse_torch_csv, print_torch_csv
from schedir.ir.action import Kind
from schedir.ir.notation.header import Header
from schedir.ir.program import Program
from schedir.ir.weights import Rule, WeightRule
from tests.programs import lane_of, written
from tests.strategies import written_programs

# torch 2.13, interleaved, 2 ranks x 2 stages, rank 0 (notes on torch.distributed.pipelining); rank 1 from the same schedule.
INTERLEAVED = """\
0F0,0F1,2F0,2F1,,,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,,2B2,,2B3,,0B2,,0B3
,1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,,1B2,,1B3
"""

# torch 2.13, ZB-V, rank 0 of 2, the same source: split and whole halves mixed on stages 0 and 3.
ZERO_BUBBLE_V = "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,3F2,3I2,3W2,0I1,0W1,0I2,0W2\n"


def read(text: str, **shape: int) -> Program:
    return parse_torch_csv(text, Header("file", **shape), "zigzag.csv")  # type: ignore[arg-type] # counts only


def test_a_schedule_of_torch_is_read_without_its_idle_cells() -> None:
    program = read(INTERLEAVED)

    assert " ".join(map(str, program.order(0))) == "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3"
    assert (program.num_stages, program.num_devices, program.num_micro_batches, program.num_mini_batches) == (4, 2, 4, 1)
    compile_program(program)


def test_a_split_backward_is_read() -> None:
    rank_1 = "1F0,2F0,2I0,2W0,1I0,1W0,1F1,2F1,2I1,2W1,1I1,1W1,1F2,2F2,2I2,2W2,1I2,1W2\n"

    graph = compile_program(read(ZERO_BUBBLE_V + rank_1))

    assert lane_of(graph, 0).startswith("0F0 0F1 0F2 3F0 3I0 3W0 3F1")


def test_a_pair_is_read_and_written() -> None:
    text = "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n"

    assert print_torch_csv(read(text)) == text


def test_rows_are_written_ragged_and_without_idle_cells() -> None:
    assert print_torch_csv(written("0F0 0B0 0F1 0B1", "1F0 1B0", m=2)) == "0F0,0B0,0F1,0B1\n1F0,1B0\n"


def test_what_torch_does_not_have_is_left_out() -> None:
    program = written("0F0 0R0 (0F1;0B0)OVERLAP_F_B 0R1 0B1 0U1", "1F0 1U0 1B0", m=2)

    assert print_torch_csv(program) == "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0\n"


@given(written_programs())
def test_what_torch_has_reads_back(program: Program) -> None:
    left_out = {Kind.UPDATE.letter, Kind.RECOMPUTE.letter}
    orders = [[str(entry) for entry in order] for order in program.orders()]
    kept = [[cell for cell in order if "OVERLAP" in cell or not left_out & set(cell)] for order in orders]
    while kept and not kept[-1]:
        kept.pop()  # rows without cells at the end of a file are no devices
    if kept:
        assert [[str(entry) for entry in order] for order in _read_unless_misnumbered(print_torch_csv(program)).orders()] == kept


def _read_unless_misnumbered(text: str) -> Program:
    """Read, but draw again where forwards happen to be numbered 1..m beside backwards 0..m - 1, the one thing that is refused."""
    try:
        return parse_torch_csv(text, Header("file"))
    except FormatError as error:
        assume("numbers its forwards" not in str(error))
        raise


def test_counts_and_weights_that_are_given_hold() -> None:
    header = Header("mine", num_micro_batches=2, weights=WeightRule(Rule.STASH))

    program = parse_torch_csv(INTERLEAVED, header)

    assert (program.name, program.num_micro_batches, program.num_mini_batches, program.weights.rule) == ("mine", 2, 2, Rule.STASH)


def test_the_other_count_follows_from_the_one_that_is_given() -> None:
    assert read(INTERLEAVED, num_mini_batches=4).num_micro_batches == 1
    assert read(INTERLEAVED, num_micro_batches=1).num_mini_batches == 4


def test_spaces_quotes_and_line_ends_of_spreadsheets_do_not_matter() -> None:
    assert read(' 0F0 ,"0B0"\r\n1F0, 1B0,,\r\n\r\n,,\r\n') == read("0F0,0B0\n1F0,1B0\n")


def test_every_device_remembers_its_line() -> None:
    program = read("0F0,0B0\n1F0,1B0\n")

    assert program.origin is not None
    assert program.origin.place(1) == "zigzag.csv:2: "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0,,0F1_oops\n", r"^zigzag.csv:1: device 0: cell 3: '0F1_oops' has '_oops' behind 0F1, which torch "),
        ("0F0,0B0\n1F0,1B0,1F0\n", r"^zigzag.csv:2: device 1: cell 3: 1F0 stands twice, first at zigzag.csv:2: device 1: cell 1"),
        ("0F0,0B0\n0F0,0B0\n", r"^zigzag.csv:2: device 1: cell 1: 0F0 stands twice, first at zigzag.csv:1: device 0: cell 1"),
        (
            "0F0,0B0,0F9000000,0B9000000\n",
            r"^zigzag.csv: 1 stages x 9000001 micro-batches need 9000001 forwards, but 4 actions are",
        ),
        ("0F\n", r"^zigzag.csv:1: device 0: cell 1: '0F' has no micro-batch: write "),
        ("0F0;0B0\n", r"^zigzag.csv:1: device 0: cell 1: '0F0;0B0' has ';0B0' behind 0F0"),
        ("(0F1;0B0)OVERLAP_F_B_x\n", r"^zigzag.csv:1: device 0: cell 1: '\(0F1;0B0\)OVERLAP_F_B_x' is no action"),
        ("(0F1;0F0)OVERLAP_F_B\n", r"^zigzag.csv:1: device 0: cell 1: '\(0F1;0F0\)OVERLAP_F_B' overlaps 0F1 and 0F0: a pair is"),
        ("", r"^zigzag.csv has no actions: one row of cells like 0F0 is needed for each device"),
        ("\n,,\n", r"^zigzag.csv has no actions"),
        ('0F0,0B0\n1F0,"1B0\n', r"^zigzag.csv:2: this is no CSV: unexpected end of data"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_with_its_place(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message) as error:
        read(text)

    assert "\n" not in str(error.value)


def test_given_counts_that_are_too_small_are_refused_with_the_cell() -> None:
    with pytest.raises(FormatError, match=r"^zigzag.csv:1: device 0: cell 3: 0F1 has micro-batch 1, but the shape says 0\.\.0"):
        read("0F0,0B0,0F1,0B1\n", num_micro_batches=1, num_mini_batches=1)


# torch 2.13: Schedule1F1B.pipeline_order of 2 ranks x 4 micro-batches, as it stands there: rank 1 counts its forwards from 1, and
# REDUCE_GRAD is in although sends are not.
SCHEDULE_1F1B = """\
0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3,0REDUCE_GRAD
1F1,1B0,1F2,1B1,1F3,1B2,1F4,1B3,1REDUCE_GRAD
"""


@pytest.mark.parametrize("shape", [{}, {"num_micro_batches": 4}, {"num_micro_batches": 4, "num_mini_batches": 1}])
def test_forwards_numbered_from_1_are_found_out(shape: dict[str, int]) -> None:
    with pytest.raises(
        FormatError,
        match=r"^zigzag.csv:2: device 1: stage 1 numbers its forwards 1\.\.4, but its backwards 0\.\.3, as torch's Schedule1F1B",
    ):
        read(SCHEDULE_1F1B, **shape)


def test_reductions_without_transfers_are_read() -> None:
    mended = SCHEDULE_1F1B.replace("1F1,1B0,1F2,1B1,1F3,1B2,1F4", "1F0,1B0,1F1,1B1,1F2,1B2,1F3")

    assert " ".join(map(str, read(mended).order(1))) == "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"


def test_counts_that_are_not_those_of_the_file_are_refused() -> None:
    with pytest.raises(FormatError, match=r"^zigzag.csv: micro-batches 0\.\.3 are written, 4 in all, but 2 x 3 are asked for"):
        read(INTERLEAVED, num_micro_batches=3)
    with pytest.raises(FormatError, match=r"^zigzag.csv: micro-batches 0\.\.3 are written, 4 in all, but 1 x 8 are asked for"):
        read(INTERLEAVED, num_micro_batches=8)

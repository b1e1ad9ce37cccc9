"""Programs as text: what is printed, that it reads back, and what wrong texts say."""

from dataclasses import replace

import pytest
from hypothesis import given

from schedir.errors import FormatError
from schedir.ir.action import Kind
from schedir.ir.notation.header import Header
from schedir.ir.notation.printing import print_program
from schedir.ir.notation.text import SAMPLE, has_header, parse_program, parse_rows
from schedir.ir.program import Program
from schedir.ir.weights import BackwardWeights, Rule, WeightRule
from schedir.schedules.registry import build_program
from tests.programs import written
from tests.strategies import written_programs

ZIGZAG = """\
schema = "schedir.program/1"
name = "zigzag"
num_stages = 2
num_devices = 2
num_micro_batches = 4
num_mini_batches = 1
weights = "latest"
device 0: 0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3
device 1: 1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"""

PAIRS = """\
schema = "schedir.program/1"
name = "written"
num_stages = 4
num_devices = 2
num_micro_batches = 2
num_mini_batches = 1
weights = "latest"
device 0: 0F0 0F1 (0F2;3B1)OVERLAP_F_B 0I1 0W1 0R0 0U1
device 1:"""


def test_a_program_prints_its_header_and_one_line_a_device() -> None:
    program = written("0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3", "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3", m=4)

    assert print_program(program).splitlines()[2:] == ZIGZAG.splitlines()[2:]
    assert str(program) == print_program(program)


def test_a_written_program_is_read() -> None:
    program = parse_program(ZIGZAG)

    assert program.name == "zigzag"
    assert [str(action) for action in program.order(1)] == ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2", "1F3", "1B3"]
    assert (program.num_stages, program.num_devices, program.num_micro_batches, program.num_mini_batches) == (2, 2, 4, 1)
    assert program.weights == WeightRule(Rule.LATEST)


def test_pairs_halves_updates_and_recomputations_print_as_they_stand() -> None:
    program = written("0F0 0F1 (0F2;3B1)OVERLAP_F_B 0I1 0W1 0R0 0U1", "", m=2, stages=4)

    assert print_program(program) == PAIRS


def test_a_weight_rule_prints_with_its_options() -> None:
    rule = WeightRule(Rule.PREDICT, "exact", BackwardWeights.STASH)
    lines = print_program(written("0F0 0B0", m=1, weights=rule)).splitlines()

    assert lines[6:9] == ['weights = "predict"', 'horizon = "exact"', 'backward_weights = "stash"']


@given(written_programs())
def test_every_program_reads_back(program: Program) -> None:
    assert parse_program(print_program(program)) == program


def test_comments_empty_lines_and_spaces_do_not_matter() -> None:
    spaced = "# by hand\n\n" + ZIGZAG.replace(" = ", "=").replace("0F1", "  0F1 ").replace("\n", "\r\n") + "\n\n"

    assert parse_program(spaced) == parse_program(ZIGZAG)


def test_what_stands_behind_a_hash_is_a_comment_as_in_toml() -> None:
    said = (
        ZIGZAG.replace("num_stages = 2", 'num_stages = 2  # two halves, see "notes"')
        .replace('weights = "latest"', 'weights = "latest"# it flushes')
        .replace("device 1:", "   # the second half\ndevice 1:")
        .replace("1B3", "1B3 # 1B4 would come next")
    )

    assert parse_program(said) == parse_program(ZIGZAG)


@pytest.mark.parametrize("name", ["run #7", 'a "quoted" # name', "ends with \\", "#"])
def test_a_hash_in_quotes_is_part_of_the_name(name: str) -> None:
    program = replace(parse_program(ZIGZAG), name=name)

    assert parse_program(print_program(program)).name == name
    assert parse_program(print_program(program).replace("num_stages", "# a comment\nnum_stages")) == program


def test_a_quote_that_is_never_closed_is_what_is_wrong_not_the_comment() -> None:
    with pytest.raises(FormatError, match=r"""^line 2: name: '"zig # zag' is no value: write a number or a text in "quotes"$"""):
        parse_program(ZIGZAG.replace('"zigzag"', '"zig # zag'))


def test_a_comment_does_not_move_the_column_of_what_is_wrong_before_it() -> None:
    with pytest.raises(FormatError, match=r"^line 8: device 0: column 15: '0F1_oops' is no action"):
        parse_program(ZIGZAG.replace("0F1", "0F1_oops").replace("device 1", "# 0F9\ndevice 1").replace("0B3", "0B3 # 0F9"))


def test_rows_of_actions_take_comments_too() -> None:
    rows = "# mine\n0F0 0F1 0B0 0B1  # device 0\n\n1F0 1B0 1F1 1B1# device 1\n"
    program = parse_rows(rows, Header("mine"))

    assert [len(program.order(device)) for device in (0, 1)] == [4, 4]
    assert has_header(f"# {SAMPLE}\n{ZIGZAG}")
    assert not has_header(rows)


def test_a_program_remembers_where_it_stood_without_being_another() -> None:
    program = parse_program(ZIGZAG, "zigzag.txt")

    assert program.origin is not None
    assert program.origin.place(1) == "zigzag.txt:9: "
    assert program.origin.place() == "zigzag.txt: "
    assert program == parse_program(ZIGZAG)
    assert hash(program) == hash(parse_program(ZIGZAG))


def test_a_long_program_reads_back() -> None:
    program = build_program("gpipe", num_devices=8, num_micro_batches=2048)

    found = parse_program(print_program(program))

    assert found == program
    assert found.kind.tolist().count(Kind.FORWARD) == 8 * 2048


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0F1", "0F1_oops", r"zigzag.txt:8: device 0: column 15: '0F1_oops' is no action: write "),
        ("1F2", "(1F2;1F3)OVERLAP_F_B", r"zigzag.txt:9: device 1: column 27: .* a pair is one F and one B or I"),
        ("0F1", "0F0", r"zigzag.txt:8: device 0: column 15: 0F0 stands twice, first at zigzag.txt:8: device 0: column 11"),
        ("1F3", "0F3", r"zigzag.txt:9: device 1: column 35: 0F3 stands twice, first at zigzag.txt:8: device 0: column 31"),
        ("0F3", "0F4", r"zigzag.txt:8: device 0: column 31: 0F4 has micro-batch 4, but the shape says 0..3"),
        ("1F3", "2F3", r"zigzag.txt:9: device 1: column 35: 2F3 has stage 2, but the shape says 0..1"),
        ("1F3", "1F99999999999", r"zigzag.txt:9: device 1: column 35: '1F99999999999' has a number of more than nine digits"),
        ("device 1:", "device 2:", r"zigzag.txt:9: device 2 stands where device 1 is expected"),
        (
            "device 1:",
            "gpu 1:",
            r"zigzag.txt:9: 'gpu 1: 1F0 .*' is neither 'key = value' nor 'device N: actions', like 'device 0: 0F0 0F1 0B0 0B1'",
        ),
        ("num_devices = 2", "num_devices = 3", r"zigzag.txt:4: num_devices is 3, but 2 devices have a line 'device N: actions'"),
        ("num_devices = 2", "num_devices = 2.5", r"zigzag.txt:4: num_devices 2.5 must be an integer from 1 to 999999999"),
        ("num_stages = 2", "num_stages = 0", r"zigzag.txt:3: num_stages 0 must be an integer from 1"),
        ("num_stages = 2", "num_stages = true", r"zigzag.txt:3: num_stages True must be an integer from 1"),
        (
            "num_stages = 2",
            "num_stages = two",
            r"zigzag.txt:3: num_stages: 'two' is no value: write a number or a text in",
        ),
        ("num_stages = 2", "num_stages = NaN", r"zigzag.txt:3: num_stages nan must be an integer from 1"),
        ("num_stages = 2\n", "", r"^zigzag.txt: num_stages must stand above 'device 0:'$"),
        ("num_stages", "num_stage", r"zigzag.txt:3: key 'num_stage' is unknown: did you mean num_stages\?"),
        ("num_stages = 2", "name = 'x'", r"zigzag.txt:3: name stands twice, first on line 2: give it once"),
        ('"zigzag"', "7", r"zigzag.txt:2: name 7 must be a text in \"quotes\""),
        (
            '"latest"',
            '"newest"',
            r"zigzag.txt:7: weights 'newest' is unknown: use latest, current, stash, ",
        ),
        ('"latest"', '"stash"\nhorizon = "exact"', r"zigzag.txt:8: horizon exact needs weights 'predict', but weights are 'stash'"),
        ('"latest"', '"predict"\nhorizon = "far"', r"zigzag.txt:8: horizon 'far' is unknown: use exact, "),
        ("program/1", "program/2", r"zigzag.txt:1: schema is 'schedir.program/2', but a program has 'schedir.program/1'"),
        ('schema = "schedir.program/1"\n', "", r"^zigzag.txt: schema is missing: write schema = \"schedir.program/1\" on top$"),
        ("1B3", "1B3\nname = 'x'", r"zigzag.txt:10: name stands twice"),
        ("1B3", "1B3\nhorizon = 1", r"zigzag.txt:10: horizon stands behind the orders: write it above 'device 0:'"),
    ],
)
def test_a_wrong_text_is_refused_in_one_line_with_its_place(old: str, new: str, message: str) -> None:
    with pytest.raises(FormatError, match=message) as error:
        parse_program(ZIGZAG.replace(old, new, 1), "zigzag.txt")

    assert "\n" not in str(error.value)


def test_without_a_file_the_line_is_named() -> None:
    with pytest.raises(FormatError, match=r"^line 8: device 0: column 15: '0F1_oops' is no action"):
        parse_program(ZIGZAG.replace("0F1", "0F1_oops"))


def test_an_update_of_replicas_may_stand_on_each_of_their_devices() -> None:
    program = written("0F0 0B0 0U1", "0F1 0B1 0U1", m=1, n=2, stages=1, weights=Rule.STASH)

    assert parse_program(print_program(program)) == program


def test_an_update_that_stands_twice_on_a_device_is_refused() -> None:
    with pytest.raises(FormatError, match="0U0 stands twice, first at line 8"):
        parse_program(print_program(written("0F0 0B0 0U0 0U0", m=1)))

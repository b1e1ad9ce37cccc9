"""Programs in TOML: the example of the formats page, what may be left out, what wrong files say."""

import tomllib

import pytest
from hypothesis import given

from schedir.errors import FormatError
from schedir.interop.program_toml import parse_program_toml, print_program_toml
from schedir.ir.program import Program
from schedir.ir.weights import BackwardWeights, Rule, WeightRule
from tests.programs import written
from tests.strategies import written_programs

ZIGZAG = """\
schema = "schedir.program/1"
name = "zigzag"
num_devices = 2
num_stages = 2
num_micro_batches = 4
num_mini_batches = 1
weights = "latest"                  # latest | current | stash | vertical-sync | double-buffer | predict
order = [
  "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3",    # device 0
  "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3",    # device 1
]
"""


def read(text: str) -> Program:
    return parse_program_toml(text, "zigzag", "zigzag.toml")


def test_the_example_is_read() -> None:
    program = read(ZIGZAG)

    assert program.name == "zigzag"
    assert [" ".join(map(str, order)) for order in program.orders()] == [
        "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3",
        "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3",
    ]


def test_only_schema_and_order_must_be_there() -> None:
    program = parse_program_toml('schema = "schedir.program/1"\norder = ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]\n', "short")

    assert (program.name, program.num_stages, program.num_devices) == ("short", 2, 2)
    assert (program.num_micro_batches, program.num_mini_batches, program.weights) == (2, 1, WeightRule())


def test_a_file_without_orders_is_refused() -> None:
    with pytest.raises(FormatError, match=r"^zigzag.toml: order is missing: a list with one text of actions for each device$"):
        read('schema = "schedir.program/1"\n')


def test_an_order_may_be_a_list_of_cells() -> None:
    text = 'schema = "schedir.program/1"\norder = [["0F0", "0B0"], ["1F0", "1B0"]]\n'

    assert [str(entry) for entry in read(text).order(1)] == ["1F0", "1B0"]


def test_a_prediction_rule_is_read_with_its_options() -> None:
    options = 'weights = "predict"\nhorizon = 2\nbackward_weights = "stash"'

    assert read(ZIGZAG.replace('weights = "latest"', options)).weights == WeightRule(Rule.PREDICT, 2, BackwardWeights.STASH)


def test_a_program_is_written_as_people_write_it() -> None:
    text = print_program_toml(written("0F0 0F1 0B0 0B1", "1F0 1B0", m=2))

    assert text.splitlines()[-4:] == [
        "order = [",
        '  "0F0 0F1 0B0 0B1",  # device 0',
        '  "1F0 1B0",          # device 1',
        "]",
    ]
    assert tomllib.loads(text)["order"] == ["0F0 0F1 0B0 0B1", "1F0 1B0"]


@given(written_programs())
def test_every_program_reads_back(program: Program) -> None:
    assert parse_program_toml(print_program_toml(program), "another name") == program


@pytest.mark.parametrize("device", [0, 1])
def test_every_device_remembers_its_line(device: int) -> None:
    origin = read(ZIGZAG).origin

    assert origin is not None
    assert origin.place(device) == f"zigzag.toml:{9 + device}: "


def test_lines_are_found_where_orders_repeat_each_others_text() -> None:
    origin = read('schema = "schedir.program/1"\nname = "0F0 0B0"\norder = [\n\n  "0F0 0B0",\n  "0F1 0B1", "0F2 0B2",\n]\n').origin

    assert origin is not None
    assert origin.lines == (5, 6, 6)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1F1", "1F1_oops", r"^zigzag.toml:10: device 1: action 3: '1F1_oops' is no action: write "),
        ("1F1", "1F0", r"^zigzag.toml:10: device 1: action 3: 1F0 stands twice, first at zigzag.toml:10: device 1: action 1"),
        ("1F3", "1F4", r"^zigzag.toml:10: device 1: action 7: 1F4 has micro-batch 4, but the shape says 0\.\.3"),
        ("num_stages = 2", "num_stage = 2", r"^zigzag.toml:4: key 'num_stage' is unknown: did you mean num_stages\?"),
        ("order", "oder", r"^zigzag.toml:8: key 'oder' is unknown: did you mean order\?"),
        ("num_devices = 2", "num_devices = 3", r"^zigzag.toml:3: num_devices is 3, but order has 2 entries: one for each device"),
        ("num_devices = 2", "num_devices = 0", r"^zigzag.toml:3: num_devices 0 must be an integer from 1"),
        ("num_devices = 2", 'num_devices = "2"', r"^zigzag.toml:3: num_devices '2' must be an integer from 1"),
        ("num_devices = 2", "num_devices = ", r"^zigzag.toml:3: column 15: this is no TOML: Invalid value"),
        ("num_devices = 2", "name = 2", r"^zigzag.toml:3: column 9: this is no TOML: Cannot overwrite a value"),
        ('"latest"', '"newest"', r"^zigzag.toml:7: weights 'newest' is unknown: use latest, current, "),
        ('schema = "schedir.program/1"\n', "", r"^zigzag.toml: schema is missing: write schema = \"schedir.program/1\" on top"),
        (
            "program/1",
            "costs/1",
            r"^zigzag.toml:1: schema is 'schedir.costs/1', but a program has 'schedir.program/1'",
        ),
        ("]\n", "", r"^zigzag.toml:11: this is no TOML: .*end of document"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_with_its_place(old: str, new: str, message: str) -> None:
    with pytest.raises(FormatError, match=message) as error:
        read(ZIGZAG.replace(old, new, 1))

    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("7", 'zigzag.toml:2: order must be a list with one text like "0F0 0B0" for each device'),
        ("[]", "zigzag.toml:2: order must be a list"),
        ('"0F0 0B0"', "zigzag.toml:2: order must be a list"),
        ("[7]", 'zigzag.toml:2: device 0: 7 must be a text like "0F0 0B0"'),
        ('[["0F0", 7]]', r"zigzag.toml:2: device 0: \['0F0', 7\] must be a text"),
    ],
)
def test_an_order_of_another_form_is_refused(order: str, message: str) -> None:
    with pytest.raises(FormatError, match=f"^{message}"):
        read(f'schema = "schedir.program/1"\norder = {order}\n')

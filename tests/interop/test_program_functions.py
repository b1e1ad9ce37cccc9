"""Programs from functions in a user's file or package."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schedir.compiler import load_program
from schedir.errors import ArgumentError, FormatError, RefusedError
from schedir.ir.program import Program

FUNCTIONS = """
import neighbour
from schedir.errors import RefusedError
from schedir.ir.action import Action, Kind, Overlapped
from schedir.ir.program import Program


def by_shape(shape, twist=False):
    orders = [[Action(s, kind, j) for kind in (Kind.FORWARD, Kind.BACKWARD) for j in range(shape.total_micro_batches)]
              for s in range(shape.num_stages)]
    return Program.from_orders("twisted" if twist else "plain", orders, num_stages=shape.num_stages,
                               num_micro_batches=shape.num_micro_batches, num_mini_batches=shape.num_mini_batches)


def by_counts(num_devices, num_micro_batches):
    return [" ".join(f"{d}{kind}{j}" for kind in "FB" for j in range(num_micro_batches)) for d in range(num_devices)]


def fixed():
    return [[Action(0, Kind.FORWARD, 0), Overlapped(Action(0, Kind.FORWARD, 1), Action(0, Kind.BACKWARD, 0)), "0B1"]]


def anything(**options):
    return [f"0F0 0B0"] if options == {"num_devices": 1, "depth": 3} else []


def breaks(num_devices):
    return [][num_devices]


def refuses(num_devices):
    raise RefusedError("it needs an even number of devices")


def returns_a_number():
    return 7


def returns_numbers():
    return [7]


def wrong_cell():
    return ["0F0 0F1_oops"]


def counts_all(num_mini_batches):
    return [" ".join(f"0F{j} 0B{j}" for j in range(num_mini_batches))]


not_a_function = 3
depth = neighbour.DEPTH
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a folder with a file of functions, its neighbour, and files that cannot be imported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    (tmp_path / "neighbour.py").write_text("DEPTH = 1\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "lonely.py").write_text("import a_package_that_is_not_there\n")
    yield tmp_path
    for name in ("mine", "neighbour", "lonely", "_schedir_mine", "_schedir_lonely", "_schedir_leaves"):
        sys.modules.pop(name, None)


def orders(program: Program) -> list[str]:
    return [" ".join(map(str, order)) for order in program.orders()]


def test_a_function_of_a_file_gets_the_shape() -> None:
    program = load_program("mine.py:by_shape", num_devices=2, num_micro_batches=2, num_mini_batches=2)

    assert orders(program) == ["0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3", "1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3"]
    assert (program.name, program.num_micro_batches, program.num_mini_batches) == ("plain", 2, 2)


def test_a_function_gets_the_counts_that_it_names() -> None:
    program = load_program("mine.py:by_counts", num_devices=2, num_micro_batches=2)

    assert orders(program) == ["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"]
    assert program.name == "by_counts"


def test_a_function_that_knows_of_one_mini_batch_is_repeated() -> None:
    program = load_program("mine.py:by_counts", num_devices=1, num_micro_batches=2, num_mini_batches=2)

    assert orders(program) == ["0F0 0F1 0B0 0B1 0F2 0F3 0B2 0B3"]
    assert program.num_mini_batches == 2


def test_a_function_that_takes_mini_batches_returns_them_all() -> None:
    assert orders(load_program("mine.py:counts_all", num_mini_batches=3)) == ["0F0 0B0 0F1 0B1 0F2 0B2"]


def test_a_function_gets_its_own_options() -> None:
    assert load_program("mine.py:by_shape", num_devices=1, num_micro_batches=1, twist=True).name == "twisted"
    assert orders(load_program("mine.py:anything", num_devices=1, depth=3)) == ["0F0 0B0"]


def test_orders_may_be_actions_pairs_and_cells() -> None:
    assert orders(load_program("mine.py:fixed")) == ["0F0 (0F1;0B0)OVERLAP_F_B 0B1"]


def test_orders_take_the_weights_that_are_given() -> None:
    program = load_program(
        "mine.py:by_counts", num_devices=1, num_micro_batches=2, num_mini_batches=None, weights="predict", horizon="2"
    )

    assert (str(program.weights), program.weights.horizon) == ("predict", 2)


def test_a_module_is_found_from_the_working_folder() -> None:
    assert orders(load_program("mine:by_counts", num_devices=1, num_micro_batches=1)) == ["0F0 0B0"]


def test_the_path_is_left_as_it_was() -> None:
    before = list(sys.path)

    load_program("mine:fixed")

    assert sys.path == before


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("mine.py:by_shape", {"num_devices": 2}, r"^mine.py:by_shape needs num_micro_batches: give it$"),
        ("mine.py:by_counts", {"num_micro_batches": 2}, r"^mine.py:by_counts needs num_devices: give it$"),
        (
            "mine.py:by_shape",
            {"num_devices": 1, "num_micro_batches": 1, "twst": 1},
            r"option 'twst' is unknown: did you mean twist\?",
        ),
        ("mine.py:fixed", {"depth": 1}, r"^mine.py:fixed: option 'depth' is unknown: there is none$"),
        (
            "mine.py:fixed",
            {"num_devices": 2},
            r"^num_devices 2 contradicts mine.py:fixed, which has 1: leave it out, or change the file$",
        ),
        (
            "mine.py:by_shape",
            {"num_devices": 1, "num_micro_batches": 1, "weights": "stash"},
            r"^weights stash contradicts .* has latest",
        ),
        ("mine.py:not_there", {}, r"^mine.py has no function 'not_there': give mine.py:FUNCTION with one of "),
        ("mine.py:not_a_function", {}, r"^mine.py has no function 'not_a_function'"),
        ("mine.py", {}, r"^mine.py may hold several functions: give mine.py:FUNCTION$"),
        ("nothing.here:f", {}, r"^nothing.here:f: there is no module 'nothing' here: check the name, or give FILE.py:FUNCTION$"),
    ],
)
def test_what_does_not_fit_the_function_is_refused(spec: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        load_program(spec, **options)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nothing.py:f", r"^nothing.py: no such file: give FILE.py:FUNCTION$"),
        ("broken.py:f", r"^broken.py:f raised SyntaxError: .* \(broken.py:1\): mend it there$"),
        (
            "lonely.py:f",
            r"^lonely.py:f raised ModuleNotFoundError: No module named 'a_package_that_is_not_there' .* install or mend it$",
        ),
        (
            "lonely:f",
            r"^lonely:f raised ModuleNotFoundError: No module named 'a_package_that_is_not_there' .* install or mend it$",
        ),
        ("leaves.py:f", r"^leaves.py:f raised SystemExit: 0 \(leaves.py:2 in <module>\): leave sys.exit out of what is loaded$"),
        ("mine.py:breaks", r"^mine.py:breaks raised IndexError: list index out of range \(mine.py:28 in breaks\): mend it there$"),
        (
            "mine.py:returns_a_number",
            r"^mine.py:returns_a_number returned '7': it must return a Program or a list with one order for",
        ),
        ("mine.py:returns_numbers", r"^mine.py:returns_numbers: device 0: 7 is no order: give a text or a list of actions$"),
        ("mine.py:wrong_cell", r"^mine.py:wrong_cell: device 0: action 2: '0F1_oops' is no action"),
    ],
)
def test_what_goes_wrong_inside_is_one_line_with_its_place(spec: str, message: str) -> None:
    options: dict[str, Any] = {"num_devices": 3} if "breaks" in spec else {}

    with pytest.raises(FormatError, match=message) as error:
        load_program(spec, **options)

    assert "\n" not in str(error.value)


def test_a_refusal_of_the_function_itself_comes_out_as_it_is() -> None:
    with pytest.raises(RefusedError, match=r"^it needs an even number of devices$"):
        load_program("mine.py:refuses", num_devices=3)

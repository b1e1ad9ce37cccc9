"""One way in for all forms of programs, and one way out."""

from pathlib import Path
from typing import Any

import pytest

from schedir.compiler import compile_program, find_program, load_program, save_program
from schedir.errors import ArgumentError, DeadlockError, FormatError, ProgramError, RefusedError
from schedir.interop.program_files import Form, names_program_file
from schedir.interop.torch_csv import print_torch_csv
from schedir.ir.program import Program
from schedir.ir.weights import Rule, WeightRule
from schedir.schedules.registry import build_program
from tests.programs import written


def _built(name: str, n: int | None = None) -> Program:
    return build_program(name, num_devices=4, num_micro_batches=8, num_mini_batches=n)


@pytest.mark.parametrize("suffix", [".toml", ".txt", ".TXT"])
def test_a_saved_program_is_loaded_as_it_was(tmp_path: Path, suffix: str) -> None:
    program = build_program("xpipe", num_devices=2, num_micro_batches=2, horizon="exact", backward_weights="stash")

    save_program(program, tmp_path / f"a{suffix}")

    assert load_program(tmp_path / f"a{suffix}") == program


def test_a_csv_is_loaded_with_the_counts_and_weights_that_it_lacks(tmp_path: Path) -> None:
    program = build_program("pipedream", num_devices=2, num_micro_batches=2, num_mini_batches=3)
    (tmp_path / "pipedream.csv").write_text(print_torch_csv(program))

    assert load_program(tmp_path / "pipedream.csv", num_micro_batches=2, weights="stash") == program
    assert load_program(str(tmp_path / "pipedream.csv"), num_mini_batches=3, weights="stash") == program
    assert load_program(tmp_path / "pipedream.csv").num_micro_batches == 6


def test_rows_of_actions_alone_are_a_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("# by hand\n0F0 0F1 0B0 0B1\n\n 1F0 1B0 1F1 1B1\n")
    program = load_program(path, weights="stash", num_micro_batches=1)

    assert program.name == "mine"
    assert [" ".join(map(str, order)) for order in program.orders()] == ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]
    assert (program.num_micro_batches, program.num_mini_batches, program.weights.rule) == (1, 2, Rule.STASH)


def test_what_is_no_action_in_a_row_is_shown_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("0F0 0B0\n1F0 nothing 1B0\n")

    with pytest.raises(FormatError, match=r"mine.txt:2: device 1: column 5: 'nothing' is no action"):
        load_program(path)


def test_a_csv_takes_a_prediction_rule(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("0F0,0B0\n")

    program = load_program(tmp_path / "a.csv", weights="predict", horizon="2", backward_weights="stash")

    assert program.weights == WeightRule(Rule.PREDICT, 2, program.weights.backward)
    assert program.weights.backward.value == "stash"


def test_a_byte_order_mark_of_a_spreadsheet_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf0F0,0B0\n")

    assert load_program(tmp_path / "a.csv").num_devices == 1


def test_what_the_verifier_finds_is_led_by_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line of formats/README.md."""
    monkeypatch.chdir(tmp_path)
    Path("zigzag.csv").write_text("0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1B3\n")

    with pytest.raises(
        ProgramError, match=r"^zigzag.csv:2: device 1: 1B3 waits for ever: 1F3 is missing \(micro-batches 0\.\.3\)$"
    ):
        compile_program(load_program("zigzag.csv"))


@pytest.mark.parametrize(
    "counts", [{"num_devices": 2}, {"num_micro_batches": 4, "num_mini_batches": 1, "stages_per_device": 1}, {}]
)
def test_options_that_agree_with_the_file_are_taken(tmp_path: Path, counts: dict[str, Any]) -> None:
    save_program(build_program("gpipe", num_devices=2, num_micro_batches=4), tmp_path / "a.toml")

    assert load_program(tmp_path / "a.toml", weights=None, **counts).num_devices == 2


@pytest.mark.parametrize("suffix", [".toml", ".txt", ".csv"])
def test_a_program_that_flushes_is_repeated_for_more_mini_batches(tmp_path: Path, suffix: str) -> None:
    save_program(build_program("1f1b", num_devices=2, num_micro_batches=3), tmp_path / f"1f1b{suffix}")

    found = load_program(tmp_path / f"1f1b{suffix}", num_mini_batches=4)
    assert found == build_program("1f1b", num_devices=2, num_micro_batches=3, num_mini_batches=4)
    assert load_program(tmp_path / f"1f1b{suffix}", num_micro_batches=3, num_mini_batches=4) == found


def test_a_file_of_several_mini_batches_is_repeated_whole_times_only(tmp_path: Path) -> None:
    save_program(build_program("gpipe", num_devices=2, num_micro_batches=1, num_mini_batches=2), tmp_path / "a.toml")

    assert load_program(tmp_path / "a.toml", num_mini_batches=6).num_mini_batches == 6
    with pytest.raises(ArgumentError, match=r"num_mini_batches 3 contradicts .*a.toml, which has 2"):
        load_program(tmp_path / "a.toml", num_mini_batches=3)


def test_a_file_that_does_not_flush_is_not_repeated(tmp_path: Path) -> None:
    save_program(build_program("xpipe", num_devices=2, num_micro_batches=1, num_mini_batches=4), tmp_path / "a.toml")

    with pytest.raises(ArgumentError, match=r"num_mini_batches 8 contradicts .*a.toml, which has 4"):
        load_program(tmp_path / "a.toml", num_mini_batches=8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_devices": 3}, r"num_devices 3 contradicts .*a.toml, which has 2: leave it out, or change the file"),
        ({"num_micro_batches": 2}, r"num_micro_batches 2 contradicts .*a.toml, which has 4"),
        ({"stages_per_device": 2}, r"stages_per_device 2 contradicts .*a.toml, which has 1"),
        ({"weights": "stash"}, r"weights stash contradicts .*a.toml, which has latest"),
        ({"horizon": "exact"}, r"horizon exact contradicts .*a.toml, which has None"),
        ({"num_devices": 2.5}, r"num_devices 2.5 must be an integer of at least 1"),
        ({"num_device": 2}, r"a.toml: option 'num_device' is unknown: did you mean num_devices\?"),
    ],
)
def test_options_that_contradict_the_file_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    save_program(build_program("gpipe", num_devices=2, num_micro_batches=4), tmp_path / "a.toml")

    with pytest.raises(ArgumentError, match=message):
        load_program(tmp_path / "a.toml", **options)


@pytest.mark.parametrize("options", [{"weights": "newest"}, {"weights": "predict", "backward_weights": "newest"}])
def test_unknown_weights_of_a_csv_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    (tmp_path / "a.csv").write_text("0F0,0B0\n")

    with pytest.raises(ArgumentError, match="weights 'newest' is unknown: use "):
        load_program(tmp_path / "a.csv", **options)


def test_a_name_that_would_change_the_screen_is_refused(tmp_path: Path) -> None:
    """A colour code of a terminal and a line end, as TOML may spell them."""
    file = tmp_path / "red.toml"
    file.write_text('schema = "schedir.program/1"\nname = "\\u001b[31m\\n x"\norder = ["0F0 0B0"]\n')

    with pytest.raises(
        FormatError, match=r"the program's name '\\x1b\[31m\\n x' holds characters that cannot be printed: rename it$"
    ):
        load_program(file)


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(FormatError, match=r"^nothing.csv: no such file: give a file .csv, .toml, .txt, FILE.py:FUNCTION"):
        load_program("nothing.csv")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").mkdir()

    with pytest.raises(FormatError, match=r"a.txt cannot be read: Is a directory"):
        load_program(tmp_path / "a.txt")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"name = \xff")

    with pytest.raises(FormatError, match=r"a.txt is no text: byte 7 is not UTF-8"):
        load_program(tmp_path / "a.txt")


@pytest.mark.parametrize("source", ["zigzag", "zigzag.xml"])
def test_what_names_no_program_is_refused(source: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{source} names no program: give a file .csv, .toml, .txt, FILE.py:FUNCTION or"):
        load_program(source)


def test_a_file_of_unknown_form_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"a.xml does not say the form of a program: end its name with .csv, .toml, .txt"):
        save_program(written("0F0 0B0", m=1), tmp_path / "a.xml")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (_built("pipedream"), r"^pipedream has the weight rule stash, but PyTorch's pipelining has one version of the weights"),
        (_built("xpipe"), r"^xpipe has the weight rule predict, but PyTorch's"),
        (_built("gpipe", n=2), r"^gpipe has 2 mini-batches, but PyTorch's pipelining runs one a step: give num_mini_batches 1"),
        (_built("chimera"), r"^chimera runs stage 0 on devices 0 and 3, but PyTorch's pipelining keeps a stage on one device"),
    ],
)
@pytest.mark.parametrize("form", ["compute-only", "compute-comms", None])
def test_what_torch_cannot_run_is_not_written_as_csv(tmp_path: Path, program: Program, message: str, *, form: str | None) -> None:
    with pytest.raises(RefusedError, match=message):
        save_program(program, tmp_path / "a.csv", form=form)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", [Form.COMPUTE_ONLY, Form.COMPUTE_COMMS])
def test_a_program_that_never_ends_is_not_written_as_csv(tmp_path: Path, form: Form) -> None:
    with pytest.raises(DeadlockError, match=r"^deadlock: device 0: 0B0 waits for 1B0; device 1: 1F1 waits for 0F1") as error:
        save_program(written("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1", m=2), tmp_path / "a.csv", form=form)

    assert "waits for ever" in error.value.grid
    assert list(tmp_path.iterdir()) == []


def test_a_form_that_is_given_decides(tmp_path: Path) -> None:
    program = build_program("gpipe", num_devices=2, num_micro_batches=1)

    save_program(program, tmp_path / "a.csv", form="compute-comms")

    assert (tmp_path / "a.csv").read_text() == (
        "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\n"
    )
    assert load_program(tmp_path / "a.csv").orders() == program.orders()


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("toml", r"form toml does not go into .*a.csv: end its name with .toml"),
        ("torch", r"form 'torch' is unknown: use text, toml, compute-only, compute-comms"),
    ],
)
def test_a_form_that_does_not_fit_is_refused(tmp_path: Path, form: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        save_program(written("0F0 0B0", m=1), tmp_path / "a.csv", form=form)


def test_a_folder_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"a.csv cannot be written: no such file or directory"):
        save_program(written("0F0 0B0", m=1), tmp_path / "missing" / "a.csv")


@pytest.mark.parametrize("source", ["a.csv", "b/a.TOML", "a.txt", "a.py", "a.py:f", "a.b:f", Path("a.csv")])
def test_files_and_functions_are_told_from_schedules(source: str | Path) -> None:
    assert names_program_file(source)
    assert not names_program_file("1f1b")


def test_one_function_finds_schedules_and_files(tmp_path: Path) -> None:
    program = build_program("1f1b", num_devices=2, num_micro_batches=3)
    save_program(program, tmp_path / "a.txt")

    assert find_program("1f1b", num_devices=2, num_micro_batches=3, num_mini_batches=None) == program
    assert find_program(tmp_path / "a.txt", num_devices=2) == program
    with pytest.raises(ArgumentError, match="schedule 1f1b needs num_micro_batches: give it"):
        find_program("1f1b", num_devices=2)

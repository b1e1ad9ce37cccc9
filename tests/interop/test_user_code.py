"""Functions of the user's are loaded with one line for whatever goes wrong, and the line of theirs that raised it is found."""

import json
import sys
from contextlib import chdir
from pathlib import Path

import pytest

from schedir.errors import ArgumentError, FormatError, RefusedError
from schedir.interop.user_code import guarded, load_function, users_place

FILE = """\
import json

def parse(text):
    return json.loads(text)

WORD = "a word"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "reads.py").write_text(FILE)
    return tmp_path


def test_a_file_and_a_module_of_the_working_directory_give_the_same_function(folder: Path) -> None:
    with chdir(folder):
        by_file, by_module = load_function("reads.py:parse"), load_function("reads:parse")
    sys.modules.pop("reads")

    assert by_file("[3]") == by_module("[3]") == [3]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("parse", r"^'parse' names no function: give FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION$"),
        ("reads.py:", r"^'reads.py:' names no function"),
        ("reads.py:a b", r"^'reads.py:a b' names no function"),
        ("reads.py:WORD", r"^reads.py has no function 'WORD': give reads.py:FUNCTION, not what is of type str$"),
        ("../up:parse", r"^'../up' is no module name"),
        ("nowhere.at_all:parse", r"^nowhere.at_all:parse: there is no module 'nowhere' here: check the name, or give FILE.py"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(folder: Path, place: str, message: str) -> None:
    with chdir(folder), pytest.raises(ArgumentError, match=message):
        load_function(place)


def test_a_file_that_is_not_there_or_no_file_is_refused(folder: Path) -> None:
    with pytest.raises(FormatError, match=r"gone.py: no such file: give FILE.py:FUNCTION$"):
        load_function(f"{folder}/gone.py:parse")
    (folder / "folder.py").mkdir()
    with pytest.raises(FormatError, match=r"folder.py: cannot be read: Is a directory: give FILE.py:FUNCTION$"):
        load_function(f"{folder}/folder.py:parse")


def test_a_file_that_failed_is_not_kept_as_a_module(folder: Path) -> None:
    (folder / "half.py").write_text("ONE = 1\nTWO = ONE / 0\n")
    with (
        chdir(folder),
        pytest.raises(FormatError, match=r"^half.py:f raised ZeroDivisionError: .* \(half.py:2 in <module>\): mend"),
    ):
        load_function("half.py:f")

    assert "_schedir_half" not in sys.modules


def test_the_users_line_is_named_not_that_of_the_library_that_they_call(folder: Path) -> None:
    with chdir(folder):
        parse = load_function("reads.py:parse")
        message = r"^reads.py:parse raised JSONDecodeError: .* \(reads.py:4 in parse\): mend it there$"
        with pytest.raises(FormatError, match=message), guarded("reads.py:parse"):
            parse("[")


def test_a_refusal_of_ours_comes_as_it_is() -> None:
    with pytest.raises(RefusedError, match=r"^an odd number$"), guarded("reads.py:parse"):
        raise RefusedError("an odd number")


def test_what_a_library_raises_for_nobody_has_no_line() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        exec(compile("json.loads('[')", "run.py", "exec"), {"__name__": "executor.run", "json": json})

    assert users_place(caught.value) == ""
    assert users_place(None) == ""

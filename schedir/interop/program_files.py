"""Programs from outside, whatever their form: CSV, TOML, text, or a function in a file or package.

Counts and weights that are given beside a file fill in what its form cannot say; with what it does say they must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from schedir.errors import ArgumentError, FormatError
from schedir.files import replaced_whole
from schedir.interop.program_functions import COUNTS, WEIGHTS, call_program_function
from schedir.interop.program_toml import parse_program_toml, print_program_toml
from schedir.interop.torch_csv import parse_torch_csv, print_torch_csv
from schedir.ir.expect import expect_path
from schedir.ir.header import Header, did_you_mean
from schedir.ir.horizons import check_policy
from schedir.ir.program import Program
from schedir.ir.shape import check_count
from schedir.ir.text import parse_program
from schedir.ir.weights import BackwardWeights, Rule, WeightRule

_PRINTERS: dict[str, Callable[[Program], str]] = {
    ".csv": print_torch_csv,
    ".toml": print_program_toml,
    ".txt": lambda program: f"{program}\n",
}

SUFFIXES = tuple(_PRINTERS)
"""Forms of program files, by the end of their names."""

FORMS = f"a file {', '.join(SUFFIXES)}, FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION"


def names_program_file(source: str | Path) -> bool:
    """Tell whether a text names a program file or function rather than a schedule of the table."""
    return Path(source).suffix.lower() in (*SUFFIXES, ".py") or ":" in str(source)


def load_program(source: str | Path, *, default_counts: Mapping[str, int] | None = None, **options: Any) -> Program:
    """Return the program of a .csv, .toml or .txt file, of `file.py:function` or of `package.module:function`.

    `options` may give num_devices, num_micro_batches, num_mini_batches, stages_per_device, weights, horizon and
    backward_weights; a function takes further options of its own. Values of None count as not given. `default_counts` are
    counts for a function that needs them and is not given them. The program is read, not verified: `compile_program` does
    that. Raises FormatError with file and line of what cannot be read, ArgumentError
    for options that contradict the file.
    """
    expect_path(source, "source", f"give {FORMS}")
    given = {key: value for key, value in options.items() if value is not None}
    given |= {key: check_count(key, given[key]) for key in COUNTS if key in given}
    path = Path(source)
    if path.suffix.lower() in SUFFIXES:
        program = _read(path, given)
    elif ":" in str(source):
        program = call_program_function(str(source), given, lambda name: _header(name, given), default_counts=default_counts or {})
    elif path.suffix.lower() == ".py":
        raise ArgumentError(f"{source} may hold several functions: give {source}:FUNCTION")
    else:
        raise ArgumentError(f"{source} names no program: give {FORMS}")
    _check_agrees(program, given, str(source))
    return program


def save_program(program: Program, path: str | Path) -> None:
    """Write a program in the form that the end of the name says; CSV keeps neither shape nor weights nor U and R."""
    path = Path(path)
    printer = _PRINTERS.get(path.suffix.lower())
    if printer is None:
        raise ArgumentError(f"{path} does not say the form of a program: end its name with {', '.join(SUFFIXES)}")
    text = printer(program)
    try:
        with replaced_whole(path) as beside:
            beside.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ArgumentError(f"{path} cannot be written: {error.strerror}") from None


def _read(path: Path, given: Mapping[str, Any]) -> Program:
    unknown = [key for key in given if key not in (*COUNTS, *WEIGHTS)]
    if unknown:
        raise ArgumentError(f"{path}: {did_you_mean(unknown[0], (*COUNTS, *WEIGHTS), 'option')}")
    text = _read_text(path)
    match path.suffix.lower():
        case ".csv":
            return parse_torch_csv(text, _header(path.stem, given), str(path))
        case ".toml":
            return parse_program_toml(text, path.stem, str(path))
        case _:
            return parse_program(text, str(path))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # spreadsheets write a byte order mark
    except FileNotFoundError:
        raise FormatError(f"{path}: no such file: give {FORMS}") from None
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} is no text: byte {error.start} is not UTF-8") from None


def _header(name: str, given: Mapping[str, Any]) -> Header:
    """Return what the options say about orders that come without a header."""
    rule = given.get("weights", Rule.LATEST)
    backward = given.get("backward_weights", BackwardWeights.PREDICT)
    for key, word, words in (("weights", rule, Rule), ("backward_weights", backward, BackwardWeights)):
        if word not in tuple(words):
            raise ArgumentError(f"{key} {word!r} is unknown: use {', '.join(words)}")
    horizon = check_policy(given["horizon"]) if "horizon" in given else None
    return Header(
        name,
        num_micro_batches=given.get("num_micro_batches"),
        num_mini_batches=given.get("num_mini_batches"),
        weights=WeightRule(Rule(rule), horizon, BackwardWeights(backward)),
    )


def _check_agrees(program: Program, given: Mapping[str, Any], source: str) -> None:
    rule = program.weights
    values: dict[str, Any] = {key: getattr(program, key) for key in COUNTS}
    values |= {"weights": rule.rule.value, "horizon": rule.horizon, "backward_weights": rule.backward.value}
    for key, value in values.items():
        if key in given and str(given[key]) != str(value):
            raise ArgumentError(f"{key} {given[key]} contradicts {source}, which has {value}: leave it out, or change the file")

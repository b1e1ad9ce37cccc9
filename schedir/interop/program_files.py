"""Programs from outside, whatever their form: CSV, TOML, text, or a function in a file or package.

Counts and weights that are given beside a file fill in what its form cannot say; with what it does say they must agree. More
mini-batches than there are repeat a program that flushes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from schedir.errors import ArgumentError, FormatError
from schedir.expect import expect, expect_path
from schedir.files import refuse_pipe, replaced_whole, unwritten
from schedir.interop.program_functions import COUNTS, WEIGHTS, call_program_function
from schedir.interop.program_toml import parse_program_toml, print_program_toml
from schedir.interop.torch_csv import parse_torch_csv, print_torch_csv
from schedir.interop.torch_lowering import check_torch_ends, print_torch_communication
from schedir.ir.horizons import check_policy
from schedir.ir.notation.header import Header, did_you_mean
from schedir.ir.notation.text import has_header, parse_program, parse_rows
from schedir.ir.program import Program
from schedir.ir.repetition import is_repeatable, repeat_program
from schedir.ir.shape import check_count
from schedir.ir.weights import BackwardWeights, Rule, WeightRule


class Form(StrEnum):
    """How a program is written."""

    TEXT = "text"
    """As `print(program)` shows it."""
    TOML = "toml"
    COMPUTE_ONLY = "compute-only"
    """CSV of torch.distributed.pipelining: actions alone; torch places the communication."""
    COMPUTE_COMMS = "compute-comms"
    """The same with sends, receives and reductions."""

    @property
    def suffix(self) -> str:
        """End of the name of such a file."""
        return {Form.TEXT: ".txt", Form.TOML: ".toml"}.get(self, ".csv")


_FORM_OF_SUFFIX = {".csv": Form.COMPUTE_ONLY, ".toml": Form.TOML, ".txt": Form.TEXT}

SUFFIXES = tuple(_FORM_OF_SUFFIX)
"""Forms of program files, by the end of their names."""

FORMS = f"a file {', '.join(SUFFIXES)}, FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION"


def names_program_file(source: str | Path) -> bool:
    """Tell whether a text names a program file or function rather than a schedule of the table."""
    return Path(source).suffix.lower() in (*SUFFIXES, ".py") or ":" in str(source)


def load_program(source: str | Path, *, default_counts: Mapping[str, int] | None = None, **options: Any) -> Program:
    """Return the program of a .csv, .toml or .txt file, of `file.py:function` or of `package.module:function`.

    `options` may give num_devices, num_micro_batches, num_mini_batches, stages_per_device, weights, horizon and
    backward_weights; a function takes further options of its own. Values of None count as not given. `default_counts` are
    counts for a function that needs them and is not given them. A program that flushes is repeated for a multiple of its
    mini-batches. It is read, not verified: `compile_program` does that. Raises FormatError with file and line of what cannot
    be read, ArgumentError for options that contradict the file.
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
    _check_name(program.name, str(source))
    wanted = given.get("num_mini_batches", program.num_mini_batches)
    if is_repeatable(program, wanted):
        program = repeat_program(program, wanted)
    _check_agrees(program, given, str(source))
    return program


def _check_name(name: str, source: str) -> None:
    """Refuse a name that would change the screen of whoever prints it: with line ends, or a terminal's colour codes."""
    if not name.isprintable():
        raise FormatError(f"{source}: the program's name {name!r:.60} holds characters that cannot be printed: rename it")


def save_program(program: Program, path: str | Path, *, form: str | Form | None = None) -> None:
    """Write a program in a form, that of the end of the name if not given (.csv: compute-only).

    CSV is what torch.distributed.pipelining runs: what it cannot run is refused with the reason (RefusedError), and shape,
    weights, U and R are not written. Raises ArgumentError for a name or form that does not fit, or a place that cannot be
    written to; for CSV ProgramError too, for a program that is not valid.
    """
    expect(program, Program, "program", remedy="give what build_program or load_program returns")
    expect_path(path, "path", f"end its name with {', '.join(SUFFIXES)}")
    path = Path(path)
    text = print_form(program, form_of(path, form))
    try:
        with replaced_whole(path) as beside:
            beside.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise unwritten(path, error, "name a place you may write to") from None


def form_of(path: Path, form: str | Form | None = None) -> Form:
    """Return the form that is given, or that the end of a name says; raise ArgumentError where both contradict each other."""
    by_suffix = _FORM_OF_SUFFIX.get(path.suffix.lower())
    if by_suffix is None:
        raise ArgumentError(f"{path} does not say the form of a program: end its name with {', '.join(SUFFIXES)}")
    if form is None:
        return by_suffix
    if form not in tuple(Form):
        raise ArgumentError(f"form {form!r} is unknown: use {', '.join(Form)}")
    if Form(form).suffix != path.suffix.lower():
        raise ArgumentError(f"form {form} does not go into {path}: end its name with {Form(form).suffix}")
    return Form(form)


def print_form(program: Program, form: Form) -> str:
    """Return the text of a program in a form; raise RefusedError, with the reason, for what torch cannot run as CSV."""
    match form:
        case Form.COMPUTE_ONLY:
            check_torch_ends(program)
            return print_torch_csv(program)
        case Form.COMPUTE_COMMS:
            return print_torch_communication(program)
        case Form.TOML:
            return print_program_toml(program)
        case Form.TEXT:
            return f"{program}\n"


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
            return parse_program(text, str(path)) if has_header(text) else parse_rows(text, _header(path.stem, given), str(path))


def _read_text(path: Path) -> str:
    try:
        refuse_pipe(path)
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
    weights = WeightRule(Rule(rule), horizon, BackwardWeights(backward))
    return Header(
        name,
        num_micro_batches=given.get("num_micro_batches"),
        num_mini_batches=None if weights.synchronous else given.get("num_mini_batches"),  # what flushes is repeated instead
        weights=weights,
    )


def _check_agrees(program: Program, given: Mapping[str, Any], source: str) -> None:
    rule = program.weights
    values: dict[str, Any] = {key: getattr(program, key) for key in COUNTS}
    values |= {"weights": rule.rule.value, "horizon": rule.horizon, "backward_weights": rule.backward.value}
    for key, value in values.items():
        if key in given and str(given[key]) != str(value):
            raise ArgumentError(f"{key} {given[key]} contradicts {source}, which has {value}: leave it out, or change the file")

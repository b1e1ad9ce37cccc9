"""The header of a written program: its name, shape and weight rule, as keys that text and TOML share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from schedir.errors import ArgumentError, FormatError
from schedir.ir.program_data import ProgramData
from schedir.ir.weights import BackwardWeights, Rule, WeightRule

SCHEMA = "schedir.program/1"

COUNTS = ("num_stages", "num_devices", "num_micro_batches", "num_mini_batches")
KEYS = ("schema", "name", *COUNTS, "weights", "horizon", "backward_weights")

MOST = 10**9 - 1
"""The largest count: nine digits, as in the cells."""

Place = Callable[[str], str]
"""Key -> where it stands, `file.txt:3: `."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a written program says beside its orders; a count of None follows from the orders."""

    name: str
    num_stages: int | None = None
    num_devices: int | None = None
    num_micro_batches: int | None = None
    num_mini_batches: int | None = None
    weights: WeightRule = field(default_factory=WeightRule)


def print_header(program: ProgramData) -> list[str]:
    """Return the `key = value` lines of a program; they are valid TOML and, behind the equals sign, valid JSON."""
    rule = program.weights
    values: dict[str, Any] = {"schema": SCHEMA, "name": program.name}
    values |= {key: getattr(program, key) for key in COUNTS} | {"weights": rule.rule.value}
    if rule.horizon is not None:
        values["horizon"] = rule.horizon
    if rule.rule is Rule.PREDICT or rule.backward is not BackwardWeights.PREDICT:
        values["backward_weights"] = rule.backward.value
    return [f"{key} = {_quoted(value)}" for key, value in values.items()]


def _quoted(value: str | int) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML takes no raw control characters


def read_header(values: Mapping[str, Any], place: Place, *, known: tuple[str, ...] = KEYS) -> Header:
    """Return the header that `values` spell; raise FormatError with the place of an unknown key or a wrong value."""
    # a file of another kind has keys of its own: not the first of them is wrong, but the file
    if "schema" in values:
        _check_schema(values["schema"], place("schema"))
    for key in values:
        if key not in known:
            raise FormatError(f"{place(key)}{did_you_mean(key, known)}")
    _check_schema(values.get("schema"), place("schema"))
    name = values.get("name", "program")
    if not isinstance(name, str):
        raise FormatError(f'{place("name")}name {name!r} must be a text in "quotes"')
    counts = {key: _count(values[key], key, place(key)) for key in COUNTS if key in values}
    return Header(name=name, weights=_read_rule(values, place), **counts)


def did_you_mean(key: str, known: Sequence[str], what: str = "key") -> str:
    """Say that a key is unknown, with the nearest known one."""
    close = get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"use {', '.join(known)}" if known else "there is none"
    return f"{what} {key!r} is unknown: {hint}"


def _check_schema(schema: object, place: str) -> None:
    if schema is None:
        raise FormatError(f'{place}schema is missing: write schema = "{SCHEMA}" on top')
    if schema != SCHEMA:
        raise FormatError(f"{place}schema is {schema!r}, but a program has {SCHEMA!r}: give another file")


def _count(value: object, key: str, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise FormatError(f"{place}{key} {value!r} must be an integer from 1 to {MOST}")
    return value


def _read_rule(values: Mapping[str, Any], place: Place) -> WeightRule:
    rule = Rule(_word(values, "weights", place, known=tuple(Rule)))
    backward = BackwardWeights(_word(values, "backward_weights", place, known=tuple(BackwardWeights)))
    try:
        return WeightRule(rule, values.get("horizon"), backward)
    except ArgumentError as error:
        key = "horizon" if "horizon" in values else "backward_weights"
        raise FormatError(f"{place(key)}{error}") from None


def _word(values: Mapping[str, Any], key: str, place: Place, *, known: tuple[str, ...]) -> str:
    # the first of either enum is its default
    word = values.get(key, known[0])
    if word not in known:
        raise FormatError(f"{place(key)}{key} {word!r} is unknown: use {', '.join(known)}")
    return str(word)

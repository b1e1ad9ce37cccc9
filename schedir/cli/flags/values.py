"""What the text after a flag means. Every function raises ArgumentError with its rule, to which the flag and the text are added."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from schedir.costs.files.units import Dimension


def count(text: str) -> int:
    """Read a number of things: 1, 2, 3, …"""
    value = _integer(text)
    if value is None or value < 1:
        raise ArgumentError("must be an integer of at least 1")
    return value


def counts(text: str) -> tuple[int, ...]:
    """Read numbers of things, comma-separated."""
    try:
        return tuple(count(part) for part in text.split(","))
    except ArgumentError:
        raise ArgumentError("must be integers of at least 1, comma-separated") from None


def natural(text: str) -> int:
    """Read an integer of at least 0."""
    value = _integer(text)
    if value is None or value < 0:
        raise ArgumentError("must be an integer of at least 0")
    return value


def random_seed(text: str) -> int:
    """Read a seed: what all generators of random numbers take, torch's among them."""
    value = _integer(text)
    if value is None or not 0 <= value < 2**63:
        raise ArgumentError("must be an integer from 0 to 2^63 - 1")
    return value


def times(text: str) -> tuple[float, ...]:
    """Read one time, or one per stage, comma-separated; the unit is that of `--unit`."""
    return tuple(
        _number(part, "must be a finite number of at least 0, or one per stage, comma-separated") for part in text.split(",")
    )


def length(text: str) -> float:
    """Read a length on paper or screen: more than 0."""
    value = _number(text, "must be a finite number above 0")
    if value == 0:
        raise ArgumentError("must be a finite number above 0")
    return value


def spread(text: str) -> float:
    """Read how far durations spread: a number of at least 0."""
    return _number(text, "must be a finite number of at least 0")


def sizes(text: str) -> tuple[float, ...]:
    """Read amounts of data, one or one per stage, comma-separated: bytes, or numbers with their unit (`33.5 MB`)."""
    from schedir.costs.files.units import BYTES

    return tuple(_quantity(part, BYTES) for part in text.split(","))


def memory(text: str) -> float:
    """Read a device's memory: bytes, or a number with its unit (`80 GB`)."""
    from schedir.costs.files.units import MEMORY

    return _quantity(text, MEMORY)


def _quantity(text: str, dimension: Dimension) -> float:
    from schedir.costs.files.units import parse_quantity

    try:
        number: float | str = float(text)
    except ValueError:
        number = text
    try:
        return parse_quantity(number, dimension)
    except ArgumentError as error:
        raise ArgumentError(f"is no amount of bytes: {error}") from None


def stage_groups(text: str) -> tuple[tuple[int, ...], ...]:
    """Read groups of stages, comma-separated, their numbers joined by `-`: 0-2,1-3."""
    try:
        return tuple(tuple(natural(stage) for stage in group.split("-")) for group in text.split(","))
    except ArgumentError:
        raise ArgumentError("must be stages joined by -, comma-separated, as 0-2,1-3") from None


def named_value(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE: an integer, a number, true, false or else a text; comma-separated ones are a tuple."""
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not name.isidentifier():
        raise ArgumentError("must be NAME=VALUE")
    parts = tuple(_plain_value(part.strip()) for part in value.split(","))
    return name, parts if len(parts) > 1 else parts[0]


def _plain_value(text: str) -> Any:
    if text in {"true", "false"}:
        return text == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser of words."""

    def read(text: str) -> str:
        if text not in words:
            raise ArgumentError(f"is unknown: use {', '.join(words)}")
        return text

    return read


def yes_or_no(text: str) -> bool:
    """Read yes or no."""
    if text not in {"yes", "no"}:
        raise ArgumentError("must be yes or no")
    return text == "yes"


def text(value: str) -> str:
    """Take the text as it is; the function that it is meant for checks it."""
    return value


def path(value: str) -> Path:
    """Read the name of a file."""
    if not value:
        raise ArgumentError("must name a file")
    return Path(value)


def _integer(value: str) -> int | None:
    try:
        return int(value) if value.isascii() else None
    except ValueError:
        return None


def _number(value: str, rule: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise ArgumentError(rule) from None
    if not math.isfinite(number) or number < 0:
        raise ArgumentError(rule)
    return number

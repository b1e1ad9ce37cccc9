"""Programs as text that can be read back: a few `key = value` lines, then one line of actions for every device.

    schema = "schedir.program/1"
    name = "zigzag"
    num_stages = 2
    num_devices = 2
    num_micro_batches = 2
    num_mini_batches = 1
    weights = "latest"
    device 0: 0F0 0F1 0B0 0B1
    device 1: 1F0 1B0 1F1 1B1

The keys are those of a program in TOML, their values are written as JSON. Empty lines are skipped, and so is what stands behind a
`#`, on a line of its own or behind what it is about, other than in a text in quotes: as in TOML.
`parse_program(print_program(program)) == program` for every program.

Orders alone are read, too, a row for each device, where the first row begins with an action:

    0F0 0F1 0B0 0B1
    1F0 1B0 1F1 1B1
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from schedir.errors import FormatError
from schedir.ir.notation.cells import Orders
from schedir.ir.notation.header import COUNTS, Header, read_header
from schedir.ir.origin import Origin
from schedir.ir.program import Program

_REQUIRED = ("schema", "name", *COUNTS, "weights")
_DEVICE = re.compile(r"device ([0-9]{1,9}):(.*)", re.DOTALL)
_ROW = re.compile(r"[0-9]+[A-Z]|\(")
"""How a row of actions begins; no key and no `device N:` does."""
_UP_TO_COMMENT = re.compile(r'(?:[^"#]+|"(?:[^"\\]|\\.)*")*')
"""Everything up to the first `#` outside of quotes; a quote that is never closed ends it, too."""
SAMPLE = "device 0: 0F0 0F1 0B0 0B1"


def has_header(text: str) -> bool:
    """Tell whether a text has keys and lines `device N: actions`, not rows of actions alone."""
    first = next(_contents(text), None)
    return first is None or not _ROW.match(first[2])


def parse_rows(text: str, header: Header, file: str = "") -> Program:
    """Return the program of rows of actions, one for each device; `header` says the rest. Raise FormatError with the line."""
    source = _Source(file)
    orders = Orders(source.locate)
    for number, line, content in _contents(text):
        source.orders.append(_Order(number, line.index(content), content))
        orders.add(content.split())
    return orders.program(header, source.origin())


def _contents(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield number, line and what stands on it, without comments and empty lines."""
    for number, line in enumerate(text.split("\n"), start=1):
        content = _without_comment(line).strip(" \t\r")
        if content:
            yield number, line, content


def _without_comment(line: str) -> str:
    # nearly no line has one, and those of orders are long
    if "#" not in line:
        return line
    kept = _UP_TO_COMMENT.match(line)
    assert kept is not None
    # an open quote is left for whoever reads the value: that is what is wrong with the line
    return line if line[kept.end() : kept.end() + 1] == '"' else kept[0]


def parse_program(text: str, file: str = "") -> Program:
    """Return the program of a text; `file` is its name in messages. Raise FormatError with the line of what is wrong."""
    source = _Source(file)
    values: dict[str, Any] = {}
    for number, line, content in _contents(text):
        device = _DEVICE.fullmatch(content)
        if device:
            source.take_order(number, device=int(device[1]), indent=line.index(":") + 1, cells=device[2])
        else:
            source.take_header(number, content, values=values)
    header = read_header(values, source.place_of_key)
    source.check_complete(values)
    orders = Orders(source.locate)
    for order in source.orders:
        orders.add(order.cells.split())
    return orders.program(header, source.origin())


@dataclass(frozen=True, slots=True)
class _Order:
    line: int
    indent: int
    cells: str


@dataclass(slots=True)
class _Source:
    """The lines read so far and where they stand."""

    file: str
    orders: list[_Order] = field(default_factory=list)
    key_lines: dict[str, int] = field(default_factory=dict)

    def place(self, line: int | None = None) -> str:
        if line is None:
            return f"{self.file}: " if self.file else ""
        return f"{self.file}:{line}: " if self.file else f"line {line}: "

    def origin(self) -> Origin | None:
        return Origin(self.file, tuple(order.line for order in self.orders)) if self.file else None

    def place_of_key(self, key: str) -> str:
        return self.place(self.key_lines.get(key))

    def locate(self, device: int, number: int) -> str:
        order = self.orders[device]
        # only a message asks for the column, so cells are looked for again rather than kept with their places
        starts = [found.start() for found in re.finditer(r"\S+", order.cells)]
        return f"{self.place(order.line)}device {device}: column {order.indent + starts[number] + 1}: "

    def check_complete(self, values: dict[str, Any]) -> None:
        missing = [key for key in _REQUIRED if key not in values]
        if missing:
            raise FormatError(f"{self.place()}{', '.join(missing)} must stand above 'device 0:'")
        if len(self.orders) != values["num_devices"]:
            raise FormatError(
                f"{self.place_of_key('num_devices')}num_devices is {values['num_devices']}, but {len(self.orders)} devices "
                "have a line 'device N: actions'"
            )

    def take_order(self, line: int, *, device: int, indent: int, cells: str) -> None:
        if device != len(self.orders):
            raise FormatError(f"{self.place(line)}device {device} stands where device {len(self.orders)} is expected")
        self.orders.append(_Order(line, indent, cells))

    def take_header(self, line: int, content: str, *, values: dict[str, Any]) -> None:
        key, equals, value = (part.strip() for part in content.partition("="))
        if not equals:
            raise FormatError(
                f"{self.place(line)}{_short(content)!r} is neither 'key = value' nor 'device N: actions', like '{SAMPLE}'"
            )
        if key in values:
            raise FormatError(f"{self.place(line)}{key} stands twice, first on line {self.key_lines[key]}: give it once")
        if self.orders:
            raise FormatError(f"{self.place(line)}{_short(key)} stands behind the orders: write it above 'device 0:'")
        try:
            values[key] = json.loads(value)
        except (ValueError, RecursionError):
            raise FormatError(
                f'{self.place(line)}{_short(key)}: {_short(value)!r} is no value: write a number or a text in "quotes"'
            ) from None
        self.key_lines[key] = line


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."

"""Programs in TOML, as people write them by hand: the header's keys and `order`, one text of actions for each device."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from typing import Any

from schedir.errors import FormatError
from schedir.expect import shown
from schedir.ir.notation.cells import Orders
from schedir.ir.notation.header import KEYS, print_header, read_header
from schedir.ir.notation.printing import print_orders
from schedir.ir.origin import Origin
from schedir.ir.program import Program


def parse_program_toml(text: str, name: str, file: str = "") -> Program:
    """Return the program of a TOML text; `name` if it has none. Raise FormatError with the line of what is wrong.

    Only `schema` and `order` must be there: the shape follows from the orders, the weights are latest if not said.
    """
    source = _Source(text, file)
    values = source.load()
    header = read_header({"name": name, **values}, source.place, known=(*KEYS, "order"))
    orders = _orders(values, source)
    if header.num_devices not in (None, len(orders)):
        place = source.place("num_devices")
        raise FormatError(f"{place}num_devices is {header.num_devices}, but order has {len(orders)} entries: one for each device")
    source.find_lines(orders)
    collected = Orders(source.locate)
    for order in orders:
        collected.add(order.split() if isinstance(order, str) else order)
    return collected.program(header, Origin(file, tuple(source.lines)) if file else None)


def print_program_toml(program: Program) -> str:
    """Return a program as TOML."""
    texts = [f'"{order}",' for order in print_orders(program)]
    width = max(map(len, texts))
    rows = [f"  {text.ljust(width)}  # device {device}" for device, text in enumerate(texts)]
    return "\n".join([*print_header(program), "order = [", *rows, "]", ""])


def _orders(values: dict[str, Any], source: _Source) -> list[str | list[str]]:
    orders = values.get("order")
    if orders is None:
        raise FormatError(f"{source.place('')}order is missing: a list with one text of actions for each device")
    if not isinstance(orders, list) or not orders:
        raise FormatError(f'{source.place("order")}order must be a list with one text like "0F0 0B0" for each device')
    for device, order in enumerate(orders):
        texts = order if isinstance(order, list) else [order]
        if not all(isinstance(text, str) for text in texts):
            raise FormatError(f'{source.place("order")}device {device}: {shown(order)} must be a text like "0F0 0B0"')
    return orders


@dataclass(slots=True)
class _Source:
    """The text with its name, to say where something stands: tomllib keeps no lines of values."""

    text: str
    file: str
    lines: list[int] = field(default_factory=list)
    """Line of each device's order, empty where not all could be found."""

    def load(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            message = str(error)
            found = re.search(r" \(at line (\d+), column (\d+)\)$", message)
            line = f"{found[1]}: column {found[2]}" if found else self.text.count("\n") + 1
            reason = message[: found.start()] if found else message
            raise FormatError(f"{self.file or 'line'}:{line}: this is no TOML: {reason}") from None
        except (RecursionError, ValueError):
            raise FormatError(f"{self.file or 'the text'}: is nested too deeply, or has a number too long, to be read") from None

    def place(self, key: str) -> str:
        line = self._line_of_key(key)
        if line is None:
            return f"{self.file}: " if self.file else ""
        return f"{self.file}:{line}: " if self.file else f"line {line}: "

    def _line_of_key(self, key: str) -> int | None:
        found = re.search(rf"""^[ \t]*["']?{re.escape(key)}["']?[ \t]*=""", self.text, re.MULTILINE) if key else None
        return self.text.count("\n", 0, found.end()) + 1 if found else None

    def find_lines(self, orders: list[str | list[str]]) -> None:
        """Look for each order's text (of a list its first cell) in quotes behind the one before."""
        key_line = self._line_of_key("order") or 1
        at = sum(len(line) + 1 for line in self.text.split("\n")[: key_line - 1])
        for order in orders:
            wanted = order if isinstance(order, str) else order[0] if order else ""
            found = re.search(rf"""(["'])(\s*){re.escape(wanted)}\1""", self.text[at:])
            if found is None:
                self.lines = []
                return
            at += found.end()
            self.lines.append(self.text.count("\n", 0, at) + 1)

    def locate(self, device: int, number: int) -> str:
        place = self.place("order")
        if self.lines:
            place = f"{self.file}:{self.lines[device]}: " if self.file else f"line {self.lines[device]}: "
        return f"{place}device {device}: action {number + 1}: "

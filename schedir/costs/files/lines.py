"""On which line every key of a TOML or JSON text stands, so that a refusal can point at it; the texts are valid already."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

Location = tuple[str | int, ...]
"""Way to a value: keys of tables and indices of lists."""


def toml_lines(text: str) -> Iterator[tuple[Location, int]]:
    """Yield every key of a valid TOML text with its line; keys inside a value have the line on which the value starts."""
    table: Location = ()
    lengths: dict[Location, int] = {}
    for line, data, is_header in _statements(text):
        if not is_header:
            yield from ((table + inner, line) for inner in _ways(data))
            continue
        yield _named(data), line
        table = _open(data, lengths)
        yield table, line


def _named(header: Any) -> Location:
    """Return the keys of a table header."""
    keys: Location = ()
    while isinstance(header, Mapping) and header:
        key, header = next(iter(header.items()))
        keys += (key,)
    return keys


def _open(header: Any, lengths: dict[Location, int]) -> Location:
    """Return the way to the table that a header opens; `lengths` counts the entries of all lists of tables so far."""
    table: Location = ()
    for key in _named(header):
        table += (key,)
        header = header[key]
        if isinstance(header, list):
            lengths[table] = lengths.get(table, 0) + 1
        if table in lengths:  # [a.b] behind [[a]] stands in the last a
            table += (lengths[table] - 1,)
    return table


def _statements(text: str) -> Iterator[tuple[int, dict[str, Any], bool]]:
    """Yield (line, parsed alone, is a table header) of every statement; one may go over several lines."""
    pending, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not pending and (not line.strip() or line.lstrip().startswith("#")):
            continue
        first = first if pending else number
        # A statement ends where the lines so far are valid TOML by themselves. tomllib says no lines, so it is asked for each.
        pending += line + "\n"
        try:
            data = tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue  # the value goes on
        yield first, data, pending.lstrip().startswith("[")
        pending = ""


def _ways(value: Any) -> Iterator[Location]:
    """Yield the way to everything inside of a value."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, inside in inner:
        yield (key,)
        yield from ((key, *way) for way in _ways(inside))


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|\n|[^\s{}\[\],:"]+')


def json_lines(text: str) -> Iterator[tuple[Location, int]]:
    """Yield every key and every entry of a list of a valid JSON text with the line on which it starts."""
    place = _Place()
    line = 1
    for token in (match[0] for match in _TOKEN.finditer(text)):
        line += token == "\n"
        found = None if token in "\n:" else place.move(token)
        if found is not None:
            yield found, line


class _Place:
    """Where a reader of JSON tokens stands.

    token    {    "a"    [      1      ,      {         "b"      2      }      ]    }
    way      ""   a      a,0    a,0    a,1    a,1,""    a,1,b    a,1,b  a,1    a
    found         a             a,0           a,1       a,1,b
    """

    def __init__(self) -> None:
        self._way: list[str | int] = []  # for each open object its current key, for each open list its current index
        self._expects_key = False

    def move(self, token: str) -> Location | None:
        """Go on over a token other than a colon; return the way to the key or entry that starts with it."""
        in_list = bool(self._way) and isinstance(self._way[-1], int)
        if token == ",":
            self._next(in_list)
            return None
        if token in "]}":
            self._way.pop()
            self._expects_key = False
            return None
        if self._expects_key:
            self._way[-1] = json.loads(token)
            self._expects_key = False
            return tuple(self._way)
        found = tuple(self._way) if in_list else None
        if token in "{[":
            self._way.append("" if token == "{" else 0)
            self._expects_key = token == "{"
        return found

    def _next(self, in_list: bool) -> None:
        self._expects_key = not in_list
        if in_list:
            self._way[-1] = int(self._way[-1]) + 1

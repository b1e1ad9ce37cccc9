"""Write TOML: the standard library only reads it. Values, tables and lists of tables; TOML has no word for None."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from schedir.errors import ArgumentError

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dumps(data: dict[str, Any]) -> str:
    """Return a TOML text; tables below the first level stand inline. Raises ArgumentError where something is None."""
    # plain values first: behind a table's header they would belong to it
    values = {key: value for key, value in data.items() if not _is_table(value)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in values.items()]
    for key, value in data.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{_key(key)}]", *_entries(value)]
        elif _is_table(value):
            tables: Sequence[Mapping[str, Any]] = value
            for table in tables:
                lines += ["", f"[[{_key(key)}]]", *_entries(table)]
    return "\n".join(lines) + "\n"


def _is_table(value: Any) -> bool:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return isinstance(value, Mapping) or (is_list and bool(value) and all(isinstance(entry, Mapping) for entry in value))


def _entries(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_value(value)}" for key, value in table.items()]


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    """Return a basic string; JSON escapes what TOML wants escaped, save for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    match value:
        case None:
            raise ArgumentError("TOML cannot say that a value is left out where a default states it: write a .json file")
        case bool():  # before int, which True is, too
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _text(value)
        case Mapping():
            return "{ " + ", ".join(f"{_key(key)} = {_value(inside)}" for key, inside in value.items()) + " }" if value else "{}"
        case _:
            return "[" + ", ".join(_value(entry) for entry in value) + "]"

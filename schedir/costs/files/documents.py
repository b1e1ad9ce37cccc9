"""TOML and JSON files as people write them: read, with the line of every key, so that a refusal can point at it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schedir.costs.files.lines import json_lines, toml_lines
from schedir.errors import FormatError
from schedir.expect import kind_of
from schedir.files import refuse_pipe


@dataclass(frozen=True, slots=True)
class Document:
    """A file that was read."""

    path: Path
    """As it was given."""
    data: dict[str, Any]
    """Its tables, lists and values."""
    text: str
    """Its text, in which lines are looked up."""

    def error(self, location: Sequence[str | int], message: str) -> FormatError:
        """Return the error for a value: `file:line: key: message`, with the line of the nearest key that the file has."""
        key = ".".join(str(part) for part in location)
        return FormatError(f"{self.path}:{self._line(location)}: {key}: {message}")

    def _line(self, location: Sequence[str | int]) -> int:
        # looked up when something is wrong only: reading a good file costs no second pass
        lines = dict(toml_lines(self.text) if _is_toml(self.path) else json_lines(self.text))
        # a key that is missing has no line, so the table that lacks it is named
        nearest = (tuple(location[:length]) for length in range(len(location), 0, -1))
        return next((lines[found] for found in nearest if found in lines), 1)


def read_document(path: str | Path, schema: str) -> Document:
    """Read a .toml or .json file that says `schema = "…"`.

    Raises FormatError, in one line, where the file is missing, broken or of another schema.
    """
    path = Path(path)
    text = _read_text(path)
    data = _parse(path, text)
    document = Document(path, data, text)
    found = data.get("schema")
    if found != schema:
        kind, version = schema.removeprefix("schedir.").split("/")
        stated = "is missing" if found is None else f"{found!r} is not known here"
        raise document.error(("schema",), f'{stated}: a {kind} file of version {version} starts with schema = "{schema}"')
    return document


def _is_toml(path: Path) -> bool:
    return path.suffix.lower() == ".toml"


def _read_text(path: Path) -> str:
    if path.suffix.lower() not in {".toml", ".json"}:
        raise FormatError(f"{path}: files end in .toml or .json, not in {path.suffix!r}: rename it, or give another file")
    try:
        refuse_pipe(path)
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FormatError(f"{path}: there is no such file: check the path") from None
    except IsADirectoryError:
        raise FormatError(f"{path}: is a folder: give a file") from None
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    parse: Callable[[str], Any] = tomllib.loads if _is_toml(path) else _parse_json
    try:
        data = parse(text)
    except tomllib.TOMLDecodeError as error:
        # Python 3.11's error has the line in its text only
        message = str(error)
        place = re.search(r"at line (\d+)", message)
        line = int(place[1]) if place else text.count("\n") + 1
        raise FormatError(f"{path}:{line}: is not TOML: {message.split(' (at ', maxsplit=1)[0]}: mend this line") from None
    except json.JSONDecodeError as error:
        raise FormatError(f"{path}:{error.lineno}: is not JSON: {error.msg} (column {error.colno}): mend this line") from None
    except _RepeatedKeyError as error:
        raise FormatError(f"{path}: {error}: leave one of them out") from None
    except RecursionError:
        raise FormatError(f"{path}: is nested too deeply to be read: write it flat") from None
    except ValueError:  # an integer of thousands of digits
        raise FormatError(f"{path}: has a number too long to be read: give one that a float can hold") from None
    if _is_deep(data):
        raise FormatError(f"{path}: is nested too deeply to be read: write it flat")
    if not isinstance(data, dict):
        raise FormatError(f"{path}:1: holds {kind_of(data)}: it must hold one object with keys")
    return data


DEEPEST = 20
"""Levels of tables and lists; ours have five."""


def _is_deep(data: Any) -> bool:
    """Tell whether tables or lists stand in each other deeper than any file of ours has them."""
    # level by level, not by recursion: what is deep enough to overflow the stack is what is looked for
    level = [data]
    for _ in range(DEEPEST):
        level = [
            inner for one in level if isinstance(one, dict | list) for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return any(isinstance(one, dict | list) for one in level)


class _RepeatedKeyError(Exception):
    """A JSON object has one key twice."""


def _parse_json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise _RepeatedKeyError(f"key {key!r} stands twice in one object")
            found[key] = value
        return found

    return json.loads(text, object_pairs_hook=unique)

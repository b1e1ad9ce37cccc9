"""Take values out of a file that may be broken, and say in one line where it is."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schedir.errors import FormatError
from schedir.files import refuse_pipe
from schedir.ir.arrays import Floats
from schedir.timeline.timeline import MemoryClass

_GZIP = b"\x1f\x8b"


def load_json(path: str | Path) -> Any:
    """Return the JSON value of a file, compressed or not; raise FormatError naming the file (and line) otherwise."""
    try:
        refuse_pipe(Path(path))
        data = Path(path).read_bytes()
        text = (gzip.decompress(data) if data.startswith(_GZIP) else data).decode()
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FormatError(f"{path}:{error.lineno}: is no JSON ({error.msg}): give a whole trace file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):  # before OSError, of which BadGzipFile is one
        raise FormatError(f"{path}: is cut off or broken gzip data: give a whole trace file") from None
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror}): give a trace file") from None
    except (ValueError, RecursionError):  # no UTF-8; an integer of thousands of digits
        raise FormatError(f"{path}: is no JSON text: give a trace file") from None


class Fields:
    """A JSON object with the place where it stands, for messages."""

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, dict):
            raise FormatError(f"{place}: is {type(value).__name__}, but an object is needed")
        self.values: dict[str, Any] = value
        self._place = place

    def _get(self, key: str, kind: type | tuple[type, ...], *, missing: str = "write the file again") -> Any:
        if key not in self.values:
            raise FormatError(f"{self._place}: {key} is missing: {missing}")
        value = self.values[key]
        if not isinstance(value, kind):
            raise self._wrong(key, f"is {type(value).__name__}")
        return value

    def _wrong(self, key: str, fault: str) -> FormatError:
        return FormatError(f"{self._place}: {key} {fault}: write the file again")

    def block(self, key: str, *, missing: str = "write the file again") -> Fields:
        """Return an object."""
        return Fields(self._get(key, dict, missing=missing), f"{self._place}: {key}")

    def blocks(self, key: str) -> list[Fields]:
        """Return a list of objects."""
        return [Fields(value, f"{self._place}: {key}.{index}") for index, value in enumerate(self._get(key, list))]

    def text(self, key: str) -> str:
        """Return a text."""
        return str(self._get(key, str))

    def texts(self, key: str) -> list[str]:
        """Return a list of texts."""
        values = self._get(key, list)
        if not all(isinstance(value, str) for value in values):
            raise self._wrong(key, "has values that are no text")
        return list(values)

    def choice(self, key: str, known: Sequence[str]) -> str:
        """Return a text that must be one of `known`."""
        value = self.text(key)
        if value not in known:
            raise FormatError(f"{self._place}: {key} {value!r} is unknown: use {' or '.join(known)}")
        return value

    def expect(self, key: str, value: str) -> None:
        """Take a text that must have this value."""
        found = self.text(key)
        if found != value:
            raise FormatError(f"{self._place}: {key} is {found!r}, but {value!r} is read here: use the schedir that wrote it")

    def switch(self, key: str) -> bool:
        """Return true or false; false where it is missing, as in files that were written before the switch existed."""
        return bool(self._get(key, bool)) if key in self.values else False

    def is_null(self, key: str) -> bool:
        """Tell whether a value is null."""
        return self._get(key, (type(None), list)) is None

    def numbers(self, key: str) -> Floats:
        """Return a list of finite numbers as float64, null as NaN."""
        values = self._get(key, list)
        # NumPy would take true for 1, and Python's json reads NaN, which is no JSON
        if any(type(value) is bool or value != value for value in values):  # noqa: PLR0124 - NaN: null is how files write it
            raise self._wrong(key, "is no list of finite numbers: it has true, false or NaN")
        return self._array(key, values, dimensions=1)

    def table(self, key: str) -> NDArray[np.int64]:
        """Return rows of one integer for each memory class as int64."""
        values = self._get(key, list)
        table = self._array(key, values or np.zeros((0, len(MemoryClass))), dimensions=2)
        if table.shape[1] != len(MemoryClass) or not (table == np.rint(table)).all():
            raise self._wrong(key, f"has rows that are not {len(MemoryClass)} whole numbers")
        if (table < 0).any() or (table >= 2.0**63).any():
            raise self._wrong(key, "has bytes below 0 or beyond 64 bits")
        # from the integers themselves: as floats they lose digits beyond 2 ** 53
        return np.array(values, np.int64).reshape(table.shape)

    def _array(self, key: str, values: object, *, dimensions: int) -> Floats:
        try:
            array = np.array(values, np.float64)
        except (TypeError, ValueError, OverflowError):
            raise self._wrong(key, "has values that are no numbers") from None
        if array.ndim != dimensions or np.isinf(array).any():
            raise self._wrong(key, "is no list of finite numbers")
        return array

    def groups(self, key: str) -> tuple[tuple[int, ...], ...]:
        """Return a list of lists of integers; none where files of older versions have no such key."""
        values = self._get(key, list) if key in self.values else []
        if not all(isinstance(group, list) and all(type(value) is int for value in group) for group in values):
            raise self._wrong(key, "has values that are no lists of integers")
        return tuple(tuple(group) for group in values)

    def pairs(self, key: str) -> tuple[tuple[int, int], ...]:
        """Return a list of pairs of integers."""
        values = self._get(key, list)
        if not all(isinstance(pair, list) and len(pair) == 2 and all(type(value) is int for value in pair) for pair in values):
            raise self._wrong(key, "has values that are no pairs of integers")
        return tuple((first, second) for first, second in values)

"""Text of pictures: how wide it is, how it wraps, and numbers with the unit that suits them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.textpath import text_to_path

from schedir.errors import SchedirWarning

FONT = FontProperties(family="DejaVu Sans", size=100)


STAND_IN = "?"
"""Drawn for a character that the font lacks; a box would say less."""


@lru_cache(maxsize=1)
def _known() -> frozenset[int]:
    """Return the characters that the font has."""
    return frozenset(get_font(findfont(FONT)).get_charmap())


def drawable(text: str) -> str:
    """Return a text without characters that the font lacks or that have no width; a warning names those that are replaced."""
    shown = " ".join(text.split())
    missing = "".join(dict.fromkeys(character for character in shown if ord(character) not in _known()))
    if not missing:
        return shown
    message = f"the font of pictures, {FONT.get_name()}, lacks {missing}: {STAND_IN} is drawn for each"
    warnings.warn(message, SchedirWarning, stacklevel=2)
    return "".join(STAND_IN if character in missing else character for character in shown)


@lru_cache(maxsize=4096)
def _width_at_100(text: str) -> float:
    return float(text_to_path.get_text_width_height_descent(text, FONT, False)[0])


def text_width(text: str, size: float) -> float:
    """Return the width in points of one line of text in a font of `size` points."""
    return _width_at_100(text) * size / 100


def wrap(parts: Iterable[str], width: float, size: float, *, separator: str = ", ") -> list[str]:
    """Join parts into lines of at most `width` points; a part that is wider by itself breaks between its words, a word anywhere."""
    lines: list[str] = []
    for part in map(drawable, parts):
        joined = f"{lines[-1]}{separator}{part}" if lines else part
        if lines and text_width(joined, size) <= width:
            lines[-1] = joined
            continue
        if lines:
            lines[-1] += separator.rstrip()
        lines.extend(_wrap_words(part, width, size))
    return lines


def _wrap_words(text: str, width: float, size: float) -> list[str]:
    if text_width(text, size) <= width or len(text) == 1:
        return [text]
    if " " in text:
        return wrap(text.split(" "), width, size, separator=" ")
    # as many characters as fit, behind the last sign among them that names break at well; at least one
    fitting = next((count for count in range(len(text) - 1, 1, -1) if text_width(text[:count], size) <= width), 1)
    at = max((text.rfind(sign, 1, fitting) + 1 for sign in "-_/."), default=0) or fitting
    return [text[:at], *_wrap_words(text[at:], width, size)]


@dataclass(frozen=True, slots=True)
class DisplayUnit:
    """A unit that numbers are shown in."""

    size: float
    """Seconds or bytes in one."""
    name: str

    def show(self, *values: float, digits: int = 4) -> str:
        """Return a value, or the range of several that differ, with the unit: `33 s`, `1.2–3.4 ms`."""
        numbers = dict.fromkeys(f"{value / self.size:.{digits}g}" for value in (min(values), max(values)))
        return f"{'–'.join(numbers)} {self.name}"


SECONDS = (DisplayUnit(1.0, "s"), DisplayUnit(1e-3, "ms"), DisplayUnit(1e-6, "µs"))
BYTES = (DisplayUnit(1e12, "TB"), DisplayUnit(1e9, "GB"), DisplayUnit(1e6, "MB"), DisplayUnit(1e3, "kB"), DisplayUnit(1.0, "B"))


def unit_for(largest: float, units: Sequence[DisplayUnit]) -> DisplayUnit:
    """Return the unit, of some in falling order, in which the largest value is at least 1; the base unit for 0."""
    if largest == 0:
        return next(unit for unit in units if unit.size == 1)
    # a sum that should be 1 s and is a hair less is not shown as 1000 ms
    fitting = (unit for unit in units if abs(largest) >= unit.size * (1 - 1e-12))
    return next(fitting, units[-1])


def show_seconds(*values: float, digits: int = 4) -> str:
    """Return seconds, one or a range, in the unit that suits the largest."""
    return unit_for(max(values), SECONDS).show(*values, digits=digits)


def show_bytes(*values: float) -> str:
    """Return bytes, one or a range, in the unit that suits the largest."""
    return unit_for(max(values), BYTES).show(*values)

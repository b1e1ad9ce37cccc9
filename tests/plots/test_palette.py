"""Colours for readers of every kind of sight.

Colour-blindness is simulated as in Machado, Oliveira and Fernandes, A Physiologically-based Model for Simulation of Color
Vision Deficiency (IEEE TVCG 2009), table of matrices for severity 1.0, applied to linear RGB.
"""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from plots.paint import MICRO_BATCH_KINDS, SHADE
from plots.palette import (
    GROUP_COLOURS,
    GROUP_HATCHES,
    GROUP_KIND_GREYS,
    KIND_COLOURS,
    KIND_GREYS,
    MEMORY_COLOURS,
    MEMORY_GREYS,
    NEUTRAL,
    TURN_HATCH,
    ink,
    lighter,
)
from plots.style import Look
from schedir.ir.action import Kind
from schedir.timeline.timeline import MemoryClass

SIGHTS = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
CLEARLY_DIFFERENT = 15.0
"""CIE 1976 distance: six times 2.3, what one can just notice."""
DIFFERENT = 9.0
"""Enough for shades, which only tell apart what stands side by side."""
DRAWN = [kind for kind in KIND_COLOURS if kind not in {Kind.GATHER, Kind.RELEASE}]


def seen(colour: str, sight: str) -> np.ndarray:
    """Return a colour in CIE L*a*b* (D65) as such eyes see it."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(SIGHTS[sight]) @ linear, 0, 1)
    to_xyz = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]])
    white = np.array([0.95047, 1.0, 1.08883])
    ratio = to_xyz @ linear / white
    f = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def too_close(colours: dict[str, str], sight: str, least: float) -> dict[tuple[str, str], float]:
    lab = {name: seen(colour, sight) for name, colour in colours.items()}
    distances = {(a, b): float(np.linalg.norm(lab[a] - lab[b])) for a, b in combinations(colours, 2)}
    return {pair: distance for pair, distance in distances.items() if distance < least}


def greys() -> list[tuple[str, str, str]]:
    """Return (word, grey, hatching) of every kind without colour."""
    return [(kind.word, *paint) for kind, paint in KIND_GREYS.items()]


def distance(one: str, other: str) -> float:
    return float(np.linalg.norm(seen(one, "all cones") - seen(other, "all cones")))


@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_of_kinds_and_of_idle_time_are_told_apart_by_everybody(sight: str) -> None:
    colours = {kind.word: KIND_COLOURS[kind] for kind in DRAWN} | {"idle": Look.of().idle_colour}

    assert too_close(colours, sight, CLEARLY_DIFFERENT) == {}


@pytest.mark.parametrize("sight", SIGHTS)
def test_shades_of_mini_batches_are_told_apart_by_everybody(sight: str) -> None:
    base = {kind.word: KIND_COLOURS[kind] for kind in MICRO_BATCH_KINDS}
    shades = {f"light {word}": lighter(colour, SHADE) for word, colour in base.items()}

    assert too_close(base | shades, sight, DIFFERENT) == {}


@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_of_stages_are_told_apart_by_everybody(sight: str) -> None:
    assert too_close({colour: colour for colour in GROUP_COLOURS}, sight, CLEARLY_DIFFERENT) == {}


@pytest.mark.parametrize("sight", SIGHTS)
def test_what_belongs_to_no_stage_or_mini_batch_is_told_apart_from_their_colours(sight: str) -> None:
    colours = {colour: colour for colour in GROUP_COLOURS} | {"predict": NEUTRAL[Kind.PREDICT], "update": NEUTRAL[Kind.UPDATE]}

    assert too_close(colours, sight, CLEARLY_DIFFERENT) == {}


def test_without_colour_there_are_as_many_hatchings_as_colours() -> None:
    assert len(set(GROUP_HATCHES)) == len(GROUP_COLOURS) == 12
    assert set(GROUP_KIND_GREYS) == MICRO_BATCH_KINDS
    assert "" not in GROUP_HATCHES  # or a stage's bars would look like the legend's box for a kind


def test_without_colour_greys_that_share_a_hatching_are_told_apart() -> None:
    paints = {(word, hatch + turn): grey for word, grey, hatch in greys() for turn in ("", TURN_HATCH)}
    close = [(a, b) for a, b in combinations(paints, 2) if a[1] == b[1] and distance(paints[a], paints[b]) < CLEARLY_DIFFERENT]

    assert close == []
    assert distance("#FFFFFF", KIND_GREYS[Kind.FORWARD][0]) > CLEARLY_DIFFERENT  # idle time


def test_without_colour_greys_of_kinds_are_told_apart_where_hatching_says_the_stage() -> None:
    shades = {kind.word: grey for kind, grey in GROUP_KIND_GREYS.items()} | {"idle": "#FFFFFF", "update": "#000000"}

    assert too_close(shades, "all cones", DIFFERENT) == {}


@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_of_memory_are_told_apart_by_everybody(sight: str) -> None:
    assert too_close({name.value: colour for name, colour in MEMORY_COLOURS.items()}, sight, CLEARLY_DIFFERENT) == {}


def test_every_class_of_memory_has_a_colour_and_a_grey_pattern() -> None:
    assert set(MEMORY_COLOURS) == set(MEMORY_GREYS) == set(MemoryClass)
    assert len(set(MEMORY_GREYS.values())) == len(MemoryClass)


def test_two_colours_that_only_some_tell_apart_would_be_found() -> None:
    red_and_green = {"red": "#C03030", "green": "#507020"}

    assert too_close(red_and_green, "all cones", CLEARLY_DIFFERENT) == {}
    assert list(too_close(red_and_green, "deuteranopia", CLEARLY_DIFFERENT)) == [("red", "green")]


def test_every_kind_that_can_be_drawn_has_a_colour_and_a_grey_pattern() -> None:
    kinds = set(Kind) - {Kind.OVERLAPPED}  # drawn as its two halves

    assert set(KIND_COLOURS) == kinds
    assert set(KIND_GREYS) == kinds
    assert len(set(KIND_GREYS.values())) == len(kinds)


@pytest.mark.parametrize(("fill", "expected"), [("#000000", "#FFFFFF"), ("#F0E442", "#000000"), ("#0072B2", "#FFFFFF")])
def test_text_is_black_or_white_as_the_fill_asks(fill: str, expected: str) -> None:
    assert ink(fill) == expected


def test_every_label_has_a_contrast_of_at_least_four_and_a_half() -> None:
    # WCAG 2.1, success criterion 1.4.3: (lighter + 0.05) / (darker + 0.05) >= 4.5
    fills = [*KIND_COLOURS.values(), *(grey for grey, _ in KIND_GREYS.values()), *GROUP_KIND_GREYS.values(), *GROUP_COLOURS]

    assert [fill for fill in fills if contrast(fill, ink(fill)) < 4.5] == []


def contrast(one: str, other: str) -> float:
    low, high = sorted(luminance(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))

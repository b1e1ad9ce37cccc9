"""Quantities with units: what is read, what is refused in which words, and that text and number go both ways."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.costs.files.units import (
    BANDWIDTH,
    BYTES,
    FLOPS,
    LATENCY,
    MEMORY,
    TIME,
    Dimension,
    parse_quantity,
)
from schedir.errors import ArgumentError


@pytest.mark.parametrize(
    ("text", "dimension", "expected"),
    [
        ("80 GB", BYTES, 80e9),  # formats/README: GB = 1e9, GiB = 2**30, bit or B
        ("80 GiB", BYTES, 80 * 2**30),
        ("0.4 kB", BYTES, 400),
        ("8 Mbit", BYTES, 1e6),
        ("17B", BYTES, 17),
        ("400 Gbit/s", BANDWIDTH, 50e9),
        ("450 GB/s", BANDWIDTH, 450e9),
        ("3 us", LATENCY, 3e-6),
        ("3 µs", LATENCY, 3e-6),
        ("18.522 ms", TIME, 0.018522),
        ("1e-3 s", TIME, 1e-3),
        ("989 TFLOP/s", FLOPS, 989e12),
    ],
)
def test_text_is_read_in_base_units(text: str, dimension: Dimension, expected: float) -> None:
    assert parse_quantity(text, dimension) == expected


@pytest.mark.parametrize(
    ("number", "dimension"), [(0, BANDWIDTH), (50e9, BANDWIDTH), (3e-6, LATENCY), (80 * 10**9, MEMORY), (7, BYTES)]
)
def test_bare_numbers_that_make_sense_are_base_units(number: float, dimension: Dimension) -> None:
    assert parse_quantity(number, dimension) == number


@pytest.mark.parametrize(
    ("value", "dimension", "line"),
    [
        (50, BANDWIDTH, '50 bytes/s is absurd: write "50 GB/s" or "400 Gbit/s"'),  # formats/README, first errors
        (80, MEMORY, '80 bytes is absurd: write "80 GB" or "80 GiB"'),
        (3, LATENCY, '3 s is absurd: write "3 us" or "3 ms"'),
        (989, FLOPS, '989 FLOP/s is absurd: write "989 TFLOP/s"'),
        (-1, TIME, "-1 is negative: give a finite number of at least 0"),
        ("-1 s", TIME, "'-1 s' is negative: give a finite number of at least 0"),
        (math.nan, TIME, "nan is not finite: give a finite number"),
        (math.inf, BYTES, "inf is not finite"),
        ("1e999 s", TIME, "'1e999 s' is not finite"),
        (True, TIME, "True is no quantity: write a number of s, or text like"),
        (None, TIME, "None is no quantity"),
        ([1], TIME, r"\[1\] is no quantity"),
        ("50", TIME, '\'50\' is no quantity: write a number and a unit, like "50 us" or "50 ms"'),
        ("GB", BYTES, "'GB' is no quantity"),
        ("50 gb/s", BANDWIDTH, "has the unknown unit 'gb/s': did you mean 'GB/s'"),
        ("50 Gbps", BANDWIDTH, "has the unknown unit 'Gbps': did you mean 'Gbit/s'"),
        ("5 parsec", TIME, 'has the unknown unit \'parsec\': write it like "50 us" or "50 ms"'),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_remedy(value: object, dimension: Dimension, line: str) -> None:
    with pytest.raises(ArgumentError, match=line):
        parse_quantity(value, dimension)


@given(st.floats(0, 1e12), st.sampled_from(sorted(BYTES.units)))
def test_every_unit_is_a_fixed_factor(number: float, unit: str) -> None:
    assert parse_quantity(f"{number!r} {unit}", BYTES) == pytest.approx(number * float(BYTES.units[unit]))


@given(st.floats(0, 1e9, allow_subnormal=False))
def test_a_unit_smaller_by_a_thousand_gives_a_thousandth(number: float) -> None:
    assert parse_quantity(f"{number!r} ms", TIME) == pytest.approx(number / 1000, rel=1e-15)

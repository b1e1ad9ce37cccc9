"""Bytes as verdicts and refusals print them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.bytes_text import bytes_text
from schedir.costs.files.units import BYTES, parse_quantity


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (12, "12 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (2.5e6, "2.5 MB"),
        (74e9, "74.0 GB"),
        (91.2e9, "91.2 GB"),
        (999.96e6, "1.0 GB"),
        (3e12, "3.0 TB"),
    ],
)
def test_bytes_are_written_with_the_prefix_that_suits_them(count: float, text: str) -> None:
    assert bytes_text(count) == text


@given(st.floats(1, 1e21))
def test_bytes_that_are_written_are_read_back_to_the_digits_shown(count: float) -> None:
    # below a kilobyte to a whole byte, above to one decimal of at least 1.0
    assert parse_quantity(bytes_text(count), BYTES) == pytest.approx(count, rel=0.05, abs=0.5)

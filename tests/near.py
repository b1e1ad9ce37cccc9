"""Numbers that are equal up to what float arithmetic leaves behind, in places that are typed as numbers."""

from typing import Any

import pytest


def near(value: float, **tolerance: Any) -> Any:
    """Return `pytest.approx(value, …)` as what may stand in a tuple or field of numbers."""
    return pytest.approx(value, **tolerance)

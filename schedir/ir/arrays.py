"""Names for the arrays that everything is made of, and how one is shut against writing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[Any]
"""An array of integers or booleans; each use says which."""

Floats = NDArray[np.float64]
"""An array of float64; each use says its shape and unit."""


def frozen_array(values: ArrayLike, dtype: np.typing.DTypeLike) -> Ints:
    """Return `values` as an array of `dtype` that cannot be written to (not copied if it is one already)."""
    array = np.ascontiguousarray(values, dtype=dtype)
    array.flags.writeable = False
    return array

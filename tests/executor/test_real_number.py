"""What a user's function gives as a number."""

import numpy as np
import pytest
import torch

from executor.real_number import real_number
from schedir.errors import ArgumentError


@pytest.mark.parametrize(
    "value", [2, 2.0, True + 1, np.float32(2), np.int64(2), np.array([2.0]).sum(), torch.tensor(2), torch.tensor([[2.0]])]
)
def test_numbers_of_python_numpy_and_torch_are_taken(value: object) -> None:
    assert real_number(value, "metric x") == 2.0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("2", "metric x returns '2', of type str: return one real number"),
        (None, "metric x returns None, of type NoneType: return one real number"),
        ([2.0], r"metric x returns \[2\.0\], of type list: return one real number"),
        (2j, "metric x returns 2j, of type complex: return one real number"),
        (np.ones(3), "metric x returns .*, which is no number .*: return one real number"),
        (torch.ones(3), r"metric x returns a tensor of shape \[3\], float32: return one real number"),
        (torch.tensor(2j), r"metric x returns a tensor of shape \[\], complex64: return one real number"),
    ],
)
def test_what_is_no_real_number_is_named(value: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        real_number(value, "metric x")

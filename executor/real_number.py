"""What a user's function gives as a number: of Python, of NumPy, or a tensor with one element."""

from __future__ import annotations

from torch import Tensor

from schedir.errors import ArgumentError
from schedir.expect import shown


def real_number(value: object, name: str) -> float:
    """Return what a function gave as a float; raise ArgumentError, with the function's name, for what is no real number."""
    if isinstance(value, Tensor):
        if value.numel() != 1 or value.is_complex():
            raise ArgumentError(f"{name} returns a tensor of shape {list(value.shape)}, {_kind(value)}: return one real number")
        return float(value)
    # numbers of NumPy are no floats of Python's, but say that they can become one; float() would read text, too
    if isinstance(value, str | bytes) or not hasattr(type(value), "__float__"):
        raise ArgumentError(f"{name} returns {shown(value)}, of type {type(value).__name__}: return one real number")
    try:
        return float(value)  # type: ignore[arg-type]  # it has what float() calls
    except (TypeError, ValueError, OverflowError) as error:  # an array with several elements
        raise ArgumentError(f"{name} returns {shown(value)}, which is no number ({error}): return one real number") from None


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")

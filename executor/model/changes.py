"""Whether a tensor was changed in place: torch counts that, of every tensor. It counts none that goes through `.data`."""

from __future__ import annotations

from torch import Tensor

from schedir.errors import RefusedError


def changes(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place; 0 of one made in inference mode, of which torch keeps no count."""
    return 0 if tensor.is_inference() else tensor._version


def on_the_way(changed: str) -> RefusedError:
    """Return what to raise where something of a model "was changed" when parts of mini-batches were still to be computed."""
    return RefusedError(
        f"{changed} while mini-batches were on their way, of which some parts would see what was there before and some what is "
        "there now: call drain() first"
    )


def parameters_on_the_way(stage: int) -> RefusedError:
    """Return what to raise where it was parameters of a stage."""
    return on_the_way(f"parameters of stage {stage} were changed")

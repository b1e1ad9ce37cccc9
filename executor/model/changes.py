"""Whether a tensor was changed in place: torch counts that, of every tensor. It counts none that goes through `.data`."""

from __future__ import annotations

from torch import Tensor


def changes(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place; 0 of one made in inference mode, of which torch keeps no count."""
    return 0 if tensor.is_inference() else tensor._version


def changed_on_the_way(stage: int) -> str:
    """Say that a stage was changed when devices were computing with it, so that nobody can tell who has seen what."""
    return (
        f"parameters of stage {stage} were changed while mini-batches were on their way, when devices compute with them: call "
        "drain() first, or read them through the module, whose state_dict() and parameters() wait for what is on its way"
    )

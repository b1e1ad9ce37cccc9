"""Forwards that write to their stage's parameters in place, as that of `nn.Embedding(max_norm=…)` does: right, or refused.

    under a flush, one copy of the stage    the one set of weights is written to, as in a model that is not cut
    replicas, tied weights                  each copy would be written to by its own micro-batches only: they would drift apart
    no flush                                what is written to may be an older version, or a prediction, that is let go of
    recomputed                              a second write has to change nothing, as a second renormalization of the same rows

Torch counts writes in place, so one is seen where it happens, in the first forward that makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from schedir.errors import RefusedError

Made = TypeVar("Made")


class ForwardWrites:
    """Those to the parameters of one copy of a stage. A stage's device alone asks."""

    def __init__(self, stage: int, module: nn.Module, *, refusal: str = "", refusal_of_frozen: str = "") -> None:
        """`refusal`: why a forward may not write to trained parameters here; "" if it may. `refusal_of_frozen`: to frozen ones."""
        self._stage, self._refusal, self._refusal_of_frozen = stage, refusal, refusal_of_frozen
        self._frozen = [parameter for parameter in module.parameters() if not parameter.requires_grad]
        self._writes = False
        """A forward has written to some."""

    def forward(self, trained: Sequence[nn.Parameter], compute: Callable[[], Made]) -> Made:
        """Compute a micro-batch with a set of weights; raise RefusedError if that has written where it may not."""
        before, before_frozen = _counts(trained), _counts(self._frozen)
        made = compute()
        for parameters, counts, refusal in (
            (trained, before, self._refusal),
            (self._frozen, before_frozen, self._refusal_of_frozen),
        ):
            written = _written(parameters, counts)
            self._writes = self._writes or written is not None
            if written is not None and refusal:
                raise RefusedError(f"{self._what(written)}, {refusal}")
        return made

    def again(self, trained: Sequence[nn.Parameter], compute: Callable[[], Made]) -> Made:
        """Compute a micro-batch a second time; raise RefusedError if that has changed what its first time has written."""
        parameters, before = [*trained, *self._frozen], _counts([*trained, *self._frozen])
        # no copies where no forward has written yet, as nearly everywhere
        values = [parameter.detach().clone() for parameter in parameters] if self._writes else []
        made = compute()
        written = _written(parameters, before)
        if written is not None and not (values and all(map(torch.equal, parameters, values))):
            raise RefusedError(
                f'{self._what(written)}, and again, to other values, where it is recomputed: compile with recompute="never"'
            )
        return made

    def _what(self, written: Tensor) -> str:
        return f"the forward of stage {self._stage} writes to a parameter of shape {list(written.shape)} in place"


def _counts(parameters: Sequence[nn.Parameter]) -> list[int]:
    return [parameter._version for parameter in parameters]


def _written(parameters: Sequence[nn.Parameter], before: list[int]) -> nn.Parameter | None:
    """Return the first parameter that was changed since its count was taken."""
    if _counts(parameters) == before:  # at every task, so without a loop of Python's
        return None
    return next((parameter for parameter, count in zip(parameters, before, strict=True) if parameter._version != count), None)


def refusals(*, synchronous: bool, replicas: int, tied: bool) -> tuple[str, str]:
    """Return why a stage's forward may not write to trained and to frozen parameters; "" where it may."""
    remedy = "write between two steps, or use a schedule that flushes and has one copy of every stage, say 1f1b"
    if replicas > 1:
        apart = f"and each of its {replicas} replicas would see its own writes only: {remedy}"
        return apart, apart
    if not synchronous:
        # frozen ones have no versions, so they are as buffers are
        return f"which may be an old version or a prediction here, let go of next: {remedy}", ""
    return ("which other stages hold, too, and would not see: write between two steps" if tied else ""), ""

"""The memory of a model's parameters while it is trained: what is given other memory gets its own back, with the new values in it.

Devices compute, and optimizers update, in the memory that a parameter had when training began. `model.float().double()`,
`vector_to_parameters` and `parameter.data = …` put other memory under it, which they would not know: training would stand still.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from schedir.errors import RefusedError


class OwnMemory:
    """Of all parameters of one model. Known at rest only: on the way a new version may stand in new memory."""

    def __init__(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> None:
        """Take the parameters with the words for them."""
        self._parameters = list(parameters)
        self._own: list[Tensor | None] = [None] * len(self._parameters)
        """Each names the memory of its parameter, and shares its count of changes; None where it may change."""

    def note(self) -> None:
        """Remember whose memory is which: nothing computes now, and the caller leaves."""
        for place, ((_, parameter), own) in enumerate(zip(self._parameters, self._own, strict=True)):
            if own is None or not _is_same(own, parameter):
                # a sparse one has no memory of its own to speak of, one made in inference mode is no training's
                known = parameter.layout is torch.strided and not parameter.is_inference()
                self._own[place] = parameter.detach() if known else None

    def forget(self) -> None:
        """Hold no memory that devices may let go of."""
        self._own = [None] * len(self._parameters)

    def give_back(self) -> None:
        """Move the values of parameters that were given other memory into their own; raise RefusedError for other shapes.

        That counts as a change in place, so copies of the parameter follow (`executor.trainer.edits`). Another type or device is
        left alone: whoever looks at the model refuses it.
        """
        for (label, parameter), own in zip(self._parameters, self._own, strict=True):
            if own is None or _is_same(own, parameter) or (own.dtype, own.device) != (parameter.dtype, parameter.device):
                continue
            if own.shape != parameter.shape:
                raise RefusedError(
                    f"{label} has shape {tuple(parameter.shape)} now, and had {tuple(own.shape)} when its trainer was made: "
                    "give it back its shape, or make a new trainer"
                )
            with torch.no_grad():
                own.copy_(parameter)
            parameter.data = own


def _is_same(own: Tensor, parameter: nn.Parameter) -> bool:
    return own.data_ptr() == parameter.data_ptr() and own.shape == parameter.shape

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
        self._address = [0] * len(self._parameters)
        """Of each; to compare them is all that is done where nothing was changed."""

    def note(self) -> None:
        """Remember whose memory is which: nothing computes now, and the caller leaves."""
        for place, (_, parameter) in enumerate(self._parameters):
            # a sparse one has no memory of its own to speak of
            if parameter.layout is torch.strided and (self._own[place] is None or self._address[place] != parameter.data_ptr()):
                self._own[place], self._address[place] = parameter.detach(), parameter.data_ptr()

    def forget(self) -> None:
        """Hold no memory that devices may let go of."""
        self._own = [None] * len(self._parameters)

    def give_back(self) -> None:
        """Move the values of parameters that were given other memory into their own; raise RefusedError for other shapes.

        That counts as a change in place, so copies of the parameter follow (`executor.trainer.edits`). Another type or device is
        left alone: whoever looks at the model refuses it.
        """
        for (label, parameter), own, address in zip(self._parameters, self._own, self._address, strict=True):
            if own is None or parameter.data_ptr() == address or (own.dtype, own.device) != (parameter.dtype, parameter.device):
                continue
            if own.shape != parameter.shape:
                raise RefusedError(
                    f"{label} has shape {tuple(parameter.shape)} now, and had {tuple(own.shape)} when its trainer was made: "
                    "give it back its shape, or make a new trainer"
                )
            with torch.no_grad():
                own.copy_(parameter)
            parameter.data = own

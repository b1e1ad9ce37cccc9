"""Where a model was before it was trained: there it is again afterwards, whatever GPUs have trained it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from executor.home import Home
from executor.model.stage_copy import StageCopy
from schedir.errors import SchedirWarning


@dataclass(frozen=True, slots=True)
class Places:
    """The devices of a stage's parameters and buffers, by name."""

    devices: Mapping[str, torch.device]

    @classmethod
    def of(cls, module: nn.Module) -> Places:
        """Look where everything is."""
        return cls({name: tensor.device for name, tensor in _tensors(module).items()})

    def restore(self, copy: StageCopy) -> None:
        """Move a stage back, with its optimizer's state; warn where a GPU that has failed does not give it back."""
        home = copy.home
        try:
            self._move(copy)
        except RuntimeError as error:
            text = " ".join(str(error).split())[:100]
            warnings.warn(f"a stage stays on {home.device}, which does not give it back ({text})", SchedirWarning, stacklevel=2)
            return
        for tensor in _tensors(copy.module).values():
            home.hand_back(tensor)

    def _move(self, copy: StageCopy) -> None:
        devices = set(self.devices.values())
        if len(devices) == 1:
            copy.move_to(Home(devices.pop()))
            return
        for name, tensor in _tensors(copy.module).items():
            if name in self.devices:  # what its forward has made since then stays where it is
                tensor.data = tensor.data.to(self.devices[name])
        if copy.optimizer is not None:
            copy.optimizer.load_state_dict(copy.optimizer.state_dict())  # which moves the state to its parameters


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}

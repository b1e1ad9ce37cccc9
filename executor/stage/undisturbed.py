"""Where nothing flushes, the caller leaves a stage alone while mini-batches are on their way: its device looks at every task.

    task ── note ──▶ [ somebody's change of a setting, a buffer, a frozen parameter ] ──▶ look ── task
                                                                                          └─▶ refused, before it is computed with

Between two tasks of a stage nobody but the caller changes anything of it, so what has changed there is his. What a task changes
itself, a BatchNorm's statistics or a counter, is noted behind it; modes and such it leaves alone. Parameters that are trained have
counts of their own (`StageWeights.note`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from executor.model.changes import changes, on_the_way
from executor.model.layer_settings import LayerSettings, Values
from executor.model.stage_copy import StageCopy


class Undisturbed:
    """Looks at one copy of a stage. Its device's thread alone does, or the caller's while the devices are idle."""

    def __init__(self, stage: int, copy: StageCopy) -> None:
        self._stage, self._module = stage, copy.module
        self._settings = LayerSettings(copy.module, stage)
        self._fixed = LayerSettings(copy.module, stage, fixed=True)
        # dictionaries, not tensors: a forward, or the caller, may put another buffer into a place
        self._buffers = [layer._buffers for layer in copy.module.modules() if layer._buffers]
        self._frozen = [parameter for parameter in copy.module.parameters() if not parameter.requires_grad]
        self._fixed_values: Values = ()
        """When the pipeline was empty."""
        self._values: Values = ()
        """Behind the last task, which may have changed some."""
        self._tensors: list[Tensor] = []
        """As they were noted: as long as they are held, no other tensor is one of them."""
        self._counts: list[int] = []
        self.begin()

    def begin(self) -> None:
        """Take what is there now for what is meant: the pipeline is empty."""
        self._fixed_values = self._fixed.now()
        self._note()

    def is_set_otherwise(self) -> bool:
        """Tell whether the stage computes in another way than when the pipeline was empty; a device may be computing with it."""
        return self._fixed.now() != self._fixed_values

    def check(self) -> None:
        """Raise RefusedError if somebody has changed the stage since its last task, or since the pipeline was empty."""
        self._fixed.check(self._fixed_values)
        self._settings.check(self._values)
        tensors = self._found()
        if len(tensors) != len(self._tensors) or any(
            now is not was or changes(now) != count for now, was, count in zip(tensors, self._tensors, self._counts, strict=True)
        ):
            raise on_the_way(f"{self._changed()} was changed")

    def run(self, body: Any, *values: object) -> Any:
        """Do what a task does; raise RefusedError if somebody has changed the stage before, or how it computes meanwhile."""
        self.check()
        made = body(*values)
        self._fixed.check(self._fixed_values)
        self._note()
        return made

    def _note(self) -> None:
        self._values = self._settings.now()
        self._tensors = self._found()
        self._counts = [changes(tensor) for tensor in self._tensors]

    def _found(self) -> list[Tensor]:
        buffers = [tensor for held in self._buffers for tensor in held.values() if tensor is not None]
        return buffers + self._frozen

    def _changed(self) -> str:
        """Return words for the first tensor that is not as it was noted."""
        noted = {id(tensor): count for tensor, count in zip(self._tensors, self._counts, strict=True)}
        found = next((name for name, tensor in self._named() if noted.get(id(tensor)) != changes(tensor)), None)
        return f"a buffer of stage {self._stage}" if found is None else f"stage {self._stage}'s {found}"

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        yield from self._module.named_buffers()
        yield from ((name, each) for name, each in self._module.named_parameters() if not each.requires_grad)

"""The weights of one stage on one device: the newest, older versions and predictions that are still read, each in its own tensors.

    version 0 ── U ──▶ version 1 ── U ──▶ version 2      an update goes to the newest true weights only
        │ still read later? then it keeps its tensors and the update is made on a copy; else in place
        └── P ──▶ predicted set                          freed behind its last reader, which the graph names

A set is made of leaves of their own, so that gradients are taken with respect to the very set that a forward read. The
optimizer holds the module's parameters; the newest set shares their storage.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from executor.model.changes import parameters_on_the_way
from executor.model.predictors import Predictor
from executor.model.stage_copy import StageCopy
from executor.plan.actions import PlannedAction


class WeightSet:
    """One version of a stage's trainable parameters, or a prediction of one."""

    __slots__ = ("_casts", "horizon", "leaves", "version")

    def __init__(self, tensors: Sequence[Tensor], *, version: int, horizon: int = 0) -> None:
        self.leaves = tuple(nn.Parameter(tensor.data) for tensor in tensors)
        """Leaves on the tensors' storage, in the order of the stage's parameters. `data` gives them a count of changes of their
        own: the tensors may move on to other storage."""
        self.version = version
        """Updates that the stage had when these weights were made."""
        self.horizon = horizon
        """Updates that they are predicted over; 0 for true weights."""
        self._casts: dict[tuple[int, torch.dtype], Tensor] = {}

    def cast(self, number: int, dtype: torch.dtype) -> Tensor:
        """Return one tensor as another type, cast once."""
        leaf = self.leaves[number].detach()
        if dtype == leaf.dtype:
            return leaf
        if (number, dtype) not in self._casts:
            self._casts[number, dtype] = leaf.to(dtype)
        return self._casts[number, dtype]

    def forget_casts(self) -> None:
        """Note that the weights have other values now: they are to be cast anew."""
        self._casts.clear()

    def changed(self) -> None:
        """Note that an update has changed the weights in place: a graph that saved them raises from now on."""
        self.version += 1
        self.forget_casts()
        for leaf in self.leaves:
            increment_version(leaf)

    def drop(self) -> None:
        """Let go of the memory, even where a recorded graph still holds the leaves as the place of their gradients."""
        self._casts.clear()
        for leaf in self.leaves:
            leaf.data = leaf.new_empty(0)


class StageWeights:
    """All sets of one stage on one device. Used by that device's worker only."""

    def __init__(self, copy: StageCopy, predictor: Predictor | None) -> None:
        self._copy, self._predictor = copy, predictor
        self._kept: dict[int, WeightSet] = {}
        self._predicted: dict[int, WeightSet] = {}
        self._bound: WeightSet | None = None
        self._noted: tuple[int, ...] | None = None
        """By parameter: how often it had been changed when training last did that; None if nobody asks."""
        self.newest = WeightSet(copy.parameters, version=0)

    def begin(self) -> None:
        """Count versions from 0 again, as the graph does in every pass."""
        self._kept.clear()
        self._predicted.clear()
        self.newest.version = 0

    def read(self, action: PlannedAction) -> WeightSet:
        """Return the set that an action names."""
        if action.maker >= 0:
            return self._predicted[action.maker]
        if action.version == self.newest.version:
            return self.newest
        return self._kept[action.version]

    def release(self, action: PlannedAction) -> None:
        """Free the set that an action has read, if nobody reads it later."""
        if not action.last_reader:
            return
        sets, name = (self._predicted, action.maker) if action.maker >= 0 else (self._kept, action.version)
        # the newest set is in neither: nobody is its last reader, for the next update is made on it
        if name in sets:
            sets.pop(name).drop()

    def bind(self, weights: WeightSet) -> None:
        """Let the stage's module compute with these weights."""
        if weights is not self._bound:
            self._copy.bind(weights.leaves)
            self._bound = weights

    @property
    def learning_rate(self) -> float | None:
        """That of the next update, of the optimizer's first group; None without an optimizer, or one that has no rate."""
        rate = None if self._copy.optimizer is None else self._copy.optimizer.param_groups[0].get("lr")
        return None if rate is None else float(rate)

    def predict(self, action: PlannedAction) -> WeightSet:
        """Make the prediction of a task P, from the newest true weights."""
        assert action.version == self.newest.version, "a prediction starts from the weights that are current"
        tensors = [] if self._predictor is None else self._predictor.predict(self.newest.leaves, action.horizon)
        made = WeightSet(tensors, version=self.newest.version, horizon=action.horizon)
        self._predicted[action.task] = made
        return made

    def update(self, gradients: Sequence[Tensor | None] | None, *, keep_previous: bool) -> WeightSet:
        """Apply gradients to the newest true weights by the stage's own optimizer; return the new newest.

        None leaves the update out: the new version is equal to the one before, and nothing hears of an update.
        """
        parameters, previous = self._copy.parameters, self.newest
        if keep_previous:
            # the module's parameters, which the optimizer knows, move on to new memory; the old set keeps what it has
            for parameter in parameters:
                parameter.data = parameter.data.clone()
            self._kept[previous.version] = previous
            self.newest = WeightSet(parameters, version=previous.version)
        if gradients is not None:
            self._step(gradients)
        if self._noted is not None:
            self.note()
        # also where nothing has changed: the graph counts an update that was left out
        self.newest.changed()
        return self.newest

    def _step(self, gradients: Sequence[Tensor | None]) -> None:
        copy = self._copy
        if copy.optimizer is None:
            return
        for parameter, gradient in zip(copy.parameters, gradients, strict=True):
            parameter.grad = gradient
        # before the step, which changes the weights in place, and Nesterov's the gradients
        if self._predictor is not None:
            self._predictor.before_update()
        copy.optimizer.step()
        if copy.scheduler is not None:
            copy.scheduler.step()
        # a gradient kept here would hold a second copy of the stage's size until the next update
        for parameter in copy.parameters:
            parameter.grad = None

    def show(self) -> None:
        """Let the module have newest true weights, in tensors that are never let go of."""
        self._copy.show()
        self._bound = None

    def note(self) -> None:
        """Take what parameters are now for training's own; what changes them from here on, but for updates, is somebody else's."""
        now = self._changes()
        if self._noted is not None and now != self._noted:
            self.newest.forget_casts()
        self._noted = now

    def check_untouched(self, stage: int) -> None:
        """Raise RefusedError if somebody else has changed a parameter since training did, or since `note`."""
        if self._noted is not None and self._noted != self._changes():
            raise parameters_on_the_way(stage)

    def _changes(self) -> tuple[int, ...]:
        # none of them was made in inference mode, where torch keeps no count: that could not be trained
        return tuple([parameter._version for parameter in self._copy.parameters])

    def restore(self) -> None:
        """Give the module its own parameters back; they have the newest true weights."""
        self._copy.restore()
        self._bound = None

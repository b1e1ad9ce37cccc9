"""Parameters that a stage's forward, or the loss, reaches past the stage's own module: their gradient would be lost.

    self.weight              the place holds the weights that are bound ──▶ a leaf of the set, which autograd is asked for
    self.weights[0], a list  the very parameter                         ──▶ a leaf that nobody asks for
    loss over the model      what other stages have bound               ──▶ a leaf that nobody asks for

The first recorded graph of every copy of a stage is looked through, once: forwards of a stage reach the same parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from executor.model.stage_copy import StageCopy
from executor.stage.record import Record
from schedir.errors import RefusedError


class Trained:
    """All parameters of a pipeline, by identity: those of its modules, and what copies of stages train in their places."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._modules = tuple(modules)
        self._names: dict[int, tuple[int, str]] = {}
        self._held: list[nn.Parameter] = []
        """As long as they are held, no other parameter has the identity of one of them."""
        for stage, module in enumerate(modules):
            for name, parameter in module.named_parameters():
                self._add(parameter, (stage, name))

    def join(self, stage: int, copy: StageCopy) -> None:
        """Add the parameters of a copy of a stage, before it computes."""
        names = {id(parameter): name for name, parameter in copy.module.named_parameters()}
        for original, own in copy.pairs:
            # a private one stands in the place of the original
            name = names.get(id(own), names.get(id(original), ""))
            self._add(original, (stage, name))
            self._add(own, (stage, name))

    def _add(self, parameter: nn.Parameter, name: tuple[int, str]) -> None:
        # the lowest stage that holds a tied parameter owns it
        self._names.setdefault(id(parameter), name)
        self._held.append(parameter)

    def name(self, leaf: Tensor) -> tuple[int, str] | None:
        """Return (stage, name) of a leaf that is a parameter of the pipeline, or that a stage computes with; None for any other."""
        if id(leaf) in self._names:
            return self._names[id(leaf)]
        # what a stage has bound just now stands in its module; places keep their number, so other devices may bind meanwhile
        bound = ((stage, each) for stage, module in enumerate(self._modules) for each in module.named_parameters())
        return next(((stage, name) for stage, (name, parameter) in bound if parameter is leaf), None)


class Reach:
    """Looks at what the first graph of one copy of a stage reaches."""

    def __init__(self, stage: int, trained: Trained, *, is_last: bool) -> None:
        self._trained = trained
        self._who = f"stage {stage}, or the loss behind it," if is_last else f"stage {stage}"
        self._looked = False

    def check(self, record: Record) -> None:
        """Raise RefusedError if the stage's first graph reaches a parameter of the pipeline past the stage's own weights."""
        if self._looked or record.weights is None or not any(record.roots):
            return
        self._looked = True
        own = {id(leaf) for leaf in (*record.weights.leaves, *record.inputs)}
        # not by memory: a detached weight lies in its parameter's too, and plain PyTorch gives it no gradient either
        names = (self._trained.name(leaf) for leaf in _leaves(record) if id(leaf) not in own)
        found = min((name for name in names if name is not None), default=None)
        if found is not None:
            raise self._refusal(*found)

    def _refusal(self, owner: int, name: str) -> RefusedError:
        which = f"parameter {name} of stage {owner}" if name else "a parameter that stages train"
        return RefusedError(
            f"{self._who} reaches {which} past the module's own attributes (by a list, a captured name, or model.parameters() in "
            "the loss), so its gradient would be lost: reach it as an attribute of the stage's module or in an nn.ParameterList, "
            "and give a regularizer as the optimizer's weight_decay"
        )


def _leaves(record: Record) -> Iterator[Tensor]:
    """Yield all leaves that a record's graph adds gradients to."""
    # nodes, not numbers: Python's objects for them are made anew, and one that is let go of leaves its number to another
    waiting: list[Any] = [root.node for root in record.roots if root is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        # by its type: a user's own function may keep something under the name `variable`
        if type(node).__name__ == "AccumulateGrad":
            yield node.variable
        following = {after for after, _ in node.next_functions if after is not None} - seen
        seen |= following
        waiting += following

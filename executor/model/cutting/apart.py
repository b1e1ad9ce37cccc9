"""Give every stage modules of its own where a model calls one module on both sides of a cut; the parameters stay the same."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from torch import fx, nn


def apart(stages: Sequence[nn.Module], *, made_by_us: bool = True) -> list[nn.Module]:
    """Return the stages; a later one that calls a module of an earlier gets a copy of it that holds the very same parameters.

    Stages that are `made_by_us` are containers, of whose children some are replaced; others are the user's and replaced as a whole.
    What a module of the user's holds inside stays as it is; so do modules with buffers, of which there would be two. A copy has the
    mode (training or evaluation) that the module has now.
    """
    seen: set[nn.Module] = set()
    found = []
    for stage in stages:
        own = set(stage.modules())
        if made_by_us:
            for name in _called(stage):
                stage.set_submodule(name, _own(stage.get_submodule(name), seen))
        found.append(stage if made_by_us else _own(stage, seen))
        seen |= own
    return found


def _called(stage: nn.Module) -> list[str]:
    """Return the names of the modules that a stage calls itself."""
    if isinstance(stage, fx.GraphModule):
        return sorted({str(node.target) for node in stage.graph.nodes if node.op == "call_module"})
    return [name for name, _ in stage.named_children()]


def _own(module: nn.Module, seen: set[nn.Module]) -> nn.Module:
    """Return a copy with the same parameters if an earlier stage has the module, and it has parameters but no buffers."""
    same: dict[int, object] = {id(parameter): parameter for parameter in module.parameters()}
    if not same or next(module.buffers(), None) is not None or not set(module.modules()) <= seen:
        return module
    # what `same` names counts as copied already, so the copy holds the very parameters
    return deepcopy(module, same)

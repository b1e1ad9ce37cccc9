"""How many bytes a stage or layer holds: counted in passes of their own, because counting slows a task by 6 to 20 %.

what autograd keeps   saved-tensor hooks: each storage once, without parameters, buffers and the input
what comes and goes   a dispatch mode sees every tensor that an operator makes, and a finalizer sees it go

           forward                   backward
bytes      ▁▂▅▇▆▄▃                   ▃▅█▇▅▃▂
alive            └ kept after it           the largest rise above `kept`, of both, is the workspace
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, UntypedStorage, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.optim import Optimizer, SparseAdam
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from executor.model.admission import made_optimizer
from executor.model.predictors import AdamPrediction, make_predictor
from executor.profiling.parts import Part
from executor.structure import tensors_in


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of one part, those of the second group for one micro-batch."""

    weights: int
    """All parameters, each storage once."""
    gradients: int
    """One for each trained parameter."""
    optimizer: int
    """The optimizer's state after a step."""
    activations: int
    """Kept from forward to backward, a stage's input included. What two layers of a stage hand over is counted once, with the
    second, and only if one of them keeps it, so that the layers add up to their stage."""
    boundary: int
    """The input: kept instead when recomputed."""
    output: int
    """Sent forward to the next part."""
    skip: float | None
    """Sent over each skip connection that begins at the part, the mean of all of them; None: none does."""
    tied: int | None
    """Of the trained parameters those that another stage holds, too; None: no stage of the model does."""
    predictor: int
    """Kept of the last update by what predicts weights."""
    workspace: int
    """Held while a task computes, beside all this."""


def footprints(parts: Sequence[Part], optimizer: Callable[[list[nn.Parameter]], Optimizer]) -> tuple[Footprint, ...]:
    """Count the bytes of all parts of a model; this steps their optimizers once, on gradients of zero."""
    kept = [_kept(part) for part in parts]
    tied = _tied_bytes(parts)
    found = []
    for number, (part, own) in enumerate(zip(parts, kept, strict=True)):
        starts_stage = number == 0 or parts[number - 1].ends_stage
        input_kept = starts_stage or own.keeps_input or kept[number - 1].keeps_output
        boundary = sum(tensor.nbytes for tensor in part.message.tensors)
        of_optimizer, of_predictor = _optimizer_bytes(part, optimizer)
        held = Footprint(
            weights=storage_bytes(part.module.parameters()),
            gradients=storage_bytes(part.trained),
            optimizer=of_optimizer,
            activations=own.inside + (boundary if input_kept else 0),
            boundary=boundary,
            output=own.output,
            skip=own.skip,
            tied=tied[number],
            predictor=of_predictor,
            workspace=_workspace(part),
        )
        found.append(held)
    return tuple(found)


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of the tensors' storages, each storage once."""
    return sum({_place(part): part.untyped_storage().nbytes() for tensor in tensors for part in _strided(tensor)}.values())


def _strided(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return what a tensor is made of: itself, or the indices and values of a sparse one."""
    return (tensor._indices(), tensor._values()) if tensor.is_sparse else (tensor,)


def _place(tensor: Tensor) -> int:
    """Tell storages apart; a place is used again once a storage is freed, so hold what is compared. Sparse tensors have none."""
    return 0 if tensor.is_sparse else tensor.untyped_storage().data_ptr()


@dataclass(frozen=True, slots=True)
class _Kept:
    """What autograd keeps of one part."""

    inside: int
    """Bytes, without parameters, buffers and input; without the output too where a layer follows in the same stage."""
    keeps_input: bool
    keeps_output: bool
    output: int
    """Bytes of the output, as far as it goes to the next part."""
    skip: float | None
    """Bytes of what goes over a skip connection."""


def _kept(part: Part) -> _Kept:
    inputs = part.message.with_gradients()
    # by storage: views and tensors that are saved twice count once
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        saved[_place(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.enable_grad(), saved_tensors_hooks(pack, lambda tensor: tensor):
        output = part.output(inputs)
        roots = part.roots(output)
    outputs = tensors_in(output)
    places = [{_place(tensor) for tensor in tensors} for tensors in (inputs, outputs)]
    apart = places[0].union(*([] if part.ends_stage else places[1:]))
    apart.update(_place(tensor) for tensor in (*part.module.parameters(), *part.module.buffers()))
    del roots  # held until here: the graph keeps alive what was saved, so that no place was used twice
    onwards, *skips = (sum(tensor.nbytes for tensor in tensors_in(value)) for value in part.ways(output))
    return _Kept(
        inside=sum(size for place, size in saved.items() if place not in apart),
        keeps_input=not places[0].isdisjoint(saved),
        keeps_output=not places[1].isdisjoint(saved),
        output=onwards,
        # costs have one number for all of a stage: with the mean the total is what travels
        skip=sum(skips) / len(skips) if skips else None,
    )


def _tied_bytes(parts: Sequence[Part]) -> list[int | None]:
    """Return by part the bytes of the trained parameters that another stage holds, too; None for all where there are none."""
    holders: dict[int, set[int]] = {}
    for part in parts:
        for parameter in part.trained:
            holders.setdefault(id(parameter), set()).add(part.stage)
    if all(len(stages) == 1 for stages in holders.values()):
        return [None] * len(parts)
    return [storage_bytes(parameter for parameter in part.trained if len(holders[id(parameter)]) > 1) for part in parts]


def _optimizer_bytes(part: Part, make: Callable[[list[nn.Parameter]], Optimizer]) -> tuple[int, int]:
    """Return the bytes of the optimizer's state after a step, and of what a predictor keeps of it."""
    if not part.trained:
        return 0, 0
    optimizer = made_optimizer(make, part.trained)
    predictor = make_predictor(optimizer, part.trained, AdamPrediction.BIAS_CORRECTED)
    for parameter in part.trained:
        zero = torch.zeros_like(parameter)
        parameter.grad = zero.to_sparse() if isinstance(optimizer, SparseAdam) else zero  # it takes no other
    predictor.before_update()
    optimizer.step()
    optimizer.zero_grad()
    remembered = [tensor for tensor in predictor.state() if tensor is not None]
    state = (leaf for leaf in tree_leaves(list(optimizer.state.values())) if isinstance(leaf, Tensor))
    return storage_bytes(state), storage_bytes(remembered)


def _workspace(part: Part) -> int:
    """Return by how much the bytes alive rise in the forward or backward above those kept between the two."""
    inputs = part.message.with_gradients()
    leaves = [tensor for tensor in inputs if tensor.requires_grad] + part.trained
    live = LiveBytes()
    with torch.enable_grad(), live:
        roots = [root for root in part.roots(part.output(inputs)) if root.requires_grad]
        kept: int = live.now
        if roots:
            seeds = [torch.ones_like(root) for root in roots]
            gradients = torch.autograd.grad(roots, leaves, seeds, allow_unused=True)
            del gradients
    return max(0, live.peak - kept)


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves its __init_subclass__ untyped
    """While entered, counts the bytes of all storages that operators have made in this thread and that are still alive."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # so in torch
        self.now = 0
        """Bytes alive."""
        self.peak = 0
        """The most there were."""
        self._known: weakref.WeakSet[UntypedStorage] = weakref.WeakSet()

    def __torch_dispatch__(  # noqa: PLR0917  # torch calls it so
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the operator and count what it has made; an output on an argument's storage is a view of it."""
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        result = func(*args, **(kwargs or {}))
        old = {_place(tensor) for tensor in given}
        for leaf in tree_leaves(result):
            for part in _strided(leaf) if isinstance(leaf, Tensor) else ():
                if _place(part) not in old:
                    self._add(part.untyped_storage())
        return result

    def _add(self, storage: UntypedStorage) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        # called when the storage goes, in whatever order Python and autograd let go of it
        weakref.finalize(storage, self._drop, size)

    def _drop(self, size: int) -> None:
        self.now -= size

"""Backward with other weights than forward, without running the forward again.

Forward records with a tape on. What it saves for backward and lies in the storage of one of the stage's parameters is replaced
by its place: which parameter, size, stride, offset. Backward sets the tape's weights, and every place is read from those. So
backward differentiates with its own weights on the activations that forward saved:

    forward on w_F:   y = x @ w_F      saved: x, place of w      backward on w_B:   dx = dy @ w_B^T,   dw = x^T @ dy

A copy that autocast made of a parameter is a place too, with the type that it was cast to. Other tensors that were computed
from weights (0.5 * w) look like any activation: `executor.stage.probe` refuses stages that save such.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from executor.stage.weights import WeightSet
from schedir.errors import RefusedError


class Place(NamedTuple):
    """A saved tensor that lies in a parameter, or in a parameter cast to another type."""

    parameter: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    """In the cast copy, or relative to the parameter's own."""


class Saved(NamedTuple):
    """Any other saved tensor."""

    tensor: Tensor
    version: int
    """Of its memory when it was saved: hooks switch torch's own check off."""


class Tape:
    """What one forward saved for a backward that will read other weights."""

    def __init__(self, weights: WeightSet, *, stage: int) -> None:
        self._stage = stage
        self._leaves = weights.leaves
        self._parameters = {leaf.untyped_storage().data_ptr(): number for number, leaf in enumerate(weights.leaves)}
        self._weights: WeightSet | None = None

    def recording(self) -> saved_tensors_hooks:
        """Return the context in which forward runs."""
        return saved_tensors_hooks(self._pack, self._unpack)

    def use(self, weights: WeightSet) -> None:
        """Set the weights that backward reads."""
        self._weights = weights

    def forget_leaves(self) -> None:
        """Stop looking for places, behind the forward."""
        self._leaves, self._parameters = (), {}

    def _pack(self, tensor: Tensor) -> Place | Saved:
        # by storage: a view, a transposed or a flattened weight lies in its parameter's, at an offset and with strides of its own
        number = self._parameters.get(tensor.untyped_storage().data_ptr())
        if number is not None:
            offset = int(tensor.storage_offset()) - int(self._leaves[number].storage_offset())
            return Place(number, tensor.dtype, tuple(tensor.shape), tensor.stride(), offset)
        cast = cast_of(tensor)
        if cast is not None:
            number = self._parameters.get(cast.untyped_storage().data_ptr())
        if number is not None:
            return Place(number, tensor.dtype, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))
        # without its graph: an output that its own node saves would keep that node, and so itself, alive for ever
        return Saved(tensor.detach(), tensor._version)

    def _unpack(self, packed: Place | Saved) -> Tensor:
        if isinstance(packed, Saved):
            if packed.tensor._version != packed.version:
                raise self._changed(packed.tensor)
            return packed.tensor
        assert self._weights is not None, "backward sets the weights first"
        source = self._weights.cast(packed.parameter, packed.dtype)
        return source.as_strided(packed.size, packed.stride, source.storage_offset() + packed.offset)

    def _changed(self, tensor: Tensor) -> RefusedError:
        # the node that asks for its saved tensor is the one that runs: MulBackward0 of a product
        operation = torch._C._current_autograd_node().name().rstrip("0123456789").removesuffix("Backward")
        return RefusedError(
            f"stage {self._stage} changes a tensor of shape {list(tensor.shape)} in place (a buffer, or an activation) that the "
            f'backward of {operation} still needs: use inplace=False, a clone() of a buffer, or compile with recompute="always"'
        )


def cast_of(tensor: Tensor) -> Tensor | None:
    """Return the leaf that a saved tensor is nothing but a cast copy of (or a view of one), None for any other tensor."""
    copy: Any = tensor._base if tensor._is_view() else tensor
    if copy.grad_fn is None:
        return None
    # autocast's copy hangs on one node, the cast, and that on the leaf; equal values prove that nothing else lies between
    parents = copy.grad_fn.next_functions
    leaf = getattr(parents[0][0], "variable", None) if len(parents) == 1 else None
    if leaf is None or leaf.dtype == copy.dtype or leaf.shape != copy.shape or leaf.stride() != copy.stride():
        return None
    return leaf if torch.equal(leaf.detach().to(copy.dtype), copy.detach()) else None

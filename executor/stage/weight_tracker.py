"""Follow what a stage computes, and tell whether its backward reads the weights of its forward.

    computed from weights and nothing else   0.5 * w, cat of weights, weight_norm's product, a transposed copy: as good as weights
    computed from the input too              activations: C5 of the scalar cases says that backward uses what forward saved

A dispatch mode sees every operation and marks the memory of its results as one or the other. `executor.stage.probe` lets a stage
run under it once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_LEAVES_TORCH = frozenset({torch.ops.aten._local_scalar_dense})
"""Operations that give Python a value, of which nobody knows what becomes: item(), float(), bool()."""
_LEAVES_TORCH_WHOLE = frozenset({Tensor.numpy, Tensor.tolist, Tensor.__array__})
"""The same for whole tensors; these are no operations, so they are seen where they are called."""

_VALUE_FREE = frozenset(
    getattr(torch.ops.aten, name)
    for name in (
        "zeros_like",
        "ones_like",
        "empty_like",
        "full_like",
        "rand_like",
        "randn_like",
        "new_zeros",
        "new_ones",
        "new_empty",
    )
)
"""Operations that take no more than a shape from their argument."""


class WeightTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves its __init_subclass__ untyped
    """While active, knows which memory holds weights or what was computed from nothing else, and sees who reads it in backward.

    Memory is known by its address; every operation marks its results anew, so an address that is used again is no danger.
    """

    def __init__(self, weights: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # so in torch
        self._weights = {_address(tensor) for tensor in weights if tensor.numel()}
        self._inputs = {_address(tensor) for tensor in inputs}
        self._derived: dict[int, str] = {}
        """Address -> who computed it from weights."""
        self.in_backward = False
        """Set when the forward is over."""
        self.culprit = ""
        """The first thing of the forward's weights that backward has read."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow what this thread computes inside."""
        with self, _WholeTensors(self):
            yield

    def __torch_dispatch__(  # noqa: PLR0917 - as torch has it
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation and mark its results."""
        addresses = (_address(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        read = [address for address in addresses if address]
        if self.in_backward and not self.culprit:
            self.culprit = next((found for address in read if (found := self._describe(address))), "")
        if func.overloadpacket in _LEAVES_TORCH:
            self.note_value(str(func.overloadpacket), read)
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._mark(func, read, _address(leaf))
        return result

    def note_value(self, taker: str, read: Sequence[int]) -> None:
        """Note that values of this memory were given to Python, where no swap of weights can follow them."""
        if not self.culprit and any(address in self._weights or address in self._derived for address in read):
            self.culprit = f"the value that {taker} took from weights{_place()}"

    def _describe(self, address: int) -> str:
        return self._derived.get(address, "") or ("the weights themselves, past autograd" if address in self._weights else "")

    def _mark(self, func: Any, read: list[int], made: int) -> None:
        if not made or made in self._weights:  # nothing, or a view of a weight
            return
        # the operation may have written into memory that is used again, or in place: what counts is what it read now
        known = self._derived.pop(made, "")
        from_input = not self._inputs.isdisjoint(read)
        from_weights = not self._weights.isdisjoint(read) or not self._derived.keys().isdisjoint(read) or (known and made in read)
        self._inputs.discard(made)
        # what has seen the input is an activation, whatever else went in (C5)
        if from_input:
            self._inputs.add(made)
        elif from_weights and func.overloadpacket not in _VALUE_FREE:
            self._derived[made] = known if known and made in read else f"what {func.overloadpacket} computed from weights{_place()}"


class _WholeTensors(TorchFunctionMode):
    """While active, tells the tracker whose values become arrays or lists."""

    def __init__(self, tracker: WeightTracker) -> None:
        super().__init__()
        self._tracker = tracker

    def __torch_function__(  # noqa: PLR0917 - as torch has it
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one call."""
        if func in _LEAVES_TORCH_WHOLE:
            self._tracker.note_value(func.__name__, [_address(args[0])])
        return func(*args, **(kwargs or {}))


def _address(tensor: Tensor) -> int:
    """Return where a tensor's memory lies; 0 for none. A sparse gradient is made of dense tensors, which are seen by themselves."""
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


def _place() -> str:
    """Return ` in LAYER`, the innermost module on the call stack."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module):
            return f" in {type(owner).__name__}"
        frame = frame.f_back
    return ""

"""Prove, before the first use, that a stage's backward can read other weights than its forward (see `executor.stage.swap`).

A dispatch mode follows every operation of one forward and one backward of the stage and marks memory:

    computed from weights and nothing else   0.5 * w, cat of weights, weight_norm's product, a transposed copy
    computed from the input too              activations: C5 of the scalar cases says that backward uses what forward saved

Backward may not read the forward's weights, nor anything that was computed from them alone. It is run on a copy of the weights;
where it still reads the originals the stage is refused with the operation named. Then its gradients must be those of plain
differentiation, since the copies are equal. So a stage is right or refused, never silently wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from executor.boundary import Message, noting
from executor.plan.actions import PlannedAction
from executor.stage.explain import explaining
from executor.stage.record import Gradients, Record, differentiate
from executor.stage.stage import Sent, StageRuntime
from executor.stage.weights import WeightSet
from schedir.errors import RefusedError
from schedir.ir.action import Direction, Kind

REMEDY = 'compile with recompute="always", or build with backward_weights="stash" (pipedream: weights="stash")'
RELATIVE_TOLERANCE = 1e-3
"""Kernels may add up in another order on the second run; a wrong tensor is off by more."""

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


def probe_stages(stages: Sequence[StageRuntime], swapped: frozenset[int], message: Message) -> None:
    """Probe the stages whose backwards read other weights, on the model's first micro-batch; raise RefusedError.

    Buffers, random numbers and weights are afterwards what they were.
    """
    # Whatever the caller's thread is in. Backwards of tensors on a GPU run in a thread of autograd's own otherwise: cuBLAS may
    # be the first there to call CUDA, which it warns of, and the names of layers cannot be read off the stack.
    with torch.inference_mode(mode=False), torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
        arrived = {0: [message]}
        # stages behind the last one that is probed need no input
        for number in range(max(swapped, default=-1) + 1):
            stage = stages[number]
            messages = [stage.home.message(each) for each in arrived.pop(number)]
            sent = explaining(probe, number)(stage, *messages) if number in swapped else _pass_on(stage, *messages)
            _deliver(sent, stage, arrived)


def _deliver(sent: Sent, stage: StageRuntime, arrived: dict[int, list[Message]]) -> None:
    """Put a stage's messages where they go: the next stage has it first, those over skip connections behind it by source."""
    neighbour, *skipped = _messages(sent) or (None,)
    if neighbour is not None:
        arrived.setdefault(stage.number + 1, []).insert(0, neighbour)
    for skip, each in zip(stage.skips.sends if stage.skips is not None else (), skipped, strict=True):
        arrived.setdefault(skip.target, []).append(each)


def _messages(sent: Sent) -> tuple[Message, ...]:
    return () if sent is None else sent if isinstance(sent, tuple) else (sent,)


def probe(stage: StageRuntime, *messages: Message) -> Sent:
    """Probe one stage on one input, the messages that have arrived; return its output."""
    newest = stage.weights.newest
    _check_storage(stage.number, newest.leaves)
    # two copies of equal values: which one backward reads is told by the memory that is read, and gradients must be the same
    forward, backward = (WeightSet([leaf.detach().clone() for leaf in newest.leaves], version=0) for _ in range(2))
    plain, taped = (stage.record_of(*messages) for _ in range(2))
    sent = _forward(stage, plain, forward)
    plain.seeds = _seeds(plain, sent)
    expected = differentiate(plain, inputs=True, parameters=True)
    tracker = WeightTracker(forward.leaves, taped.message.tensors)
    with tracker, _WholeTensors(tracker):
        _forward(stage, taped, forward, swapped=True)
        taped.seeds = plain.seeds
        assert taped.tape is not None
        taped.tape.use(backward)
        tracker.in_backward = True
        found = differentiate(taped, inputs=True, parameters=True)
    if tracker.culprit:
        raise RefusedError(
            f"backward of stage {stage.number} reads other weights than its forward, but needs {tracker.culprit}: {REMEDY}"
        )
    _compare(stage.number, found, expected)
    return sent


def _pass_on(stage: StageRuntime, *messages: Message) -> Sent:
    return _forward(stage, stage.record_of(*messages), stage.weights.newest)


def _forward(stage: StageRuntime, record: Record, weights: WeightSet, *, swapped: bool = False) -> Sent:
    action = PlannedAction(
        task=0,
        kind=Kind.FORWARD,
        stage=stage.number,
        micro_batch=0,
        version=0,
        horizon=0,
        maker=-1,
        direction=Direction.FORWARD,
        swapped=swapped,
    )
    with noting(f"stage {stage.number}, first micro-batch"), stage.buffers.untouched():
        stage.weights.bind(weights)
        return stage.compute_with_graph(action, record, weights)


def _seeds(record: Record, sent: Sent) -> Gradients:
    """Return the gradients that enter: the loss's, or random ones at the outputs of a stage that has no loss."""
    if sent is None:
        assert record.seeds is not None
        return record.seeds
    generator = torch.Generator().manual_seed(0)

    def drawn(x: Tensor) -> Tensor:
        return torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x.device)

    tensors = [tensor for message in _messages(sent) for tensor in message.tensors]
    return tuple(None if root is None else drawn(x) for x, root in zip(tensors, record.roots, strict=True))


def _check_storage(stage: int, leaves: Sequence[Tensor]) -> None:
    addresses = [leaf.untyped_storage().data_ptr() for leaf in leaves if leaf.numel()]
    if len(set(addresses)) < len(addresses):
        raise RefusedError(f"parameters of stage {stage} share their memory, so backward cannot swap them apart: {REMEDY}")


def _compare(stage: int, found: Gradients, expected: Gradients) -> None:
    for ours, plain in zip(map(_dense, found), map(_dense, expected), strict=True):
        if plain is not None and not bool(plain.isfinite().all()):
            raise RefusedError(
                f"stage {stage} gives gradients that are not finite on the first micro-batch, so nothing proves that its saved "
                f"weights can be swapped: mend data or weights, or {REMEDY}"
            )
        if ours is None or plain is None:
            same = ours is plain
        else:
            scale = float(plain.abs().max()) if plain.numel() else 0.0
            same = torch.allclose(ours, plain, rtol=RELATIVE_TOLERANCE, atol=RELATIVE_TOLERANCE * scale, equal_nan=True)
        if not same:
            raise RefusedError(f"stage {stage} gives other gradients when its saved weights are swapped for equal ones: {REMEDY}")


def _dense(gradient: Tensor | None) -> Tensor | None:
    return gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient


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

    def __torch_dispatch__(  # noqa: PLR0917 - torch calls it so
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
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

    def __torch_function__(  # noqa: PLR0917 - torch calls it so
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
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

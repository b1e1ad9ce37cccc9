"""Prove, before the first use, that a stage's backward can read other weights than its forward (see `executor.stage.swap`).

    forward on one copy of the weights ──▶ backward on another: may read nothing of the first, nor what was computed from it alone
                                       └─▶ its gradients must be those of plain differentiation, since the copies are equal

`executor.stage.weight_tracker` tells what is read; where that is of the first copy the stage is refused with the operation named.
So a stage is right or refused, never silently wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from executor.boundary import Message, noting
from executor.plan.actions import PlannedAction
from executor.stage.explain import explaining
from executor.stage.gradients import Gradients
from executor.stage.record import Record, differentiate
from executor.stage.stage import Sent, StageRuntime
from executor.stage.weight_tracker import WeightTracker
from executor.stage.weights import WeightSet
from schedir.errors import RefusedError
from schedir.ir.action import Direction, Kind

REMEDY = 'compile with recompute="always", or build with backward_weights="stash" (pipedream: weights="stash")'
RELATIVE_TOLERANCE = 1e-3
"""Kernels may add up in another order on the second run; a wrong tensor is off by more."""


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
    with tracker.watching():
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
    # made up: weights are bound by hand below, so of all this only kind, micro-batch and `swapped` are read
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
    # Random, not ones: a norm or a softmax turns equal gradients into 0, which proves nothing. Drawn by a generator of its own,
    # on the CPU: the process's stays as it was, and every machine draws the same.
    generator = torch.Generator().manual_seed(0)

    def drawn(x: Tensor) -> Tensor:
        return torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x.device)

    tensors = [tensor for message in _messages(sent) for tensor in message.tensors]
    return tuple(None if root is None else drawn(x) for x, root in zip(tensors, record.roots, strict=True))


def _check_storage(stage: int, leaves: Sequence[Tensor]) -> None:
    # empty tensors all have the address 0
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
            # entries that cancel to nearly 0 have no digit in common, so they are measured by the largest
            scale = float(plain.abs().max()) if plain.numel() else 0.0
            same = torch.allclose(ours, plain, rtol=RELATIVE_TOLERANCE, atol=RELATIVE_TOLERANCE * scale, equal_nan=True)
        if not same:
            raise RefusedError(f"stage {stage} gives other gradients when its saved weights are swapped for equal ones: {REMEDY}")


def _dense(gradient: Tensor | None) -> Tensor | None:
    return gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient

"""Costs of stages that hold a share of the work of those whose costs are known: one model, cut into more stages.

Times, weights and what is kept inside of a stage shrink with it; the message between stages, the workspace, the latency of a
hand-over and the gap before a task do not. Only costs that are the same for every stage can be shared out: of a stage with
costs of its own nobody knows which part of them its halves take.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from schedir.costs.table.meaning import Granularity
from schedir.costs.table.pieces import TIMES, PieceBytes, PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.uniform import UniformCosts
from schedir.costs.work import WorkTime
from schedir.errors import RefusedError

REMEDY = "give costs per layer, which are cut anew for every schedule, or compare schedules with equally many stages"

_WHOLE_BYTES = ("weights", "gradients", "optimizer", "predictor")
_KEPT_BYTES = ("activations", "activations_selective", "activations_weight_grad")
"""The stage's input is part of them, and as large as before."""
_UNIFORM_TIMES = ("forward", "backward", "input_grad", "weight_grad", "recompute", "overlapped", "update", "predict")


def uniform_share(costs: UniformCosts, share: Fraction) -> UniformCosts:
    """Return the costs of stages with that share of the work; raises RefusedError where they differ from stage to stage."""
    for name in (*_UNIFORM_TIMES, "transfer", "transfer_bytes", "skip_bytes"):
        value = getattr(costs, name)
        if isinstance(value, tuple):
            raise RefusedError(f"{name} has {len(value)} values, one per stage, but numbers of stages differ: {REMEDY}")
    given = {name: getattr(costs, name) for name in _UNIFORM_TIMES}
    # nothing given means 1, 2 and halves of 1 each: stated, so that they shrink like what was given
    if costs.backward is None and costs.input_grad is None:
        given |= {"input_grad": 1.0, "weight_grad": 1.0}
    shrunk: dict[str, Any] = {name: float(share * Fraction(value)) for name, value in given.items() if value is not None}
    return replace(costs, **shrunk)


def table_share(costs: TableCosts, share: Fraction) -> TableCosts:
    """Return the costs of stages with that share of the work.

    Tables by size are read at the costs' own size. Raises RefusedError for stages with rows of their own, for activations
    without the input that is part of them, and for tables by size where micro-batches differ.
    """
    assert costs.granularity is Granularity.STAGE, "layers are cut anew"
    name = costs.file or "the costs table"
    if costs.rows or costs.default is None:
        raise RefusedError(f"{name} has rows of single stages, but numbers of stages differ: {REMEDY}")
    if costs.micro_batch_sizes is not None and costs.default.has_tables:
        raise RefusedError(f"{name} has tables by size and micro-batches of several sizes, but numbers of stages differ: {REMEDY}")
    return replace(costs, default=_piece(costs.default.at(costs.micro_batch_size), share, name))


def _piece(piece: PieceCosts, share: Fraction, name: str) -> PieceCosts:
    times = {each: getattr(piece, each) for each in TIMES}
    shrunk: dict[str, Any] = {each: time.scaled(float(share)) for each, time in times.items() if isinstance(time, WorkTime)}
    return replace(piece, **shrunk, bytes=_bytes(piece.bytes, share, name))


def _bytes(amounts: PieceBytes, share: Fraction, name: str) -> PieceBytes:
    stated = {each: getattr(amounts, each) for each in (*_WHOLE_BYTES, *_KEPT_BYTES)}
    #   kept from F to B    [ the stage's input | what its layers made ]        half of the stage:  [ input | half ]
    #                       ├──── outside ──────┤                                            the input stays as large
    arriving = amounts.boundary if amounts.boundary is not None else amounts.output
    kept = next((each for each in _KEPT_BYTES if stated[each] is not None), None)
    if kept is not None and arriving is None:
        raise RefusedError(
            f"{name} states bytes.{kept} of a stage, but not which part of it is the stage's input, and numbers of stages differ: "
            f"give bytes.boundary; or {REMEDY}"
        )
    found: dict[str, Any] = {each: share * _exact(stated[each]) for each in _WHOLE_BYTES if stated[each] is not None}
    for each in _KEPT_BYTES:
        if stated[each] is not None:
            outside = min(_exact(arriving), _exact(stated[each]))
            found[each] = outside + share * (_exact(stated[each]) - outside)
    return replace(amounts, **{each: float(amount) for each, amount in found.items()})


# a fraction, so that what is shared out is rounded once, at the end
def _exact(amount: Any) -> Fraction:
    return Fraction(amount)

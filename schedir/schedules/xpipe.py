"""XPipe (Guan et al., 2019): 1F1B without a flush over micro-batches, on predicted weights.

    p = 4, T = 2, N = 4, the paper's figure: micro-batches 2i and 2i + 1 are mini-batch i (one column = one slot, * = update,
    ^ = on predicted weights)

        device 0 | F0^ F1^ F2^ F3^ .   .   .   B0  F4^ B1* F5^ B2  F6^ B3* F7^ B4  .   B5* .   B6  .   B7*
        device 1 | .   F0^ F1^ F2^ .   .   B0  F3^ B1* F4^ B2  F5^ B3* F6^ B4  F7^ B5* .   B6  .   B7* .
        device 2 | .   .   F0^ F1^ .   B0^ F2^ B1^*F3^ B2^ F4^ B3^*F5^ B4^ F6^ B5^*F7^ B6^ .   B7^*.   .
        device 3 | .   .   .   F0^ B0^ F1^ B1^*F2^ B2^ F3^ B3^*F4^ B4^ F5^ B5^*F6^ B6^ F7^ B7^*.   .   .

Micro-batches of different mini-batches overlap. A mini-batch's first micro-batch, the bellwether, predicts the weights once
per stage and direction; the others read the very same tensors, also when an update lies between. Horizons: `ir.horizons`.
"""

from __future__ import annotations

from schedir.errors import ArgumentError
from schedir.ir.horizons import check_policy
from schedir.ir.program import Program
from schedir.ir.shape import Shape
from schedir.ir.weights import BackwardWeights, Rule, WeightRule
from schedir.schedules.layout.continuous import continuous_order


def xpipe(shape: Shape, *, horizon: str | int = "xpipe-paper", backward_weights: str = "predict") -> Program:
    """Build XPipe; `horizon` is a policy or a number of updates, `backward_weights` predict or stash (F's prediction).

    Raises ArgumentError for other values.
    """
    return continuous_order("xpipe", shape, weights=predict_rule(horizon, backward_weights))


def predict_rule(horizon: str | int, backward_weights: str) -> WeightRule:
    """Return the rule of predicted weights; raise ArgumentError for a horizon or backward weights that are not known."""
    if backward_weights not in tuple(BackwardWeights):
        raise ArgumentError(f"backward_weights {backward_weights!r} is unknown: use {' or '.join(BackwardWeights)}")
    return WeightRule(Rule.PREDICT, check_policy(horizon), BackwardWeights(backward_weights))

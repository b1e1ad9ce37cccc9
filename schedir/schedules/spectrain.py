"""SpecTrain (Chen et al., 2018): 1F1B without a flush on weights predicted from the smoothed gradient.

    p = 3 m = 1, N = 6 (one column = one slot, * = update, ^ = on predicted weights)

        device 0 | F0^ F1^ F2^ .   .   B0* F3^ B1* F4^ B2* F5^ B3* .   B4* .   B5*
        device 1 | .   F0^ F1^ .   B0* F2^ B1* F3^ B2* F4^ B3* F5^ B4* .   B5* .
        device 2 | .   .   F0^ B0^*F1^ B1^*F2^ B2^*F3^ B3^*F4^ B4^*F5^ B5^*.   .

Stage k predicts k//2 + p - k - 1 updates ahead in the forward and k//2 in the backward: the updates until the mini-batch has
come back to stage 0. A later variant predicts p - k - 1 ahead and lets the backward reuse the forward's prediction:
`horizon="pipeoptim", backward_weights="stash"`. The paper is m = 1; its horizons count micro-batches as if each were updated.
"""

from __future__ import annotations

from schedir.ir.program import Program
from schedir.ir.shape import Shape
from schedir.schedules.layout.continuous import continuous_order
from schedir.schedules.xpipe import predict_rule


def spectrain(shape: Shape, *, horizon: str | int = "spectrain-paper", backward_weights: str = "predict") -> Program:
    """Build SpecTrain; options as for XPipe."""
    return continuous_order("spectrain", shape, weights=predict_rule(horizon, backward_weights))

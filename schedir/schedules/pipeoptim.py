"""PipeOptim (Guan et al., 2023): predict in the forward only, by the optimizer's own step.

    p = 3 m = 1, N = 6 (one column = one slot, * = update, ^ = on predicted weights)

        device 0 | F0^ F1^ F2^ .   .   B0* F3^ B1* F4^ B2* F5^ B3* .   B4* .   B5*
        device 1 | .   F0^ F1^ .   B0* F2^ B1* F3^ B2* F4^ B3* F5^ B4* .   B5* .
        device 2 | .   .   F0  B0* F1  B1* F2  B2* F3  B3* F4  B4* F5  B5* .   .

Stage k predicts p - k - 1 updates ahead in the forward: the weights that the backward will find, which reads the current ones.
At most two parameter sets per stage: the current one and the forward's prediction.
"""

from __future__ import annotations

from schedir.ir.program import Program
from schedir.ir.shape import Shape
from schedir.schedules.layout.continuous import continuous_order
from schedir.schedules.xpipe import predict_rule


def pipeoptim(shape: Shape, *, horizon: str | int = "pipeoptim") -> Program:
    """Build PipeOptim; `horizon` is a policy or a number of updates."""
    return continuous_order("pipeoptim", shape, weights=predict_rule(horizon, "predict"))

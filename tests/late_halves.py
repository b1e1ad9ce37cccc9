"""A program with updates in the middle of backwards, between R and I, and between I and W, the same on every stage."""

from schedir.ir.program import Program
from schedir.ir.weights import Rule
from tests.programs import written

# updates of the stage so far  0   0   0   0   0   0   0   1   1   2   2   2   3
LATE_HALVES = "0F0 0F1 0F2 0F3 0I0 0I1 0W0 0R2 0W1 0I2 0I3 0W2 0W3"
# version that each reads        0   0   0   0   0   0   0   1   0   1   2   1   2
"""Four mini-batches of one micro-batch; updates 1 to 4 are made behind W0, W1, W2 and W3."""


def late_halves(num_stages: int) -> Program:
    """Return the program under `current`, a stage on each device."""
    orders = [" ".join(f"{stage}{cell[1:]}" for cell in LATE_HALVES.split()) for stage in range(num_stages)]
    return written(*orders, m=1, n=4, weights=Rule.CURRENT)

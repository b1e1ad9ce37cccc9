"""PipeDream-2BW (Narayanan et al., 2021): 1F1B without a flush and two versions of the weights.

    p = 2, m = 2 N = 4 (one column = one slot, * = update)

        device 0 | F0 F1 .  B0 F2 B1*F3 B2 F4 B3*F5 B4 F6 B5*F7 B6 .  B7*
        device 1 | .  F0 B0 F1 B1*F2 B2 F3 B3*F4 B4 F5 B5*F6 B6 F7 B7*.

Micro-batch j reads version max(j // m - 1, 0), forward and backward, on every stage: W(t+1) = W(t) - lr * grad f(W(t-1)). A
version must exist before its first reader starts: m >= p.
"""

from __future__ import annotations

from schedir.ir.program import Program
from schedir.ir.shape import Shape
from schedir.ir.weights import Rule, WeightRule
from schedir.schedules.layout.continuous import continuous_order
from schedir.schedules.shape import accepts_any


def accepts_2bw(shape: Shape) -> str | None:
    """Refuse fewer micro-batches than stages."""
    if shape.num_micro_batches < shape.num_devices:
        return (
            f"micro-batch j reads version j // m - 1, which {shape.num_micro_batches} micro-batches per update make too late for "
            f"{shape.num_devices} stages: use at least {shape.num_devices} micro-batches"
        )
    return accepts_any(shape)


def pipedream_2bw(shape: Shape) -> Program:
    """Build PipeDream-2BW."""
    return continuous_order("pipedream-2bw", shape, weights=WeightRule(Rule.DOUBLE_BUFFER))

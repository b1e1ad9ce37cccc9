"""How many updates ahead weights are predicted, by policy.

p stages, k the 0-based stage, T micro-batches per mini-batch; F and B the two directions.

| policy               | F                                  | B                    | source                                   |
|----------------------|------------------------------------|----------------------|------------------------------------------|
| exact                | t - v, counted on the graph        | 0                    | derived: the weights of t's own update   |
| xpipe-paper          | floor((T+p-k/2-2)/T + 1/2)         | floor((T+k//2-1)/T)  | XPipe (Guan et al. 2019); rounding chosen|
| xpipe-paper-half-up  | the same                           | floor(… + 1/2)       | both rounded half up                     |
| xpipe-paper-half-even| rounded half to even               | floor                | the public code's rounding               |
| spectrain-paper      | k//2 + p - k - 1                   | k//2                 | SpecTrain (Chen et al. 2018)             |
| pipeoptim            | p - k - 1                          | 0                    | PipeOptim (Guan et al. 2023)             |
| round-trip           | ceil(k/2T) - 1 - floor((k-p-T+1)/T)| ceil(k/2T)           | derived, see `round_trip`                |
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import floor

from schedir.errors import ArgumentError

Formula = Callable[[int, int, int], tuple[int, int]]
"""(p, k, T) -> (forward horizon, backward horizon)."""


def _half_up(value: Fraction) -> int:
    return floor(value + Fraction(1, 2))


def _forward_xpipe(p: int, k: int, T: int) -> Fraction:
    return Fraction(2 * T + 2 * p - k - 4, 2 * T)


def xpipe_paper(p: int, k: int, T: int) -> tuple[int, int]:
    """Half up forward, floor backward; with T = 1 and floors it is SpecTrain's rule."""
    return _half_up(_forward_xpipe(p, k, T)), (T + k // 2 - 1) // T


def xpipe_paper_half_up(p: int, k: int, T: int) -> tuple[int, int]:
    """Both rounded half up."""
    return _half_up(_forward_xpipe(p, k, T)), _half_up(Fraction(T + k // 2 - 1, T))


def xpipe_paper_half_even(p: int, k: int, T: int) -> tuple[int, int]:
    """Forward rounded half to even, backward floored."""
    return round(_forward_xpipe(p, k, T)), (T + k // 2 - 1) // T


def spectrain_paper(p: int, k: int, T: int) -> tuple[int, int]:  # noqa: ARG001 - one signature for all
    """Count micro-batches as if each were updated: T does not enter."""
    return k // 2 + p - k - 1, k // 2


def pipeoptim(p: int, k: int, T: int) -> tuple[int, int]:  # noqa: ARG001 - so here
    """Predict in the forward only, up to the weights that the backward will find."""
    return p - k - 1, 0


def round_trip(p: int, k: int, T: int) -> tuple[int, int]:
    """Count a stage's updates during a mini-batch's round trip on the steady unit-slot timeline (F = B = 1).

    There stage k runs F of micro-batch j in slot 2j + k and B in slot 2j + 2p - 1 - k, so update n of stage k ends at
    2(nT + T - 1) + 2p - k. The horizon counts those that end after the bellwether (j = tT) starts and strictly before
    micro-batch tT + T - 1 ends its backward on stage 0, at 2(tT + T - 1) + 2p.
    """
    last = -(-k // (2 * T)) - 1  # the last n - t that ends strictly before: 2T(n - t) < k
    # F: the first that ends after the bellwether's start has T(n - t) > k - p - T + 1, and last - first + 1 are counted;
    # B: the first that ends behind the bellwether's backward is the mini-batch's own, n = t
    return last - (k - p - T + 1) // T, last + 1


FORMULAS: dict[str, Formula] = {
    "pipeoptim": pipeoptim,
    "round-trip": round_trip,
    "spectrain-paper": spectrain_paper,
    "xpipe-paper": xpipe_paper,
    "xpipe-paper-half-even": xpipe_paper_half_even,
    "xpipe-paper-half-up": xpipe_paper_half_up,
}
"""Policies that are constants of (p, k, T)."""

POLICIES = ("exact", *FORMULAS)
"""All names that `horizon=` takes beside an integer."""

MOST = 9999
"""The largest constant horizon; graphs hold horizons as int16."""


def check_policy(horizon: str | int | None) -> str | int:
    """Return the policy if it is a known name or an integer of at least 0 (also as text)."""
    if isinstance(horizon, str) and horizon.isdecimal():
        horizon = int(horizon)
    known = horizon in POLICIES if isinstance(horizon, str) else isinstance(horizon, int) and 0 <= horizon <= MOST
    # True is an int to Python
    if not known or isinstance(horizon, bool):
        raise ArgumentError(f"horizon {horizon!r} is unknown: use {', '.join(POLICIES)} or an integer from 0 to {MOST}")
    assert horizon is not None
    return horizon


def constant_horizons(horizon: str | int, num_stages: int, num_micro_batches: int) -> tuple[list[int], list[int]]:
    """Return forward and backward horizons by stage for any policy but `exact`; an integer is used in the forward only."""
    if isinstance(horizon, int):
        return [horizon] * num_stages, [0] * num_stages
    pairs = [FORMULAS[horizon](num_stages, stage, num_micro_batches) for stage in range(num_stages)]
    return [forward for forward, _ in pairs], [backward for _, backward in pairs]

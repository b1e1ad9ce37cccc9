"""PipeDream (Narayanan et al., SOSP 2019): 1F1B without a flush; old weights are stashed until their backward.

    p = 3, m = 1, N = 6 (one column = one slot, * = update)

        device 0 | F0 F1 F2 .  .  B0*F3 B1*F4 B2*F5 B3*.  B4*.  B5*
        device 1 | .  F0 F1 .  B0*F2 B1*F3 B2*F4 B3*F5 B4*.  B5*.
        device 2 | .  .  F0 B0*F1 B1*F2 B2*F3 B3*F4 B4*F5 B5*.  .

With stashing F reads the newest weights of its stage and B the very same; 0-based stage k of p lags by p - 1 - k updates,
w(t+1) = w(t) - lr * grad f(w1(t-p+1), …, wp(t)), and keeps p - k versions. With vertical sync all stages read the version
that stage 0 read and all keep p. `weights="current"` keeps none: B reads newer weights than F. The paper has m = 1; with more,
gradients of m micro-batches accumulate before each update.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schedir.errors import ArgumentError, RefusedError
from schedir.expect import expect
from schedir.ir.program import Program
from schedir.ir.shape import Shape, is_count
from schedir.ir.weights import Rule, WeightRule
from schedir.schedules.layout.continuous import continuous_order, replicated_order

WEIGHTS = (Rule.STASH, Rule.VERTICAL_SYNC, Rule.CURRENT)


def pipedream(shape: Shape, *, weights: str = "stash", replicas: Sequence[int] | None = None) -> Program:
    """Build PipeDream; `weights` is stash, vertical-sync or current, `replicas` the number of devices of each stage (1F1B-RR).

    Raises ArgumentError for other values, RefusedError for replicas that vertical sync or too few mini-batches exclude.
    """
    if weights not in tuple(WEIGHTS):
        raise ArgumentError(f"weights {weights!r} is unknown: use {', '.join(WEIGHTS)}")
    rule = WeightRule(Rule(weights))
    if replicas is None:
        return continuous_order("pipedream", shape, weights=rule)
    expect(replicas, Iterable, "replicas", remedy="give the number of devices of each stage")
    replicas = tuple(replicas)
    _check_replicas(shape, replicas, weights)
    if max(replicas) == 1:
        return continuous_order("pipedream", shape, weights=rule)
    return replicated_order("pipedream", shape, weights=rule, replicas=replicas)


def _check_replicas(shape: Shape, replicas: Sequence[int], weights: str) -> None:
    if not all(is_count(count) for count in replicas):
        raise ArgumentError(f"replicas {replicas!r} must be integers of at least 1, one for each stage")
    if sum(replicas) != shape.num_devices:
        raise ArgumentError(f"replicas {replicas!r} need {sum(replicas)} devices, but num_devices is {shape.num_devices}")
    if weights == Rule.VERTICAL_SYNC and max(replicas) > 1:
        raise RefusedError("pipedream: vertical sync is not defined for replicated stages: use weights 'stash' or replicas of 1")
    if max(replicas) > shape.num_mini_batches:
        raise RefusedError(
            f"pipedream: {max(replicas)} replicas take mini-batches in turn, but there are {shape.num_mini_batches}: "
            "some would have none, so give more mini-batches"
        )

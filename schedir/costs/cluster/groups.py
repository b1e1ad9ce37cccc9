"""Which physical devices belong to each pipeline device, where the axes of parallelism lie in a stated order.

Physical devices are numbered host after host; the axes count them off, the innermost fastest:

    order tensor, data, pipeline, with sizes 2, 2, 3        neighbours along an axis are 1, 2, 4 devices apart

        physical   0 1   2 3   4 5   6 7   8 9  10 11
        replica     0     1     0     1     0     1
        pipeline    [0]         [1]         [2]              replica 0 is placed: pipeline device 1 is 4, 5
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from itertools import accumulate
from operator import mul


class Axis(StrEnum):
    """What physical devices next to each other have in common."""

    TENSOR = "tensor"
    """One pipeline device: tensor, expert and context parallel inside."""
    DATA = "data"
    """One stage, other replicas of the whole pipeline."""
    PIPELINE = "pipeline"
    """One replica, other pipeline devices."""


DEFAULT_ORDER = (Axis.TENSOR, Axis.DATA, Axis.PIPELINE)
"""Tensor groups inside a host, stages across hosts."""


def groups_in_order(order: tuple[Axis, Axis, Axis], sizes: Mapping[Axis, int]) -> list[tuple[int, ...]]:
    """Return the physical devices of each pipeline device of replica 0; `order` is innermost first."""
    strides = accumulate((sizes[axis] for axis in order[:2]), mul, initial=1)
    stride = dict(zip(order, strides, strict=True))
    return [
        tuple(stride[Axis.PIPELINE] * device + stride[Axis.TENSOR] * member for member in range(sizes[Axis.TENSOR]))
        for device in range(sizes[Axis.PIPELINE])
    ]

"""Several stages per device in a loop: interleaved 1F1B (Narayanan et al. 2021) and breadth-first (Lamy-Poirier 2022).

Device d hosts stages d, p + d, 2p + d, …; a micro-batch passes every device v times. (One column = one slot, * = update.)

    interleaved-1f1b, p = 2, v = 2, m = 4

        device 0 | 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 .   2B2 .   2B3*0B2 0B3*
        device 1 | .   1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3*1B2 1B3*.

    looped-bfs, p = 2, v = 2, m = 3

        device 0 | 0F0 0F1 0F2 2F0 2F1 2F2 .   .   2B2 2B1 2B0*0B2 0B1 0B0*
        device 1 | .   1F0 1F1 1F2 3F0 3F1 3F2 3B2 3B1 3B0*1B2 1B1 1B0*.

A device idles (p - 1)(F + B) / v a mini-batch, F and B those of its v stages together. Interleaved 1F1B runs
2(p - d - 1) + (v - 1)p forwards first (with one stage per device p - d - 1: it is 1F1B then) and holds one more activation;
breadth first holds m v. Micro-batches go round in groups of p; where p does not divide m some groups are larger, and where m
is smaller there is one group of m.
"""

from __future__ import annotations

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Ints
from schedir.ir.program import Program
from schedir.ir.shape import Shape
from schedir.schedules.layout.alternate import alternate


def accepts_loop(shape: Shape) -> str | None:
    """Accept every shape; one stage per device makes interleaved 1F1B plain 1F1B."""
    del shape
    return None


def loop_groups(num_devices: int, num_micro_batches: int) -> Ints:
    """Return the sizes of the groups in which micro-batches go round: at least p each where m >= p, larger ones first."""
    # fewer than p in a group would leave the loop waiting for its own first stage: p at least, the rest shared out
    rounds = max(1, num_micro_batches // num_devices)
    sizes = np.full(rounds, num_micro_batches // rounds)
    sizes[: num_micro_batches % rounds] += 1
    return sizes


def loop_order(groups: Ints, stages_per_device: int) -> tuple[Ints, Ints]:
    """Return (slot, micro-batch) of all forwards of one device: every group passes one slot after the other."""
    #   groups (2, 3), v = 2      slot         0 0 1 1 0 0 0 1 1 1
    #                             micro-batch  0 1 0 1 2 3 4 2 3 4
    v = stages_per_device
    size = np.repeat(groups, groups * v)
    first = np.repeat(np.cumsum(groups) - groups, groups * v)
    place = np.arange(len(size)) - first * v
    return place // size, first + place % size


def interleaved_1f1b(shape: Shape) -> Program:
    """Build interleaved 1F1B with a flush behind every mini-batch."""
    p, v, m = shape.num_devices, shape.stages_per_device, shape.num_micro_batches
    groups = loop_groups(p, m)
    slot, micro_batch = loop_order(groups, v)
    device = np.arange(p)
    # with v = 1 the paper's formula would run twice as many forwards first as 1F1B does
    warm_ups = p - 1 - device if v == 1 else 2 * (p - 1 - device) + (v - 1) * int(groups[0])
    is_forward, index = alternate(m * v, warm_ups)
    stage = np.where(is_forward, slot[index], v - 1 - slot[index]) * p + device[:, None]
    kind = np.where(is_forward, np.int8(Kind.FORWARD), np.int8(Kind.BACKWARD))
    return Program.from_matrix(
        "interleaved-1f1b",
        (kind, stage, micro_batch[index]),
        num_stages=p * v,
        num_micro_batches=m,
        num_mini_batches=shape.num_mini_batches,
    )


def looped_bfs(shape: Shape) -> Program:
    """Build the breadth-first loop: all micro-batches through one slot before the next, backwards in reverse."""
    p, v, m = shape.num_devices, shape.stages_per_device, shape.num_micro_batches
    slot, micro_batch = np.repeat(np.arange(v), m), np.tile(np.arange(m), v)
    device = np.arange(p)[:, None]
    stage = np.concatenate((slot, slot[::-1]))[None, :] * p + device
    kind = np.repeat(np.array([Kind.FORWARD, Kind.BACKWARD], np.int8), m * v)
    return Program.from_matrix(
        "looped-bfs",
        (np.broadcast_to(kind, stage.shape), stage, np.broadcast_to(np.concatenate((micro_batch, micro_batch[::-1])), stage.shape)),
        num_stages=p * v,
        num_micro_batches=m,
        num_mini_batches=shape.num_mini_batches,
    )

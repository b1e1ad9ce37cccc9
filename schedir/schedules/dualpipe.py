"""DualPipe (DeepSeek-V3 report, 2024) and DualPipeV (its V-shaped half): forwards overlap backwards of other micro-batches.

DualPipeV, p devices, 2p stages: device d hosts stage d ("near") and 2p - 1 - d ("far"); all m micro-batches pass both.
DualPipe, p devices (even), p stages, two copies: micro-batches 0 … m/2 - 1 enter at device 0, the others at device p - 1, and
device d hosts stage d of the one and p - 1 - d of the other direction. Seen from its own end, each half of DualPipe runs
DualPipeV's order, with h = distance from its end and q = p/2 (V: h = d, q = p):

    1  near F                        2(q - h - 1) times
    2  near F, far F                 h + 1 times
    3  far I, far W, far F           q - h - 1 times
    4  (near F & far B), (far F & near B)     n - 2q + h + 1 times; innermost device: the first pair apart
    5  far B, (far F & near B)       q - h - 1 times
    6  far B, near B                 h + 1 times; from the middle on split, W put off
    7  W, near I                     q - h - 1 times
    8  W                             h + 1 times                (n micro-batches per direction)

DualPipeV's order for p = 2, m = 4, where & joins a pair, which is one piece of work with a time of its own:

    device 0   0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3&3B1 3F2&0B0 3B2 3F3&0B1 3B3 0I2 0W2 0I3 0W3
    device 1   1F0 2F0 1F1 2F1 1F2 2B0 2F2&1B0 1F3&2B1 2F3&1B1 2B2 1B2 2I3 1I3 2W3 1W3

With B = I + W the full backward and F&B the time of a pair, the innermost devices, which have most pairs, idle

    (q - 1)(F&B + F - B + max(0, I - W))         of the whole makespan [derived; counted for I <= F],

which for I = F >= W is the report's (q - 1)(F&B + B - 3W). Outer devices have fewer pairs and so less idle time; if a pair
takes F + B all devices idle alike. At most p + 1 (stage, micro-batch) pairs live on a device of DualPipe, 2p + 1 of DualPipeV.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Kind
from schedir.ir.arrays import Ints
from schedir.ir.entries import Entries
from schedir.ir.pairs import Pairs
from schedir.ir.program import Program
from schedir.ir.repetition import repeat_program
from schedir.ir.shape import Shape
from schedir.schedules.layout.orders import turns_of
from schedir.schedules.layout.two_directions import refuse_odd


def accepts_dualpipe(shape: Shape) -> str | None:
    """Refuse odd p and m, and fewer than 2p micro-batches."""
    return refuse_odd(shape) or _enough(shape.num_micro_batches, shape.num_devices)


def accepts_dualpipev(shape: Shape) -> str | None:
    """Refuse other than two stages per device, and fewer than 2p micro-batches."""
    if shape.stages_per_device != 2:
        return f"its V has two stages per device, but stages_per_device is {shape.stages_per_device}: leave it out"
    return _enough(shape.num_micro_batches, shape.num_devices)


def _enough(num_micro_batches: int, num_devices: int) -> str | None:
    if num_micro_batches < 2 * num_devices:
        return f"its middle part needs at least 2 x {num_devices} micro-batches, but there are {num_micro_batches}"
    return None


def dualpipev(shape: Shape) -> Program:
    """Build DualPipeV."""
    p, m = shape.num_devices, shape.num_micro_batches
    devices = [_Device((d, 2 * p - 1 - d), (0, 0), _steps(d, p, m)) for d in range(p)]
    return _program("dualpipev", shape, devices, num_stages=2 * p)


def dualpipe(shape: Shape) -> Program:
    """Build DualPipe; both copies of a stage make one update of the sum of their gradients."""
    p, m = shape.num_devices, shape.num_micro_batches
    devices = []
    for d in range(p):
        down, up = (d, 0), (p - 1 - d, m // 2)  # stage and first micro-batch of either direction
        # a device is near to the end that it is closer to: both halves then run the same table
        (near, first), (far, other) = (down, up) if d < p // 2 else (up, down)
        devices.append(_Device((near, far), (first, other), _steps(min(d, p - 1 - d), p // 2, m // 2)))
    return _program("dualpipe", shape, devices, num_stages=p)


_NEAR, _FAR = 0, 1
_F, _B, _I, _W, _PAIR = (
    (2 * int(kind) + _NEAR, 2 * int(kind) + _FAR)
    for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD, Kind.OVERLAPPED)
)
"""Steps as numbers, 2 x kind + side; a pair has its forward on this side and its backward on the other."""


@dataclass(frozen=True, slots=True)
class _Device:
    """What one device runs for a mini-batch; near and far."""

    stages: tuple[int, int]
    firsts: tuple[int, int]
    """First micro-batch of either side."""
    steps: list[int]


def _steps(distance: int, depth: int, num_micro_batches: int) -> list[int]:
    """Return one device's order for one mini-batch; the numbers are those of the module's table."""
    inner = depth - distance - 1
    times = num_micro_batches - 2 * depth + distance + 1
    steps = [_F[_NEAR]] * (2 * inner)  # 1
    steps += [_F[_NEAR], _F[_FAR]] * (distance + 1)  # 2
    steps += [_I[_FAR], _W[_FAR], _F[_FAR]] * inner  # 3
    overlapped = [_PAIR[_NEAR], _PAIR[_FAR]] * times  # 4
    steps += [_F[_NEAR], _B[_FAR], *overlapped[1:]] if inner == 0 else overlapped
    steps += [_B[_FAR], _PAIR[_FAR]] * inner  # 5
    sides = [_FAR, _NEAR] * (distance + 1)
    late = sides[distance + 1 :]  # split, and their W put off
    steps += [_B[side] for side in sides[: distance + 1]] + [_I[side] for side in late]  # 6
    late += [_NEAR] * inner
    for side in late[:inner]:  # 7
        steps += [_W[side], _I[_NEAR]]
    return steps + [_W[side] for side in late[inner:]]  # 8


def _program(name: str, shape: Shape, devices: Sequence[_Device], *, num_stages: int) -> Program:
    """Return the program whose micro-batches take turns on every side of every device."""
    lengths = [len(device.steps) for device in devices]
    kind, side = np.divmod(np.array([step for device in devices for step in device.steps], np.int32), 2)
    place = 2 * np.repeat(np.arange(len(devices)), lengths) + side
    stage, first = (np.array([getattr(device, column) for device in devices]).ravel() for column in ("stages", "firsts"))
    forward, backward = _turns(kind, place)
    row = np.flatnonzero(kind == Kind.OVERLAPPED)
    other = place[row] ^ 1
    columns = kind, stage[place], first[place] + np.where(forward >= 0, forward, backward)
    pairs = Pairs.of(row, kind=np.full(len(row), Kind.BACKWARD), stage=stage[other], micro_batch=first[other] + backward[row])
    once = Program.from_entries(
        name, Entries(columns, lengths, pairs), num_stages=num_stages, num_micro_batches=shape.num_micro_batches
    )
    return repeat_program(once, shape.num_mini_batches)


def _turns(kind: Ints, place: Ints) -> tuple[Ints, Ints]:
    """Return for every step the turn of its forward on its side, and of its backward; -1 where it has none.

    The k-th W of a side belongs to its k-th I.
    """
    paired = kind == Kind.OVERLAPPED
    forward, backward = np.full(len(kind), -1), np.full(len(kind), -1)
    rows = np.flatnonzero(paired | (kind == Kind.FORWARD))
    forward[rows] = turns_of(place[rows])
    rows = np.flatnonzero(paired | (kind == Kind.BACKWARD) | (kind == Kind.INPUT_GRAD))
    backward[rows] = turns_of(np.where(paired, place ^ 1, place)[rows])
    halves, late = (np.flatnonzero(kind == half) for half in (Kind.INPUT_GRAD, Kind.WEIGHT_GRAD))
    halves, late = (rows[np.argsort(place[rows], kind="stable")] for rows in (halves, late))
    backward[late] = backward[halves]
    return forward, backward

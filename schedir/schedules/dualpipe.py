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

from collections import deque
from collections.abc import Callable, Iterator

from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.program import Program
from schedir.ir.shape import Shape


def accepts_dualpipe(shape: Shape) -> str | None:
    """Refuse odd p and m, and fewer than 2p micro-batches."""
    p, m = shape.num_devices, shape.num_micro_batches
    if shape.stages_per_device != 2:
        return f"a device hosts a stage of each direction, but stages_per_device is {shape.stages_per_device}: leave it out"
    if p % 2 or m % 2:
        return f"two directions need even numbers, but there are {p} devices and {m} micro-batches"
    return _enough(m, p)


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
    last = 2 * p - 1

    def order(device: int, first: int) -> Iterator[Entry]:
        near, far = _Side(device, range(first, first + m)), _Side(last - device, range(first, first + m))
        return _steps(near, far, distance=device, depth=p, num_micro_batches=m)

    return _program("dualpipev", shape, order, num_stages=2 * p)


def dualpipe(shape: Shape) -> Program:
    """Build DualPipe; both copies of a stage make one update of the sum of their gradients."""
    p, m = shape.num_devices, shape.num_micro_batches

    def order(device: int, first: int) -> Iterator[Entry]:
        down, up = range(first, first + m // 2), range(first + m // 2, first + m)
        sides = _Side(device, down), _Side(p - 1 - device, up)
        near, far = sides if device < p // 2 else reversed(sides)
        return _steps(near, far, distance=min(device, p - 1 - device), depth=p // 2, num_micro_batches=m // 2)

    return _program("dualpipe", shape, order, num_stages=p)


class _Side:
    """One stage of a device and what has been ordered of it so far."""

    def __init__(self, stage: int, micro_batches: range) -> None:
        self.stage = stage
        self._forwards = iter(micro_batches)
        self._backwards = iter(micro_batches)

    def forward(self) -> Action:
        """Return the next forward."""
        return Action(self.stage, Kind.FORWARD, next(self._forwards))

    def backward(self, kind: Kind) -> Action:
        """Return the next backward, whole or its input gradient."""
        return Action(self.stage, kind, next(self._backwards))


def _weight_grad(input_grad: Action) -> Action:
    return Action(input_grad.stage, Kind.WEIGHT_GRAD, input_grad.micro_batch)


def _steps(near: _Side, far: _Side, *, distance: int, depth: int, num_micro_batches: int) -> Iterator[Entry]:
    """Yield one device's order for one mini-batch; the numbers are those of the module's table."""
    late: deque[Action] = deque()  # input gradients whose W is put off
    inner = depth - distance - 1
    for _ in range(2 * inner):  # 1
        yield near.forward()
    for _ in range(distance + 1):  # 2
        yield near.forward()
        yield far.forward()
    for _ in range(inner):  # 3
        input_grad = far.backward(Kind.INPUT_GRAD)
        yield from (input_grad, _weight_grad(input_grad), far.forward())
    yield from _overlap(near, far, times=num_micro_batches - 2 * depth + distance + 1, first_apart=inner == 0)  # 4
    for _ in range(inner):  # 5
        yield far.backward(Kind.BACKWARD)
        yield Overlapped(far.forward(), near.backward(Kind.BACKWARD))
    for n in range(2 * (distance + 1)):  # 6
        action = (near if n % 2 else far).backward(Kind.INPUT_GRAD if n > distance else Kind.BACKWARD)
        late.extend([action] if n > distance else [])
        yield action
    for _ in range(inner):  # 7
        yield _weight_grad(late.popleft())
        late.append(near.backward(Kind.INPUT_GRAD))
        yield late[-1]
    yield from map(_weight_grad, late)  # 8


def _overlap(near: _Side, far: _Side, *, times: int, first_apart: bool) -> Iterator[Entry]:
    for n in range(times):
        forward, backward = near.forward(), far.backward(Kind.BACKWARD)
        yield from (forward, backward) if first_apart and n == 0 else (Overlapped(forward, backward),)
        forward = far.forward()
        yield Overlapped(forward, near.backward(Kind.BACKWARD))


def _program(name: str, shape: Shape, order: Callable[[int, int], Iterator[Entry]], *, num_stages: int) -> Program:
    m, n = shape.num_micro_batches, shape.num_mini_batches
    return Program.from_orders(
        name,
        [[entry for first in range(0, m * n, m) for entry in order(device, first)] for device in range(shape.num_devices)],
        num_stages=num_stages,
        num_micro_batches=m,
        num_mini_batches=n,
    )

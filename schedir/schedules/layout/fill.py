"""Put weight gradients into the gaps of an order of forwards and input gradients.

Devices run their F and I in the given order, as early as they can. Before a device waits long enough, or would hold more
activations than it may, it runs the oldest W that is put off; behind the last F and I it runs the rest. This is how the
zero-bubble papers fill the bubble; with the times of real work the gaps are those of the real pipeline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise

from schedir.schedules.layout.orders import Order
from schedir.schedules.layout.times import SlotTimes

UNSEEN = -1.0


def fill_weight_grads(
    orders: Sequence[Order], homes: Sequence[int], times: SlotTimes, *, limit: int, least_wait: float = 1.0
) -> list[list[int]] | None:
    """Return the orders with every W in place, or None if they stick or need more than `limit` live pairs on a device.

    `orders` has the F and I of every device, W is added; a W in it is ignored. `homes` has the device of every stage. A wait is
    worth a W if it lasts `least_wait` of the W's own time; 0: if there is any. Linear in the number of actions.
    """
    kept = [[code for code in order if code < 2 * len(homes)] for order in orders]
    return _Filler(kept, homes, times, limit=limit, least_wait=least_wait).run()


class _Filler:
    """The state of one run, every device as far as it goes: what it does depends on arrivals, not on who is looked at first.

    Results are numbered by code and turn: code x micro-batches + micro-batch, code = stage for F, stages + stage for I.
    """

    def __init__(self, orders: list[list[int]], homes: Sequence[int], times: SlotTimes, *, limit: int, least_wait: float) -> None:
        assert times.weight_grad is not None, "W stands apart"
        stages = len(homes)
        self._orders, self._stages, self._limit = orders, stages, limit
        self._micro_batches = sum(map(len, orders)) // (2 * stages)
        self._weight_grad, self._least = times.weight_grad, [least_wait * seconds for seconds in times.weight_grad]
        self._seconds = [*times.forward, *times.backward]
        # by code: the code of what it needs (2 x stages: nothing, which is always there), and how long that takes to come over
        # (at the last stage the loss is right behind its own F)
        self._need = [2 * stages, *range(stages - 1), *range(stages + 1, 2 * stages), stages - 1]
        far = [home != after for home, after in pairwise(homes)]
        down = [seconds if remote else 0.0 for seconds, remote in zip(times.transfer, far, strict=False)]
        up = [seconds if remote else 0.0 for seconds, remote in zip(times.transfer[1:], far, strict=True)]
        self._latency = [0.0, *down, *up, 0.0]
        self._end = [UNSEEN] * (2 * stages * self._micro_batches) + [0.0] * self._micro_batches
        self._waiting: dict[int, int] = {}
        self._awake = list(range(len(orders)))
        self._made: list[list[int]] = [[] for _ in orders]

    def run(self) -> list[list[int]] | None:
        """Return the filled orders, or None."""
        devices = [self._run_device(order, made) for order, made in zip(self._orders, self._made, strict=True)]
        while self._awake:
            device = self._awake.pop()
            need = next(devices[device], None)
            if need is not None:
                self._waiting[need] = device
        wanted = 3 * self._stages * self._micro_batches
        return self._made if sum(map(len, self._made)) == wanted else None

    def _run_device(self, order: list[int], made: list[int]) -> Iterator[int]:
        """Run a device to its end, or until it would hold too much; yield the number of a result that is not there yet."""
        stages, m, limit, latency, seconds = self._stages, self._micro_batches, self._limit, self._latency, self._seconds
        need_of, end, waiting, weight_grad, least = self._need, self._end, self._waiting, self._weight_grad, self._least
        turn = dict.fromkeys(order, 0)
        late: deque[int] = deque()
        free, live = 0.0, 0
        for code in order:
            number = turn[code]
            turn[code] = number + 1
            need = need_of[code] * m + number
            if end[need] < 0.0:
                # the device sleeps here until another has made the result
                yield need
            start = end[need] + latency[code]
            full = code < stages and live >= limit
            while late and (full or (start > free and start - free >= least[late[0]])):
                place = late.popleft()
                made.append(2 * stages + place)
                free += weight_grad[place]
                live -= 1
                full = code < stages and live >= limit
            if full:
                return
            if code < stages:
                live += 1
            else:
                late.append(code - stages)
            made.append(code)
            free = end[code * m + number] = max(start, free) + seconds[code]
            if code * m + number in waiting:
                self._awake.append(waiting.pop(code * m + number))
        made += [2 * stages + place for place in late]

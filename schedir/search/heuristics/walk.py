"""When every piece of work of an order runs: the sums of the compiled graph in order, on flat lists, without compiling."""

from __future__ import annotations

from collections.abc import Sequence

from schedir.search.problem.tables import NOTHING, Tables
from schedir.search.problem.work import Order

UNSEEN = -1.0
NOBODY = -1


class _Run:
    """One evaluation: when results are seen and by whom they are waited for, how far devices are and when they are free."""

    __slots__ = ("at", "free", "link_free", "orders", "ready", "seen", "waiter")

    def __init__(self, orders: Sequence[Order], seen: list[float], *, waiter: list[int], link_free: list[float]) -> None:
        self.orders, self.seen, self.waiter, self.link_free = orders, seen, waiter, link_free
        self.at, self.free = [0] * len(orders), [0.0] * len(orders)
        self.ready = list(range(len(orders)))


class Walk:
    """Evaluates orders of one placement; `begin` and `release` keep the times of the last one, by number of work."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        size = tables.numbering.size
        self.begin = [0.0] * size
        """When the work proper starts, behind a recomputation that came early."""
        self.release = [0.0] * size
        """When the device is free again."""
        num_results = size // 2
        self._fresh = [UNSEEN] * num_results + [0.0, 0.0]  # what needs nothing reads the last but one, nobody reads the last
        self._need = [num_results if wanted == NOTHING else wanted for wanted in tables.need]
        self._result = [num_results + 1 if made == NOTHING else made for made in tables.result]
        self._occupied = any(tables.occupies)
        self._num_links = max(tables.link, default=0) + 1

    def finish(self, orders: Sequence[Order]) -> list[float] | None:
        """Return when each device is done, or None if the orders block."""
        run = _Run(orders, self._fresh.copy(), waiter=[NOBODY] * len(self._fresh), link_free=[0.0] * self._num_links)
        while run.ready:
            self._go_on(run, run.ready.pop())
        done = all(at == len(order) for at, order in zip(run.at, orders, strict=True))
        return run.free if done else None

    def _go_on(self, run: _Run, device: int) -> None:
        """Run a device as far as it goes without a result that is not there yet."""
        tables, need, result, begin, release = self._tables, self._need, self._result, self.begin, self.release
        before, work, behind, delay = tables.before, tables.work, tables.behind, tables.delay
        seen, waiter, order, now = run.seen, run.waiter, run.orders[device], run.free[device]
        for place in range(run.at[device], len(order)):
            number = order[place]
            arrival = seen[need[number]]
            if arrival < 0.0:
                waiter[need[number]] = device
                run.at[device], run.free[device] = place, now
                return
            start = now + before[number]
            if arrival > start:  # noqa: PLR1730 - max() costs three times as much here
                start = arrival
            begin[number] = start
            end = start + work[number]
            now = release[number] = end + behind[number]
            if self._occupied:
                end = self._cross(number, end, run.link_free)
            made = result[number]
            seen[made] = end + delay[number]
            # a result has one reader, so one device at most waits for it
            if waiter[made] >= 0:
                run.ready.append(waiter[made])
                waiter[made] = NOBODY
        run.at[device], run.free[device] = len(order), now

    def _cross(self, number: int, end: float, link_free: list[float]) -> float:
        """Return when a result has left its link, which carries one after the other."""
        occupies, link = self._tables.occupies[number], self._tables.link[number]
        if not occupies:
            return end
        left = max(end, link_free[link]) + occupies
        link_free[link] = left
        return left

    def critical(self, orders: Sequence[Order], device: int) -> list[int]:
        """Return the numbers of the longest path that ends the given device's order, the last first.

        Of the orders that were evaluated last. A path leads over the device's work before it, or over what is waited for.
        """
        place = {number: (home, at) for home, order in enumerate(orders) for at, number in enumerate(order)}
        makers = {self._tables.result[number]: number for number in place if self._tables.result[number] != NOTHING}
        path = []
        number: int | None = orders[device][-1]
        while number is not None:
            path.append(number)
            number = self._before(number, orders, place=place, makers=makers)
        return path

    def _before(
        self, number: int, orders: Sequence[Order], *, place: dict[int, tuple[int, int]], makers: dict[int, int]
    ) -> int | None:
        device, at = place[number]
        begin = self.begin[number]
        wanted = self._tables.need[number]
        # its own device was what it waited for last, or as long as for the result
        if at and self.release[orders[device][at - 1]] + self._tables.before[number] >= begin:
            return orders[device][at - 1]
        return None if wanted == NOTHING else makers[wanted]

"""Devices that go on working: each has a queue of steps, and takes the next as soon as it has done one.

    caller    give(0)  give(1)  wait(0)  give(2)  …            wait = until every device has done the step
    device 0  ── step 0 ── step 1 ─────── step 2 …             no device waits for the others at the end of a step
    device 1     ── step 0 ── step 1 ──── …

So a schedule without a flush runs without one. `Workers.run` has one long call of every device for all this, in a thread of its
own; the first error of any device ends it, and whoever waits raises that error. A device has done a step when its fence behind the
step is passed: at once where its thread computes, later where it enqueues for a GPU.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Sequence
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic

from executor.run.clock import Recorder
from executor.run.runner import carry_out
from executor.trainer.step_binder import StepTask
from executor.workers.base import Fence, Workers
from schedir.errors import RunError

POLL_S = 0.1
"""How often somebody who waits looks whether anything has failed."""
FENCE_POLL_S = 20e-6
"""How often somebody who waits for a fence looks."""
GRACE_S = 2.0
"""How much longer the caller waits than the workers do: the one who knows what it waits for speaks first."""

_NOT_DONE = "training was closed before its steps were done: call drain() first"


class Stream:
    """Steps on their way through the devices. `give`, `wait` and `has_done` are for one thread, the caller's."""

    def __init__(self, workers: Workers, recorder: Recorder, *, num_devices: int, timeout_s: float) -> None:
        self._workers, self._recorder, self._timeout_s = workers, recorder, timeout_s
        self._orders: list[SimpleQueue[Order | None]] = [SimpleQueue() for _ in range(num_devices)]
        self._moves = [0] * num_devices
        """By device: goes up with every task, and with every look into an empty queue."""
        self._fences: list[deque[tuple[int, Fence]]] = [deque() for _ in range(num_devices)]
        """By device: orders whose tasks have all begun, with the fence behind each."""
        self._begun = [-1 if device in workers.devices else sys.maxsize for device in range(num_devices)]
        """By device: the last order whose tasks have all begun."""
        self._done = [-1 if device in workers.devices else sys.maxsize for device in range(num_devices)]
        """By device: the last order that it has carried out; nobody waits for devices of other processes."""
        self._changed = threading.Condition()
        self._ends: dict[int, float] = {}
        """By order: when the last device had done it, in seconds of perf_counter."""
        self._given = -1
        self._abandoned = False
        self._failure: BaseException | None = None
        self._ended = self._left_alone = False
        self._host = threading.Thread(target=self._run, name="trainer", daemon=True)

    @property
    def num_given(self) -> int:
        """Orders given so far."""
        return self._given + 1

    @property
    def has_failed(self) -> bool:
        """A device has failed, or took too long: all have ended, or will at their next task."""
        return self._failure is not None

    def give(self, tasks: Sequence[Sequence[StepTask]]) -> int:
        """Give every device its tasks of the next order; return the order's number. Never waits for a device."""
        self._raise_failure()
        self._workers.follow()
        self._given += 1
        for device in self._workers.devices:
            self._orders[device].put(Order(self._given, tasks[device]))
        if self._host.ident is None:
            self._host.start()
        return self._given

    def wait(self, number: int) -> None:
        """Return when every device has done an order and all before it; raise the first error of any device."""
        try:
            with self._changed:
                self._wait_inside(number)
        except RuntimeError as error:
            # an interrupt that comes while a condition takes its lock back leaves it without, which the end of `with` then says
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            raise
        self._raise_failure()

    def _wait_inside(self, number: int) -> None:
        seen, limit = self._progress(), monotonic() + self._timeout_s + GRACE_S
        while self._failure is None and not self.has_done(number):  # a GPU that has failed answers no fence
            self._changed.wait(FENCE_POLL_S if min(self._begun) >= number else POLL_S)  # who begins an order says so
            if self._progress() != seen:
                seen, limit = self._progress(), monotonic() + self._timeout_s + GRACE_S
            elif monotonic() > limit:
                self._fail(self._stuck(number))

    def has_done(self, number: int) -> bool:
        """Tell whether every device has done an order."""
        for device, fences in enumerate(self._fences):
            # a device does its orders in turn, so its fences are passed in turn
            while fences and (passed := fences[0][1].passed_at()) is not None:
                order, _ = fences.popleft()
                self._done[device] = order
                self._ends[order] = max(self._ends.get(order, passed), passed)
        return min(self._done) >= number

    def take_end(self, number: int) -> float:
        """Return when an order was done, in seconds of perf_counter, and forget it."""
        return self._ends.pop(number)

    def close(self, *, patience_s: float) -> bool:
        """Let the devices end; return whether they have.

        What they have been given they still do, unless it takes longer than `patience_s`: then they stop at their next task. Where
        even that takes longer (a stage computes for minutes) nobody waits for it, and the workers are closed when it is over. The
        same holds where the wait is interrupted: what is raised goes on, and the threads end by themselves.
        """
        if self._host.ident is None:
            return True
        try:
            self._dismiss()
            self._host.join(patience_s)
            self._abandoned = True
            self._host.join(GRACE_S)
        except BaseException:
            self._abandoned = True
            self._dismiss()  # again: the first time it may not have come to the last device; more than one None is not read
            if self._leave_to_host():
                self._workers.close()
            raise
        return self._leave_to_host()

    def _dismiss(self) -> None:
        for orders in self._orders:
            orders.put(None)

    def _leave_to_host(self) -> bool:
        """Return whether the devices have ended; if they have not, the host closes the workers behind them."""
        with self._changed:
            self._left_alone = not self._ended
            return self._ended

    def _progress(self) -> tuple[list[int], list[int]]:
        """Return how far the devices are: with the tasks that they have to begin, and with what they have done."""
        moves = [moves for moves, begun in zip(self._moves, self._begun, strict=True) if begun < self._given]
        return moves, list(self._done)

    def _stuck(self, number: int) -> RunError:
        devices = ", ".join(f"device {device}" for device, done in enumerate(self._done) if done < number)
        return RunError(f"no task of {devices} ended for {self._timeout_s:g} s: raise timeout if a task may take that long")

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._workers.run([partial(self._serve, device) for device in self._workers.devices])
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised again in the caller's thread
            with self._changed:
                self._fail(error)
        with self._changed:
            self._ended = True
            # whoever gave up waiting for this thread has left the workers to it
            left_alone = self._left_alone
        if left_alone:
            self._workers.close()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._abandoned = True
        self._changed.notify_all()

    def _serve(self, device: int) -> None:
        """Carry out one order after the other, until there is None."""
        orders = self._orders[device]
        while True:
            try:
                order = orders.get(timeout=POLL_S)
            except Empty:
                self._check(device)
                continue
            if order is None:
                # an interrupt may have come while an order was given, to some devices only: those would wait for this one
                if self._begun[device] < self._given:
                    raise RunError(_NOT_DONE)
                return
            for task in order.tasks:
                self._check(device)
                try:
                    carry_out(task, self._recorder)
                except BaseException as error:
                    error.add_note(f"in {task.label} on device {device}")
                    raise
            self._end_order(device, order.number)

    def _check(self, device: int) -> None:
        self._moves[device] += 1
        self._workers.check(device, self._moves[device])
        if self._abandoned:
            raise RunError(_NOT_DONE)

    def _end_order(self, device: int, number: int) -> None:
        fence = self._workers.fence(device)
        with self._changed:
            self._fences[device].append((number, fence))
            self._begun[device] = number
            self._changed.notify_all()


class Order:
    """What one device does in one step."""

    __slots__ = ("number", "tasks")

    def __init__(self, number: int, tasks: Sequence[StepTask]) -> None:
        self.number, self.tasks = number, tasks

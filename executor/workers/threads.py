"""One thread per device, values in shared memory.

The first error of any thread is kept. The others find out at their next task, or within POLL_S where they wait; what a stage
is computing at that moment is finished first. Then `run` raises the first error with its own traceback.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from executor.run.clock import Recorder
from executor.workers.base import Exchange, ExchangePlan, Fence, Halted, Passed, Port
from executor.workers.environment import processes_here
from executor.workers.ports import Channel, Reduction
from executor.workers.waking import nap_until, quick_switching, usable_cores
from schedir.errors import RunError

if TYPE_CHECKING:
    from executor.home import Home

POLL_S = 0.05
"""How often somebody who waits looks whether the run was halted."""

INTERRUPTED_S = 0.3
"""How long an interrupted caller waits for what the threads compute: they are daemons, so the process need not."""

GRACE_S = 1.0
"""How much longer the caller waits than the workers do: the one who knows what it waits for speaks first."""

Work = Callable[[], None]


class ThreadWorkers:
    """Threads that live from the first `run` to `close`."""

    def __init__(
        self,
        num_devices: int,
        recorder: Recorder,
        *,
        timeout_s: float,
        enter: Callable[[], AbstractContextManager[object]] = nullcontext,
        first_device: int = 0,
    ) -> None:
        self.devices = range(first_device, first_device + num_devices)
        self.recorder = recorder
        """Where the ports record their spans."""
        self._timeout_s = timeout_s
        self._enter = enter
        self._halted = False
        self._first: BaseException | None = None
        self._failing = threading.Lock()
        self._positions = dict.fromkeys(self.devices, 0)
        """By device: the task that it is at."""
        # threads of all processes share this host's cores: naps of more threads than cores would take time from those that compute
        self._naps = num_devices * processes_here() <= usable_cores()
        self._gave_up = False
        """Some thread has not ended within the limit: nobody waits for it a second time."""
        self._reports: SimpleQueue[int] = SimpleQueue()
        self._orders: list[SimpleQueue[Work | None]] = [SimpleQueue() for _ in range(num_devices)]
        self._threads = [
            threading.Thread(target=self._serve, args=(device,), name=f"device {device}", daemon=True) for device in self.devices
        ]

    def home(self, device: int) -> Home:  # noqa: ARG002 - one signature for all
        """Return the memory that all threads share."""
        from executor.home import HOST  # noqa: PLC0415 - loads torch, which emulation does without

        return HOST

    def channel(self, task: int, name: str, *, ends: tuple[int, int]) -> Port:  # noqa: ARG002 - one signature for all
        """Return the port of a transfer."""
        return Channel(self.wait_for, name, task=task, recorder=self.recorder)

    def exchange(self, plan: ExchangePlan) -> Exchange:
        """Return the ports of a reduction."""
        return Reduction(self.wait_for, plan, self.recorder)

    def surroundings(self, device: int) -> AbstractContextManager[object]:  # noqa: ARG002 - other workers need it
        """Return the context in which a device's thread lives."""
        return self._enter()

    def follow(self) -> None:
        """Do nothing: all threads share the memory."""

    def fence(self, device: int) -> Fence:  # noqa: ARG002 - one signature for all
        """Return what is passed: this thread has done its work itself."""
        return Passed(perf_counter())

    def check(self, device: int, task: int) -> None:
        """Note which task a device is at; raise Halted if the run has failed."""
        # written by one thread, read by the one that waits for all: no lock is needed
        self._positions[device] = task
        if self._halted:
            raise Halted

    def run(self, work: Sequence[Work]) -> None:
        """Run one callable per device; raise the first error, or RunError if no task has ended for the time limit."""
        try:
            with quick_switching():
                self._start(work)
                self._await_reports(set(self.devices))
        except RunError:
            self._halt(self._timeout_s + GRACE_S)
            raise
        except BaseException:  # an interrupt: whoever made it wants to go on now, even if a task takes a minute yet
            self._halt(INTERRUPTED_S)
            raise
        if self._first is not None:
            raise self._first

    def _start(self, work: Sequence[Work]) -> None:
        # threads begin with the first run, not with the object: a plan that is refused in between leaves none behind
        for orders, thread, task in zip(self._orders, self._threads, work, strict=True):
            orders.put(task)
            if thread.ident is None:
                thread.start()

    @property
    def has_begun(self) -> bool:
        """Some device was given work."""
        return any(thread.ident is not None for thread in self._threads)

    def close(self) -> None:
        """End all threads, once they have ended what they compute; one that does not within the limit ends with the process."""
        self._end(self._timeout_s + GRACE_S)

    def _halt(self, patience_s: float) -> None:
        self._halted = True
        self._end(patience_s)

    def _end(self, patience_s: float) -> None:
        for orders in self._orders:
            orders.put(None)
        # one limit for all of them, not one each: they end side by side
        limit = monotonic() + (0.0 if self._gave_up else patience_s)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(limit - monotonic(), 0.0))
                self._gave_up |= thread.is_alive()

    def wait_for(self, arrived: threading.Lock, name: str) -> None:
        """Acquire a lock that another thread releases; raise RunError after the time limit, Halted if the run has failed."""
        if self._naps and nap_until(arrived):
            return
        # in short steps, since a lock cannot be told that the run has failed
        limit = monotonic() + self._timeout_s
        while not arrived.acquire(timeout=POLL_S):
            if self._halted:
                raise Halted
            if monotonic() > limit:
                who = threading.current_thread().name
                raise RunError(f"{who} waited {self._timeout_s:g} s for {name}: raise timeout if a task may take that long")

    def _serve(self, device: int) -> None:
        with self.surroundings(device):
            orders = self._orders[device - self.devices[0]]
            while (work := orders.get()) is not None:
                try:
                    work()
                # another device's error is kept already: this one only had to stop
                except Halted:
                    pass
                except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised again in the caller's thread
                    self.fail(error)
                del work  # an idle thread keeps nothing alive
                self._reports.put(device)

    def fail(self, error: BaseException) -> None:
        """Halt the run because of an error, which `run` raises if it is the first."""
        # the error is there before anybody can see that the run is halted
        with self._failing:
            if self._first is None:
                self._first = error
        self._halted = True

    def _await_reports(self, running: set[int]) -> None:
        """Wait until every device has reported, or until nothing has moved for the time limit."""
        # as long as any device comes to another task, there is time
        patience = self._timeout_s + GRACE_S
        seen, limit = self._positions.copy(), monotonic() + patience
        while running:
            try:
                running.discard(self._reports.get(timeout=POLL_S))
            except Empty:
                if self._positions != seen:
                    seen, limit = self._positions.copy(), monotonic() + patience
                elif monotonic() > limit:
                    break
        self._gave_up = bool(running)
        if running and self._first is None:
            stuck = ", ".join(f"device {device}" for device in sorted(running))
            raise RunError(f"no task of {stuck} ended for {self._timeout_s:g} s: raise timeout if a task may take that long")

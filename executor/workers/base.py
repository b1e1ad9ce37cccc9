"""What kinds of workers have in common: the seam between the interpreter of a graph and the hardware under it.

A worker runs the work of one device. Values go from one to another through ports:

    producer ── put ──▶ channel (one per transfer) ── take ──▶ consumer
    member   ── put ──▶ reduction (one per REDUCE) ── take ──▶ every replica's update

Threads have them in shared memory; streams of a GPU record an event in `put` and wait for it in `take`; between processes a
lane carries them. Whoever makes a port records the span of its task. Negative tasks are none of a graph: nothing is recorded of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from executor.home import Home


class Sink(Protocol):
    """Where a producer hands a value over; never blocks."""

    def put(self, value: Any) -> None:
        """Hand the value over."""
        ...


class ValueSource(Protocol):
    """Where a consumer gets a value."""

    def take(self) -> Any:
        """Return the value, once it is there, and forget it."""
        ...

    def wait(self) -> None:
        """Return once the value is there, and leave it."""
        ...

    def free(self) -> None:
        """Hear that nobody will read the value any more: memory that it was lent may be used again."""
        ...


class Port(Sink, ValueSource, Protocol):
    """Both ends of a hand-over."""


class Exchange(Protocol):
    """Members put one value each; when all are there, every taker gets their total."""

    def member(self, number: int) -> Sink:
        """Return the sink of one member; totals are taken in the order of the numbers."""
        ...

    def taker(self, number: int) -> ValueSource:
        """Return the source of one taker."""
        ...


@dataclass(frozen=True, slots=True)
class ExchangePlan:
    """What an exchange needs to know."""

    task: int
    """Task whose span it records; negative: none."""
    name: str
    """Shown where somebody waits for it too long."""
    members: tuple[int, ...]
    """Device of every member."""
    takers: tuple[int, ...]
    """Device of every taker."""
    total: Callable[[Sequence[Any]], Any]
    """Makes one value of the members' values, which come in the order of their numbers."""
    plain: bool = False
    """Members put plain values of the host, no tensors."""


class Fence(Protocol):
    """A point in the work of one device, which may run behind its thread."""

    def passed_at(self) -> float | None:
        """Return when everything before it was done, in seconds of perf_counter; None as long as it is not."""
        ...


@dataclass(frozen=True, slots=True)
class Passed:
    """The fence of a thread that does its work itself."""

    at: float

    def passed_at(self) -> float | None:
        """Return when it was set up."""
        return self.at


class Workers(Protocol):
    """Something that runs the work of every device of a graph at the same time, or of those that this process has."""

    @property
    def devices(self) -> Sequence[int]:
        """Devices that this process runs."""
        ...

    def home(self, device: int) -> Home:
        """Return where a device's tensors live."""
        ...

    def channel(self, task: int, name: str, *, ends: tuple[int, int]) -> Port:
        """Return the port of a transfer from a device to another, one of them of this process."""
        ...

    def exchange(self, plan: ExchangePlan) -> Exchange:
        """Return the ports of a reduction in which a device of this process takes part."""
        ...

    def run(self, work: Sequence[Callable[[], None]]) -> None:
        """Run one callable per device of this process; return when all have, or raise the first error with its traceback."""
        ...

    def follow(self) -> None:
        """Let what devices do from now on see everything that the caller's thread has done so far."""
        ...

    def fence(self, device: int) -> Fence:
        """Return a fence behind all that a device has begun; called in its own thread."""
        ...

    def check(self, device: int, position: int) -> None:
        """Say how far a device is; raise `Halted` if another device has failed."""
        ...

    def close(self) -> None:
        """Let all workers end."""
        ...


class Halted(Exception):  # noqa: N818 - not an error: another worker has had one
    """Ends a worker's work because another one failed; never leaves `Workers.run`."""

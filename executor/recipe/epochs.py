"""Mini-batches of several epochs, with a place in them that can be kept and found again.

Every epoch takes the data anew, as far as they go or as many mini-batches as an epoch is to have. Random numbers of the process are
noted before, since data loaders shuffle by them. To go on from a place the epoch's data are taken again with those numbers, and as
many mini-batches are left out as were taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from executor.global_random import GlobalRandom
from executor.model.data import joined, paired, rows, samples
from schedir.errors import ArgumentError
from schedir.expect import shown

MakeData = Callable[[int], Iterable[Any]]
"""A number, another for every epoch -> the pairs (input, target) of one epoch; they may be endless."""


@dataclass(frozen=True, slots=True)
class EpochPlace:
    """A place between two mini-batches."""

    epoch: int
    taken: int
    """Mini-batches of the epoch before it."""
    random: GlobalRandom
    """Random numbers of the process before the epoch's first mini-batch was asked for."""

    def plain(self) -> dict[str, Any]:
        """Return plain values, for a checkpoint."""
        return {"epoch": self.epoch, "taken": self.taken, "random": self.random.plain()}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> EpochPlace:
        """Return what `plain` was made of."""
        return cls(plain["epoch"], plain["taken"], GlobalRandom.of(plain["random"]))


class Epochs:
    """Walks through epochs; `place` is behind the mini-batch that came last."""

    def __init__(
        self,
        make: MakeData,
        *,
        seed: int,
        num_epochs: int | None,
        epoch_size: int | None = None,
        mini_batch_size: int | None = None,
    ) -> None:
        """Take what makes the data of a seed: epoch e is that of `seed` + e, or its first `epoch_size` mini-batches.

        `mini_batch_size` cuts the data to mini-batches of another size.
        """
        self._make, self._seed, self._num_epochs, self._size = make, seed, num_epochs, mini_batch_size
        self._epoch_size = epoch_size
        self._start: EpochPlace | None = None
        self.place: EpochPlace | None = None
        """None before the first mini-batch."""

    def go_on_from(self, place: EpochPlace) -> None:
        """Begin behind a place, with the random numbers that the process has now."""
        self._start = self.place = place

    def __iter__(self) -> Iterator[Any]:
        first = 0 if self._start is None else self._start.epoch
        for epoch in count(first) if self._num_epochs is None else range(first, self._num_epochs):
            found = False
            for mini_batch in self._epoch(epoch):
                found = True
                yield mini_batch
            if not found and not (self._start is not None and epoch == first):
                if not epoch:
                    raise ArgumentError("data give no mini-batches: let them give at least one (input, target)")
                raise ArgumentError(f"epoch {epoch} has no mini-batches: let data give new ones every time it is called")

    def _epoch(self, epoch: int) -> Iterator[Any]:
        start = self._start if self._start is not None and self._start.epoch == epoch else None
        present = GlobalRandom.current()
        before, taken = (present, 0) if start is None else (start.random, start.taken)
        # data are made, and shuffled, with the numbers that the epoch began with; behind what is left out the process has its own
        before.restore()
        data = noted(given_by(self._make, self._seed + epoch, "data"), "data")
        stream = data if self._size is None else resized(data, self._size)
        for _ in islice(stream, taken):
            pass
        if start is not None:
            present.restore()
        last = None if self._epoch_size is None else max(0, self._epoch_size - taken)
        for number, mini_batch in enumerate(islice(stream, last), taken + 1):
            self.place = EpochPlace(epoch, number, before)
            yield mini_batch


def given_by(make: MakeData, seed: int, name: str) -> Iterable[Any]:
    """Return what a recipe's function gives for a seed; raise ArgumentError with the function's name for what is no data."""
    try:
        made: object = make(seed)
    except StopIteration as error:  # inside a generator of ours it would pass for a fault of ours
        raise ArgumentError(f"{name} raised StopIteration: return an iterable of (input, target), or use yield") from error
    if isinstance(made, str | Mapping) or not (hasattr(made, "__iter__") or hasattr(made, "__getitem__")):
        raise ArgumentError(
            f"{name} returns {shown(made)}, of type {type(made).__name__}: return an iterable of (input, target), such as a list "
            "or a DataLoader"
        )
    return made  # type: ignore[return-value]  # what has __getitem__ can be iterated over, too


def noted(data: Iterable[Any], name: str) -> Iterator[Any]:
    """Yield what data give; what they raise meanwhile is theirs, also where a library raises it: one of its processes has died."""
    stream = iter(data)
    while True:
        try:
            mini_batch = next(stream)
        except StopIteration:
            return
        except Exception as error:
            error.add_note(f"in {name}")
            raise
        yield mini_batch


def resized(data: Iterable[Any], size: int) -> Iterator[tuple[Any, Any]]:
    """Yield pairs (input, target) of `size` samples each, the last one of what is left; samples keep their order."""
    held: list[tuple[Any, Any]] = []
    count = 0
    for pair in data:
        held.append(paired(pair))
        count += samples(held[-1][0])
        while count >= size:
            made, held = _taken(held, size)
            count -= size
            yield made
    if count:
        yield _taken(held, count)[0]


def _taken(held: list[tuple[Any, Any]], size: int) -> tuple[tuple[Any, Any], list[tuple[Any, Any]]]:
    """Return the first samples of what is held, and what is held behind them."""
    inputs, targets = (joined(list(values)) for values in zip(*held, strict=True))
    first, rest = ((rows(inputs, part), rows(targets, part)) for part in (slice(size), slice(size, None)))
    return first, [rest] if samples(rest[0]) else []

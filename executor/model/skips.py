"""Skip connections: outputs of a stage that go straight to a later one, over a link of their own.

    stages = Stages([down, middle, up], skips=[Skip(0, 2)])

    down   returns (h, s)      h goes on to the next stage, s to `up`
    middle returns g
    up     takes (g, s)        what the stage before gives, then what comes over skip connections, in the order of their sources

An output that a skip connection names goes only there: a stage returns it twice where the next one needs it as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from executor.boundary import Message
from executor.structure import Name, in_tuple
from schedir.errors import ArgumentError, RefusedError
from schedir.expect import kind_of
from schedir.ir.graph import TaskGraph


@dataclass(frozen=True, slots=True, order=True)
class Skip:
    """Outputs of a stage that a later stage takes, not the next one. Raises ArgumentError."""

    source: int
    target: int
    outputs: int | tuple[int, ...] = 1
    """Which of the outputs, counted from 0: the source returns a tuple."""

    def __post_init__(self) -> None:
        for name in ("source", "target"):
            _check_number(getattr(self, name), f"skip: {name}")
        for output in self.places:
            _check_number(output, "skip: outputs")
        if not self.places or len(set(self.places)) < len(self.places):
            raise ArgumentError(f"skip: outputs {self.outputs!r} name none, or one twice: give numbers, as 1 or (1, 2)")
        if self.target < self.source + 2:
            raise ArgumentError(
                f"skip from stage {self.source} to {self.target} leads over no stage: leave it out, the next stage has it anyway"
            )

    @property
    def places(self) -> tuple[int, ...]:
        """The outputs as a tuple."""
        return self.outputs if isinstance(self.outputs, tuple) else (self.outputs,)


def _check_number(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 0:
        raise ArgumentError(f"{name} {value!r} is no number of one: count them from 0")


def check_skips(skips: Iterable[Skip], num_stages: int) -> tuple[Skip, ...]:
    """Return skips in the order of their ends; raise ArgumentError for what is none, or does not fit the stages."""
    found: tuple[Any, ...] = tuple(skips)
    wrong = next((skip for skip in found if not isinstance(skip, Skip)), None)
    if wrong is not None:
        raise ArgumentError(f"skips hold {wrong!r:.60} ({type(wrong).__name__}): give executor.Skip(source, target)")
    for skip in found:
        if skip.target >= num_stages:
            raise ArgumentError(f"{skip} leads to no stage of 0..{num_stages - 1}: give one of them")
    ends = [(skip.source, skip.target) for skip in found]
    if len(set(ends)) < len(ends):
        raise ArgumentError("two skips lead from one stage to the same other: give one, with all their outputs")
    return tuple(sorted(found, key=lambda skip: (skip.source, skip.target)))


def check_graph_skips(graph: TaskGraph, skips: Sequence[Skip]) -> None:
    """Raise RefusedError for a graph with other skip connections than the pipeline's."""
    wanted, known = tuple((skip.source, skip.target) for skip in skips), graph.options.skips
    if wanted != known:
        raise RefusedError(
            f"the pipeline has skip connections {list(wanted)}, but the graph {list(known)}: compile it with "
            f"compile_program(program, skips={wanted})"
        )


# ---------------------------------------------------------------- values


def parted(output: Any, skips: Sequence[Skip], name: Name) -> tuple[Any, list[tuple[Any, ...]]]:
    """Return what of a stage's output goes on to the next stage, and what goes over each of its skip connections."""
    if not isinstance(output, tuple | list):
        raise ArgumentError(f"{name()} is {kind_of(output)}, of which {skips[0]} takes output {skips[0].places[0]}: return a tuple")
    missing = next((place for skip in skips for place in skip.places if place >= len(output)), None)
    if missing is not None:
        raise ArgumentError(f"{name()} has {len(output)} parts, but a skip connection takes number {missing}, counted from 0")
    taken = {place for skip in skips for place in skip.places}
    rest = tuple(part for place, part in enumerate(output) if place not in taken)
    if not rest:
        raise ArgumentError(f"{name()} goes over skip connections as a whole: return something for the next stage, too")
    return rest[0] if len(rest) == 1 else rest, [tuple(output[place] for place in skip.places) for skip in skips]


def joined(value: Any, skipped: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return a stage's input: what the stage before gives, then what comes over skip connections."""
    first = value if type(value) is tuple else (value,)
    return (*first, *(part for parts in skipped for part in parts))


# ---------------------------------------------------------------- messages


@dataclass(frozen=True, slots=True)
class StageSkips:
    """A stage's part in skip connections."""

    sends: tuple[Skip, ...] = ()
    """Those that begin at the stage, by target."""
    takes: tuple[Skip, ...] = ()
    """Those that end at it, by source."""


def stage_skips(skips: Sequence[Skip], stage: int) -> StageSkips | None:
    """Return a stage's part in a pipeline's skip connections; None if it has none."""
    sends = tuple(skip for skip in skips if skip.source == stage)
    takes = tuple(skip for skip in skips if skip.target == stage)
    return StageSkips(sends, takes) if sends or takes else None


def joined_message(messages: Sequence[Message]) -> Message:
    """Return the message of a stage's whole input: what the stage before gives, then what comes over skip connections."""
    return Message(
        tuple(tensor for message in messages for tensor in message.tensors),
        tuple(needed for message in messages for needed in message.needs_grad),
        in_tuple([message.form for message in messages]),
    )


def parts_like(messages: Sequence[Message], gradients: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the gradients of every message of a stage's whole input, given those of all its tensors."""
    first = 0
    for message in messages:
        yield tuple(gradients[first : first + len(message.tensors)])
        first += len(message.tensors)

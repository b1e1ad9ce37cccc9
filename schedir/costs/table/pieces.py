"""Costs of one piece of the model, a stage or a layer, and of a run of layers taken as one stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from schedir.costs.checks import non_negative
from schedir.costs.work import BySize, Value, WorkTime, blend_numbers, blend_times, total
from schedir.errors import ArgumentError
from schedir.ir.action import Kind

Time = WorkTime | BySize[WorkTime]
"""A time, or a table of times by micro-batch size."""
Size = float | BySize[float]
"""Bytes, or a table of bytes by micro-batch size."""

SIZED_TIMES = ("forward", "backward", "input_grad", "weight_grad", "overlapped", "recompute", "recompute_selective")
"""Times that grow with the samples of a micro-batch."""
SIZED_BYTES = ("activations", "activations_selective", "activations_weight_grad", "boundary", "output", "skip", "workspace")
"""Bytes that grow with the samples of a micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceBytes:
    """Bytes of one stage or layer; None where they are not stated. Raises ArgumentError unless finite and at least 0."""

    weights: Size | None = None
    """Parameters."""
    gradients: Size | None = None
    """Accumulated gradients."""
    optimizer: Size | None = None
    """Optimizer state."""
    activations: Size | None = None
    """Kept from F to B without recomputation, the piece's input included."""
    activations_selective: Size | None = None
    """Kept from F to B with selective recomputation."""
    activations_weight_grad: Size | None = None
    """Kept from I to W where the backward is split, the piece's input included: what the weight gradients still need. None: all
    that was kept before I."""
    boundary: Size | None = None
    """The piece's input: kept when recomputed; also the size of the gradient that is sent back."""
    output: Size | None = None
    """Sent forward."""
    skip: Size | None = None
    """Sent over each skip connection that begins at the piece, and back as its gradient; None: as large as the output."""
    tied: Size | None = None
    """Of the parameters, and of their gradients: those that other stages hold, too."""
    predictor: Size | None = None
    """Where weights are predicted: what is kept of the last update for that, the gradient or the weights before it."""
    workspace: Size | None = None
    """Held while computing."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not isinstance(value, BySize):
                object.__setattr__(self, field.name, non_negative(f"bytes.{field.name}", value, "bytes"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceCosts:
    """Times and bytes of one stage or layer for a micro-batch of the costs' size; None where they are not stated.

    A number is taken as a WorkTime. Raises ArgumentError where the backward is not stated at all.
    """

    name: str = ""
    """Name of a layer."""
    forward: Time | float
    """F."""
    backward: Time | float | None = None
    """B; None: input_grad + weight_grad."""
    input_grad: Time | float | None = None
    """I; None beside a weight_grad: 0 (the first layer sends no gradient back)."""
    weight_grad: Time | float | None = None
    """W; None beside an input_grad: 0 (a layer without parameters)."""
    overlapped: Time | float | None = None
    """An overlapped pair; None: as long as its two actions."""
    recompute: Time | float | None = None
    """R of the whole piece; None: as long as forward."""
    recompute_selective: Time | float | None = None
    """R of its attention alone; None: selective recomputation is refused."""
    update: Time | float | None = None
    """U; None: not stated, taken as 0."""
    predict: Time | float | None = None
    """P; None: not stated, taken as 0."""
    bytes: PieceBytes = PieceBytes()
    """Bytes of the piece."""

    def __post_init__(self) -> None:
        for name in TIMES:
            value = getattr(self, name)
            if value is not None and not isinstance(value, WorkTime | BySize):
                object.__setattr__(self, name, WorkTime(non_negative(name, value)))
        # a half alone is enough, the other then takes no time; but a backward that nobody stated would be free without a word
        if self.backward is None and not self.has_halves:
            raise ArgumentError("no backward is stated: give backward, or input_grad and weight_grad")

    @property
    def has_halves(self) -> bool:
        """Whether the backward can be split."""
        return self.input_grad is not None or self.weight_grad is not None

    @property
    def has_tables(self) -> bool:
        """Whether some time or bytes are tabulated by micro-batch size."""
        values = [getattr(self, name) for name in TIMES] + [getattr(self.bytes, field.name) for field in fields(PieceBytes)]
        return any(isinstance(value, BySize) for value in values)

    @property
    def has_samples(self) -> bool:
        """Whether any time of a piece without tables keeps more than one sample."""
        times = (self._time(name) for name in TIMES)
        return any(time is not None and len(time.samples) > 1 for time in times)

    def at(self, size: int) -> PieceCosts:
        """Return the piece with every table read at a micro-batch size; raises ArgumentError outside of a table."""
        times = {name: _read(getattr(self, name), size, blend_times) for name in TIMES}
        amounts = {field.name: _read(getattr(self.bytes, field.name), size, blend_numbers) for field in fields(PieceBytes)}
        return replace(self, **times, bytes=PieceBytes(**amounts))

    def scaled(self, factor: float) -> PieceCosts:
        """Return the piece, which holds no tables, for micro-batches of `factor` times as many samples."""
        times = {name: self._time(name) for name in SIZED_TIMES}
        grown: dict[str, Any] = {name: None if time is None else time.scaled(factor) for name, time in times.items()}
        amounts = {name: getattr(self.bytes, name) for name in SIZED_BYTES}
        larger = {name: None if amount is None else amount * factor for name, amount in amounts.items()}
        return replace(self, **grown, bytes=replace(self.bytes, **larger))

    def time_of(self, kind: Kind, *, selective: bool = False) -> WorkTime | None:
        """Return the time of a kind of work for a piece that holds no tables, or None where it is not stated."""
        # what may be left out has an answer here, so that arrays and refusals know only "stated" and "not stated"
        if kind is Kind.BACKWARD:
            return self._time("backward") or total(_stated((self._time("input_grad"), self._time("weight_grad"))))
        if kind in {Kind.INPUT_GRAD, Kind.WEIGHT_GRAD}:
            # a half that is left out beside the other takes no time
            return self._time(kind.word) or (WorkTime(0.0) if self.has_halves else None)
        if kind is Kind.RECOMPUTE:
            return self._time("recompute_selective") if selective else self._time("recompute") or self._time("forward")
        if kind in {Kind.UPDATE, Kind.PREDICT}:
            return self._time(kind.word) or WorkTime(0.0)
        return self._time(kind.word)

    def _time(self, name: str) -> WorkTime | None:
        time = getattr(self, name)
        assert time is None or isinstance(time, WorkTime), "a table by size is read with `at` first"
        return time


TIMES = tuple(field.name for field in fields(PieceCosts) if field.name not in {"name", "bytes"})
"""Names of all times of a piece."""


def _read(value: Any, size: int, blend: Callable[[Value, Value, float], Value]) -> Any:
    return value.at(size, blend) if isinstance(value, BySize) else value


def _stated(values: Iterable[Value | None]) -> list[Value]:
    return [value for value in values if value is not None]


def as_stage(layers: Sequence[PieceCosts]) -> PieceCosts:
    """Return the costs of a stage that runs these layers, which hold no tables.

    A layer that does not state an update, a prediction or a selective recomputation has none; halves and overlapped pairs
    must be stated by all layers, or the stage does not have them.
    """
    if len(layers) == 1:
        return layers[0]  # as it was stated, its name and what it leaves out included

    def run(kind: Kind) -> WorkTime | None:
        # a sum in which a layer is missing would be too short, and nobody would see it
        times = _stated(layer.time_of(kind) for layer in layers)
        return total(times) if len(times) == len(layers) else None

    def any_of(name: str) -> WorkTime | None:
        times = _stated(getattr(layer, name) for layer in layers)
        return total(times) if times else None

    forward = run(Kind.FORWARD)
    assert forward is not None, "every layer states its forward"
    return PieceCosts(
        name=f"{layers[0].name}..{layers[-1].name}",
        forward=forward,
        backward=run(Kind.BACKWARD),
        input_grad=run(Kind.INPUT_GRAD),
        weight_grad=run(Kind.WEIGHT_GRAD),
        overlapped=run(Kind.OVERLAPPED),
        recompute=run(Kind.RECOMPUTE),
        recompute_selective=any_of("recompute_selective"),
        update=any_of("update"),
        predict=any_of("predict"),
        bytes=_bytes_of_stage([layer.bytes for layer in layers]),
    )


def _bytes_of_stage(layers: Sequence[PieceBytes]) -> PieceBytes:
    """Add up all but the input (the first layer's), the output (the last layer's) and the workspace (the widest)."""

    def summed(name: str) -> float | None:
        amounts = _stated(getattr(layer, name) for layer in layers)
        return sum(amounts) if amounts else None

    # of a layer that does not state it all that it keeps: one without attention has nothing that selective recomputation could
    # drop, and what weight gradients need is not known to be less
    def summed_or_all(name: str) -> float | None:
        stated = [getattr(layer, name) for layer in layers]
        if all(amount is None for amount in stated):
            return None
        pairs = zip(stated, layers, strict=True)
        return sum(_plain(layer.activations if amount is None else amount) for amount, layer in pairs)

    # layers run one behind the other, so the widest has the workspace to itself
    workspaces = [_plain(layer.workspace) for layer in layers if layer.workspace is not None]
    return PieceBytes(
        weights=summed("weights"),
        gradients=summed("gradients"),
        optimizer=summed("optimizer"),
        activations=summed("activations"),
        activations_selective=summed_or_all("activations_selective"),
        activations_weight_grad=summed_or_all("activations_weight_grad"),
        boundary=layers[0].boundary,
        output=layers[-1].output,
        skip=layers[-1].skip,
        tied=summed("tied"),
        predictor=summed("predictor"),
        workspace=max(workspaces) if workspaces else None,
    )


def _plain(amount: Size | None) -> float:
    assert not isinstance(amount, BySize), "a table by size is read with `at` first"
    return amount or 0.0

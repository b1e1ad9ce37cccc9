"""The costs file, schedir.costs/1: its tables, and how a time or a number of bytes may be written.

forward = 18.5                                        in the file's time_unit
forward = "18.5 ms"                                   in its own
forward = { median = 18.5, first = 20.1, samples = [18.4, 18.5, 18.6], repeats = [0, 0, 1] }
forward = { 1 = 18.5, 4 = 70.2 }                      by micro-batch size, with scaling = "table"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from operator import itemgetter
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationInfo

from schedir.costs.files.border import Strict
from schedir.costs.files.units import BYTES, TIME, parse_quantity
from schedir.costs.work import BySize, WorkTime
from schedir.errors import ArgumentError

SCHEMA = "schedir.costs/1"

SECONDS = {"s": Decimal(1), "ms": Decimal("1e-3"), "us": Decimal("1e-6")}
"""Values of time_unit in seconds. Decimals: 18.522 ms is the float next to 0.018522, which 18.522 * 1e-3 is not."""

Value = TypeVar("Value")


def _seconds(value: object, info: ValidationInfo) -> float:
    number = parse_quantity(value, TIME)
    # the file's time_unit comes by the context: a validator of one field does not see the fields beside it
    unit: Decimal = (info.context or {}).get("unit", Decimal(1))
    # repr: the digits that were written, not those of the float
    return number if isinstance(value, str) or unit == 1 else float(Decimal(repr(number)) * unit)


def _time(value: Any, info: ValidationInfo) -> WorkTime | BySize[WorkTime] | None:
    if value is None:
        return None
    if _is_by_size(value):
        return _by_size(value, lambda entry: _single_time(entry, info))
    return _single_time(value, info)


def _single_time(value: Any, info: ValidationInfo) -> WorkTime:
    if not isinstance(value, Mapping):
        return WorkTime(_seconds(value, info))
    unknown = sorted(set(value) - {"median", "first", "samples", "repeats"})
    if unknown:
        raise ArgumentError(f"the key {unknown[0]!r} is unknown: a time has median, first, samples, repeats, or micro-batch sizes")
    if value.get("median") is None:
        raise ArgumentError("the median is missing: give it, or a plain number")
    samples, repeats = (_numbers(value, name) for name in ("samples", "repeats"))
    first = value.get("first")
    return WorkTime(
        median=_seconds(value["median"], info),
        first=None if first is None else _seconds(first, info),
        samples=tuple(_seconds(sample, info) for sample in samples),
        repeats=tuple(repeats),
    )


def _numbers(value: Mapping[str, Any], name: str) -> Sequence[Any]:
    numbers = value.get(name) or ()
    if not isinstance(numbers, list | tuple):
        raise ArgumentError(f"{name} {numbers!r} is not a list: give one number per measurement")
    return numbers


def _bytes(value: Any) -> float | BySize[float] | None:
    if value is None:
        return None
    if _is_by_size(value):
        return _by_size(value, lambda entry: parse_quantity(entry, BYTES))
    return parse_quantity(value, BYTES)


def _is_by_size(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(str(key).isdecimal() for key in value)


def _by_size(value: Mapping[str, Any], read: Callable[[Any], Value]) -> BySize[Value]:
    entries = sorted(((int(size), read(entry)) for size, entry in value.items()), key=itemgetter(0))
    return BySize(tuple(size for size, _ in entries), tuple(entry for _, entry in entries))


# Any: pydantic must take what the validator returns as it is, WorkTime and BySize are none of its types
TimeValue = Annotated[Any, BeforeValidator(_time)]
SizeValue = Annotated[Any, BeforeValidator(_bytes)]


class BytesTable(Strict):
    """Bytes of a row; see PieceBytes."""

    weights: SizeValue = None
    gradients: SizeValue = None
    optimizer: SizeValue = None
    activations: SizeValue = None
    activations_selective: SizeValue = None
    activations_weight_grad: SizeValue = None
    boundary: SizeValue = None
    output: SizeValue = None
    skip: SizeValue = None
    tied: SizeValue = None
    predictor: SizeValue = None
    workspace: SizeValue = None


class CostsRow(Strict):
    """Costs of every stage (`default`), one stage or one layer; see PieceCosts."""

    forward: TimeValue = None
    backward: TimeValue = None
    input_grad: TimeValue = None
    weight_grad: TimeValue = None
    overlapped: TimeValue = None
    recompute: TimeValue = None
    recompute_selective: TimeValue = None
    update: TimeValue = None
    predict: TimeValue = None
    bytes: BytesTable | None = None


class StageCostsRow(CostsRow):
    """What one stage has other than `default`."""

    stage: int = Field(ge=0)
    name: str = ""


class LayerCostsRow(CostsRow):
    """One layer."""

    layer: int = Field(ge=0)
    name: str = ""


class Transfer(Strict):
    """Hand-overs between devices where no cluster is given."""

    latency: Annotated[float, BeforeValidator(_seconds)]


class CostsFile(Strict):
    """The whole file."""

    schema_: Literal["schedir.costs/1"] = Field(alias="schema")
    granularity: Literal["stage", "layer"]
    time_unit: Literal["s", "ms", "us"] = "s"
    micro_batch_size: int = Field(default=1, ge=1)
    scaling: Literal["linear", "fixed", "table"] = "linear"
    source: dict[str, Any] = Field(default_factory=dict)
    dispatch_gap_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    default: CostsRow | None = None
    stages: list[StageCostsRow] = Field(default_factory=list)
    layers: list[LayerCostsRow] = Field(default_factory=list)
    transfer: Transfer | None = None

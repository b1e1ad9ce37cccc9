"""The object that `simulate --json` prints: schedir.simulate/1, metrics and what they were computed from.

Null means not modelled, never 0. Fractions have six decimals; seconds twelve significant digits of the makespan, so that what
float arithmetic leaves behind (34.60000000000001) is not printed and a run of microseconds keeps its digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from typing import Any

from schedir.timeline.metrics.metrics import Metrics, metrics
from schedir.timeline.timeline import Source, Timeline

SCHEMA = "schedir.simulate/1"

_FRACTIONS = frozenset({"bubble_fraction", "bubble_overhead", "recompute_share", "model_flops_utilization"})
_FRACTION_DIGITS = 6
_SIGNIFICANT_DIGITS = 12


def simulate_report(timeline: Timeline, figures: Metrics | None = None) -> dict[str, Any]:
    """Return the report of a timeline as plain JSON values; `figures` are its metrics if they are known already."""
    known = metrics(timeline) if figures is None else figures
    body = _Rounding(known.makespan_s).plain(known)
    notes = list(timeline.meta.get("notes", ()))
    # JSON has no infinity, and the schema wants a number
    if math.isinf(known.bubble_overhead):
        body["bubble_overhead"] = 0.0
        notes.append("bubble_overhead is infinite and printed as 0: no task takes time, devices only wait")
    return {"schema": SCHEMA, "schedir": version("schedir"), **_setting(timeline), **body, "notes": notes}


def _setting(timeline: Timeline) -> dict[str, Any]:
    """Return what the figures belong to."""
    graph, meta = timeline.graph, timeline.meta
    program = graph.program
    data_parallel, tensor_parallel = meta.get("data_parallel", 1), meta.get("tensor_parallel", 1)
    measured = timeline.source is Source.MEASURED
    return {
        "schedule": program.name,
        "num_devices": program.num_devices,
        "num_stages": program.num_stages,
        "num_micro_batches": program.num_micro_batches,
        "num_mini_batches": program.num_mini_batches,
        "stages_per_device": program.stages_per_device,
        "data_parallel": data_parallel,
        "tensor_parallel": tensor_parallel,
        "total_devices": program.num_devices * data_parallel * tensor_parallel,
        "micro_batch_size": meta.get("micro_batch_size"),
        "mini_batch_size": meta.get("mini_batch_size"),
        "recompute": graph.options.recompute_text,
        "recompute_start": graph.options.recompute_start,
        "weights": str(program.weights),
        "synchronous": program.weights.synchronous,
        "engine": None if measured else meta.get("engine"),
        "seed": meta.get("seed"),
        "costs": dict(meta.get("costs", {"basis": "measured"} if measured else {})),
        "cluster": meta.get("cluster"),
    }


class _Rounding:
    """Turns dataclasses into JSON values with numbers as they should be read."""

    def __init__(self, makespan_s: float) -> None:
        # all seconds to one digit behind the point, the twelfth of the makespan: they are parts of it
        magnitude = math.floor(math.log10(makespan_s)) if makespan_s > 0 else 0
        self._second_digits = _SIGNIFICANT_DIGITS - 1 - magnitude

    def plain(self, value: object) -> Any:
        """Return a frozen dataclass as a dict, in the order of its fields."""
        assert is_dataclass(value)
        return {field.name: self._value(field.name, getattr(value, field.name)) for field in fields(value)}

    def _value(self, name: str, value: object) -> Any:
        if isinstance(value, float):
            return self._number(name, value)
        if isinstance(value, Mapping):
            return {key: self._value(name, item) for key, item in value.items()}
        if isinstance(value, tuple):
            return [self._value(name, item) for item in value]
        return self.plain(value) if is_dataclass(value) else value

    def _number(self, name: str, value: float) -> float:
        # rates are no parts of the makespan and may be of any size: significant digits, not digits behind the point
        if name.endswith("_per_s"):
            return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
        digits = _FRACTION_DIGITS if name in _FRACTIONS else self._second_digits
        return (round(value, digits) if math.isfinite(value) else value) + 0.0  # no -0.0

"""What `schedir simulate` prints: six lines, a table of devices, bars that fit the terminal, notes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from schedir.cli.screen.bars import bar_rows, legend, window_of
from schedir.cli.screen.screen import (
    amount,
    counted,
    left_out,
    print_table,
    seconds,
    shape_text,
    short,
    shown_rows,
    unit_for,
)
from schedir.timeline.metrics.metrics import Metrics
from schedir.timeline.percent import percent
from schedir.timeline.timeline import Timeline

_CAUSES = ("start_up", "drain", "dependency", "transfer", "reduce")


def print_prediction(timeline: Timeline, figures: Metrics, report: dict[str, Any]) -> None:
    """Print one predicted timeline."""
    for name, text in summary(timeline, figures, report):
        print(f"{name:9} {text}")
    print()
    print_devices(figures)
    print()
    print_bars(timeline)
    for note in report["notes"]:
        print(f"note: {note}")


def summary(timeline: Timeline, figures: Metrics, report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the six lines as pairs of a name and a text."""
    program = timeline.graph.program
    recompute = report["recompute"]
    if recompute != "never":
        recompute = f"{recompute} (starts {report['recompute_start']})"
    return [
        ("schedule", f"{shape_text(program)}, recompute {recompute}"),
        ("costs", f"{describe_costs(report['costs'], cluster=_linking(timeline, report))}; engine {report['engine']}"),
        ("time", _time(figures)),
        ("bubble", _bubble(figures)),
        ("path", _path(figures)),
        ("memory", f"{_memory(figures)}; {_weights(figures, report)}"),
    ]


def _linking(timeline: Timeline, report: dict[str, Any]) -> str | None:
    """Return the name of the cluster whose links say how long transfers take, if that is so."""
    cluster = report["cluster"]
    return str(cluster["name"]) if cluster and cluster.get("links") and timeline.meta.get("link_bytes") is not None else None


def describe_costs(costs: dict[str, Any], *, cluster: str | None = None) -> str:
    """Say in one line which costs were used and what they stand on; a `cluster` takes the place of their transfers."""
    named = [(key.removesuffix("_s").replace("_", " "), value) for key, value in costs.items() if key.endswith("_s") and value]
    texts = [f"{name} {_values(value)}" for name, value in named if cluster is None or name != "transfer"]
    listed = ", ".join([*texts, *([] if cluster is None else [f"transfers by cluster {cluster}"])])
    source = costs.get("file") or costs.get("kind", "costs")
    return f"{source} ({costs.get('basis', 'assumed')})" + (f": {listed}" if listed else "")


def _values(value: float | list[float]) -> str:
    if not isinstance(value, list):
        return seconds(value)
    if len(set(value)) == 1:
        return seconds(value[0])
    return f"{seconds(min(value))} to {seconds(max(value))}"


def _time(figures: Metrics) -> str:
    steady = figures.steady
    parts = [f"{seconds(figures.makespan_s)} in all, {seconds(figures.seconds_per_mini_batch)} per mini-batch"]
    if steady is not None:
        span = f"mini-batches {steady.first_mini_batch + 1} to {steady.last_mini_batch}"
        parts.append(f"{seconds(steady.seconds_per_mini_batch)} in steady state ({span})")
    if figures.samples_per_s is not None:
        parts.append(f"{figures.samples_per_s:.4g} samples/s")
    drawn = figures.percentiles
    if drawn is not None:
        figures_drawn = ", ".join(f"{name} {seconds(value)}" for name, value in drawn.seconds_per_mini_batch.items())
        parts.append(f"over {counted(drawn.samples, 'draw')}: {figures_drawn}")
    return ", ".join(parts)


def _bubble(figures: Metrics) -> str:
    parts = [f"{percent(figures.bubble_fraction)} of the whole run = 1 - busy / (devices x time)"]
    if figures.steady is not None:
        parts.append(f"{percent(figures.steady.bubble_fraction)} in steady state")
    if figures.recompute_share:
        parts.append(f"recomputation {percent(figures.recompute_share)} of busy, costs {seconds(figures.recompute_overhead_s)}")
    return ", ".join(parts)


def _path(figures: Metrics) -> str:
    path = figures.critical_path
    kinds = ", ".join(f"{kind.replace('_', ' ')} {seconds(value)}" for kind, value in path.seconds_by_kind.items())
    transfers = f", transfers {seconds(path.transfer_s)}" if path.transfer_s else ""
    return f"critical path of {counted(path.tasks, 'task')}: {kinds}{transfers}"


def _memory(figures: Metrics) -> str:
    if figures.peak_bytes is None:
        live = max(row.peak_live_activations for row in figures.devices)
        return f"bytes not modelled, at most {counted(live, 'live activation')} on a device"
    if figures.fits is False:
        return _too_much(figures)
    return figures.verdict or f"peak {amount(figures.peak_bytes)} on device {figures.peak_device}, no limit given"


def _too_much(figures: Metrics) -> str:
    """Say in words which device is over its limit by most, by what and what would help; the verdict has it in short."""
    over = max(figures.devices, key=lambda row: ((row.peak_bytes or 0) - (row.limit_bytes or 0), -row.device))
    held = asdict(over.peak_bytes_by_class) if over.peak_bytes_by_class is not None else {}
    largest = max(held, key=held.__getitem__)
    remedy = str(figures.verdict).rsplit(": ", 1)[-1]
    return (
        f"does not fit: device {over.device} needs {amount(over.peak_bytes)} and has {amount(over.limit_bytes)}; "
        f"most of it is {largest.replace('_', ' ')}, {amount(held[largest])}, at {seconds(over.peak_at_s)}; what helps: {remedy}"
    )


def _weights(figures: Metrics, report: dict[str, Any]) -> str:
    versions = max(stage.weight_versions for stage in figures.stages)
    staleness = max(stage.staleness for stage in figures.stages)
    parts = [f"weights {report['weights']}: {counted(versions, 'version')}", f"staleness {staleness}"]
    horizons = [stage.horizon_forward for stage in figures.stages if stage.horizon_forward is not None]
    if horizons:
        parts.append(f"predicted over at most {counted(max(horizons), 'update')}")
    return ", ".join(parts)


def print_devices(figures: Metrics) -> None:
    """Print the table of devices; causes of idleness that never occur have no column."""
    factor, unit = unit_for(figures.makespan_s)
    devices = figures.devices
    columns: dict[str, list[str]] = {
        f"in {unit}: device": [str(row.device) for row in devices],
        "stages": [_stages(row.stages) for row in devices],
        "busy": [short(row.busy_s / factor) for row in devices],
        "idle": [short(row.idle_s / factor) for row in devices],
    }
    for cause in _CAUSES:
        waited = [getattr(row.idle_by_cause_s, cause) for row in devices]
        if any(waited):
            columns[cause.replace("_", "-")] = [short(value / factor) for value in waited]
    columns["live"] = [str(row.peak_live_activations) for row in devices]
    if figures.peak_bytes is not None:
        columns["peak"] = [amount(row.peak_bytes) for row in devices]
    if figures.fits is not None:
        columns["limit"] = [amount(row.limit_bytes) for row in devices]
        columns["fits"] = ["yes" if row.fits else "no" for row in devices]
    rows = list(zip(*columns.values(), strict=True))
    shown = shown_rows(len(rows))
    print_table(list(columns), [rows[device] for device in shown])
    for note in left_out(shown, len(rows), "device"):
        print(note)


def _stages(stages: tuple[int, ...]) -> str:
    """Return the stages of a device, those that follow each other as a range: `0,7`, `8-15`."""
    return (
        f"{stages[0]}-{stages[-1]}" if len(stages) > 2 and stages[-1] - stages[0] == len(stages) - 1 else ",".join(map(str, stages))
    )


def print_bars(timeline: Timeline) -> None:
    """Print the timeline as bars, one row per device."""
    names = [f"device {device}" for device in range(timeline.graph.program.num_devices)]
    indent = len(names[-1])
    window = window_of([timeline], indent + 3)
    rows, shown = bar_rows(timeline, window), shown_rows(len(names))
    for before, device in zip([-1, *shown], shown, strict=False):
        print("..." * (device > before + 1) + "\n" * (device > before + 1) + f"{names[device]:{indent}} |{rows[device]}|")
    axis = f"0 to {seconds(window.seconds)}"
    print(f"{'':{indent}}  {axis}   {legend([timeline])}")
    for note in [*window.note(indent + 3), *left_out(shown, len(names), "device")]:
        print(note)

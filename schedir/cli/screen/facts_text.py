"""What a task graph proves, in words: printed by `show` and `check`."""

from __future__ import annotations

from collections.abc import Sequence

from schedir.cli.screen.screen import counted, left_out, print_table, shape_text, shown_rows
from schedir.ir.action import Kind
from schedir.ir.checks.rendezvous import rendezvous_deadlock
from schedir.ir.facts import Facts, facts
from schedir.ir.graph import TaskGraph
from schedir.ir.weights import Rule
from schedir.lowering.across import named


def print_facts(graph: TaskGraph) -> None:
    """Print shape, weights by stage, live activations by device and the behaviour under blocking sends."""
    program, known = graph.program, facts(graph)
    print(f"{shape_text(program)}; {_tasks(graph)}")
    print(f"weights: {_rule(graph)}: {_consistency(graph, known)}")
    print(f"live activations by device: {' '.join(map(str, known.peak_live_activations))}")
    hosts = graph.stage_devices()
    if any(len(devices) > 1 for devices in hosts):
        print(f"stages whose weights a device holds: {_held(hosts, program.num_devices)}")
    for tie in graph.options.ties:
        print(f"tied weights: {_tied(graph, tie)}")
    if graph.options.common_update:
        print(f"common update: {_common_update(graph)}")
    if graph.options.skips:
        print(f"skip connections, each over a link of its own: {', '.join(f'{a} to {b}' for a, b in graph.options.skips)}")
    print(f"blocking sends: {_blocking(graph)}")
    print_weights(graph, known)


def _tasks(graph: TaskGraph) -> str:
    """Count tasks by where they run: on devices, on links, and between the copies of a stage, which only some schedules have."""
    reductions = int((graph.kind == Kind.REDUCE).sum())
    transfers = graph.num_tasks - graph.num_compute_tasks - reductions
    parts = [counted(graph.num_compute_tasks, "task"), counted(transfers, "transfer")]
    return ", ".join([*parts, counted(reductions, "reduction")] if reductions else parts)


def _held(hosts: Sequence[Sequence[int]], num_devices: int) -> str:
    """Say how many stages every device holds the weights of, and how often the whole model is there."""
    held = [sum(device in devices for devices in hosts) for device in range(num_devices)]
    copies = sorted({len(devices) for devices in hosts})
    often = str(copies[0]) if len(copies) == 1 else f"{copies[0]} to {copies[-1]}"
    return f"{' '.join(map(str, held))}, {often} {'copies' if copies[-1] > 1 else 'copy'} of every stage"


def _tied(graph: TaskGraph, tie: tuple[int, ...]) -> str:
    """Say which stages hold the same weights, and whether their gradients have to travel."""
    hosts = graph.stage_devices()
    devices = sorted({device for stage in tie for device in hosts[stage]})
    who = f"{named(tie)} hold the same, and update them with the sum of their gradients"
    if len(devices) == 1:
        return f"{who}: one copy on device {devices[0]}, nothing is exchanged"
    return f"{who}: a copy on devices {', '.join(map(str, devices))}, exchanged once per mini-batch"


def _common_update(graph: TaskGraph) -> str:
    """Say what no update comes before, and whether anything has to travel for it."""
    who = "no stage updates before all have their gradients of the mini-batch"
    if graph.program.num_devices == 1:
        return f"{who}: all are on device 0, nothing is exchanged"
    return f"{who}: all devices exchange a number once per mini-batch"


def _rule(graph: TaskGraph) -> str:
    rule = graph.program.weights
    if rule.rule is not Rule.PREDICT:
        return str(rule)
    return (
        f"{rule}, horizon {rule.horizon}, backward on {'its own prediction' if rule.backward == 'predict' else 'the forward stash'}"
    )


def _consistency(graph: TaskGraph, known: Facts) -> str:
    if graph.program.weights.synchronous:
        return "synchronous, every read is of the version that sequential training would read"
    stale = f"reads lack up to {counted(max(known.staleness), 'update')}"
    if known.consistent:
        return f"{stale}; every backward reads weights as new as its forward's"
    return f"{stale}; a backward's weights are up to {counted(max(known.drift), 'update')} away from its forward's"


def _blocking(graph: TaskGraph) -> str:
    sends = rendezvous_deadlock(graph)
    if not sends:
        return "runs to its end"
    more = f" and {len(sends) - 1} more" if len(sends) > 1 else ""
    return f"would deadlock ({sends[0]}{more}); buffered sends, which our executors use, do not"


def print_weights(graph: TaskGraph, known: Facts) -> None:
    """Print versions, staleness and horizons of every stage; horizons by the policy's formula and as the graph counts them."""
    hosts = graph.stage_devices()
    columns = {
        "device": [",".join(map(str, devices)) for devices in hosts],
        "copies": [len(devices) for devices in hosts] if any(len(devices) > 1 for devices in hosts) else None,
        "versions": known.weight_versions,
        "of them true": known.true_versions if known.true_versions != known.weight_versions else None,
        "staleness": known.staleness,
        "drift": known.drift if any(known.drift) else None,
        "F horizon": known.horizon_forward,
        "F counted": known.counted_forward,
        "B horizon": known.horizon_backward,
        "B counted": known.counted_backward,
    }
    kept = {name: column for name, column in columns.items() if column is not None}
    shown = shown_rows(graph.program.num_stages)
    print()
    print_table(["stage", *kept], [[str(stage), *(str(column[stage]) for column in kept.values())] for stage in shown])
    for note in left_out(shown, graph.program.num_stages, "stage"):
        print(note)

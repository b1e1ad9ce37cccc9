"""What `schedir search` prints: what was searched and found, how good that is, devices, bars, notes."""

from __future__ import annotations

from schedir.cli.screen.screen import counted, seconds
from schedir.cli.screen.simulate_text import describe_costs, print_bars, print_devices
from schedir.search.found import BoundBy, Found, Stop
from schedir.search.problem.problem import Objective, Problem
from schedir.timeline.metrics.report import simulate_report
from schedir.timeline.percent import percent, signed

_STOPS = {
    Stop.TIME: "the time is used up",
    Stop.ITERATIONS: "the iterations are used up",
    Stop.OPTIMAL: "no order of this placement can be better",
    Stop.NO_START: "nothing else fits to go on from",
    Stop.INTERRUPTED: "interrupted",
}
_WORDS = {Objective.MAKESPAN: "makespan", Objective.DEVICE_SPAN: "device span"}
_BOUNDS = {BoundBy.WORK: "by a device's work and what must come before and behind it", BoundBy.CP_SAT: "proved by CP-SAT"}


def print_found(found: Found, problem: Problem) -> None:
    """Print what a search found."""
    for name, text in summary(found, problem):
        print(f"{name:10} {text}")
    print()
    print_devices(found.best.figures)
    print()
    print_bars(found.best.timeline)
    for note in [*found.best.timeline.meta.get("notes", ()), *found.notes, *found.two_ways]:
        print(f"note: {note}")


def summary(found: Found, problem: Problem) -> list[tuple[str, str]]:
    """Return six lines as pairs of a name and a text."""
    figures = found.best.figures
    report = simulate_report(found.best.timeline, figures)
    span = f"{seconds(figures.makespan_s)} in all, longest device {seconds(figures.device_span_s)}"
    return [
        ("search", _asked(problem)),
        ("costs", describe_costs(report["costs"])),
        ("found", _found(found, problem)),
        ("bound", _bound(found, problem)),
        ("registered", _registered(found)),
        ("time", f"{span}, bubble {percent(figures.bubble_fraction)} = 1 - busy / (devices x time)"),
    ]


def _asked(problem: Problem) -> str:
    limits = []
    if problem.limits.activations is not None:
        limits.append(f"at most {','.join(map(str, problem.limits.activations))} live activations")
    if problem.limits.bytes is not None:
        limits.append(f"at most {problem.limits.bytes / 1e9:.4g} GB")
    return (
        f"shortest {_WORDS[problem.objective]} of {counted(problem.num_micro_batches, 'micro-batch')} on "
        f"{counted(problem.num_devices, 'device')}, {counted(problem.num_stages, 'stage')}, "
        + (" and ".join(limits) + " on a device" if limits else "no limit of memory")
    )


def _found(found: Found, problem: Problem) -> str:
    value, name = seconds(found.best.value), found.best.program.name
    where = f", stages in a {'V' if found.placement.value == 'v' else 'loop'}" if problem.stages_per_device > 1 else ""
    return f"{name}: {value}{where}; {counted(found.steps, 'order')} tried, {_STOPS[found.stopped]}"


def _bound(found: Found, problem: Problem) -> str:
    limited = problem.limits.activations is not None or problem.limits.bytes is not None
    bound = f"{seconds(found.bound)} {_BOUNDS[found.bound_by]}{' under the limits' if limited else ''}"
    return (
        f"{bound}: the order is optimal for its placement"
        if found.optimal
        else f"{bound}: the order is at most {percent(found.gap)} longer"
    )


def _registered(found: Found) -> str:
    if not found.has_registered:
        return "no registered schedule has this shape, placement and kind of backward"
    if found.registered is None:
        return "no registered schedule fits the limits"
    shorter = found.best is not found.registered
    compared = (
        f"the found order is {_change(found.best.value / found.registered.value - 1)}" if shorter else "nothing shorter was found"
    )
    return f"best that fits: {found.registered.program.name}, {seconds(found.registered.value)}: {compared}"


def _change(fraction: float) -> str:
    """Return a fraction that is not 0 as signed percent: to a tenth, or two digits where that would say 0."""
    return signed(fraction) if abs(fraction) >= 0.0005 else f"{100 * fraction:+.2g} %"

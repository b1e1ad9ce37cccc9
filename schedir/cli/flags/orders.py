"""Schedules whose order follows costs: which order they get, and the line that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from schedir.cli.flags.costs import follows_costs, with_costs, without_costs
from schedir.cli.flags.options import ShapeOptions
from schedir.cli.flags.prediction import Common, check_skip_bytes, predict
from schedir.cli.flags.prediction_options import CostOptions
from schedir.cli.flags.sources import compile_graph, read_program
from schedir.cli.screen.screen import seconds
from schedir.errors import ArgumentError
from schedir.timeline.metrics.metrics import metrics
from schedir.timeline.timeline import Timeline


def check_order(common: Common, sources: Sequence[str]) -> None:
    """Raise ArgumentError for a limit beside the order that has none, and where no schedule has an order by costs."""
    limit = common.options.activation_limit
    if common.order.fixed_order and not any(map(follows_costs, sources)):
        raise ArgumentError(f"--fixed-order: the order of {', '.join(sources)} never follows the costs: leave it out")
    if common.order.fixed_order and limit is not None:
        raise ArgumentError(
            f"--activation-limit {limit} chooses an order by costs, --fixed-order takes none: leave one of them out"
        )


def predict_schedule(source: str, common: Common, shape: ShapeOptions) -> tuple[Timeline, str | None]:
    """Build, compile and predict a schedule; return also the line that says where its order is not its fixed one.

    The line stands among the timeline's notes. Raises SchedirError for what does not fit together.
    """
    check_skip_bytes(common.costs, common.lowering)
    options = common.options
    chosen = options if common.order.fixed_order else with_costs(source, options, common.costs)
    program = read_program(source, shape, chosen)
    timeline = predict(compile_graph(program, common.lowering), common.costs, sizes=common.sizes, engine=common.engine)
    fixed = program if chosen is options else read_program(source, shape, without_costs(options))
    if fixed == program:
        return timeline, None
    other = predict(compile_graph(fixed, common.lowering), common.costs, sizes=common.sizes, engine=common.engine)
    line = order_line(program.name, f"{seconds(metrics(other).makespan_s)} in all", common.costs, limit=options.activation_limit)
    return with_notes(timeline, [line]), line


def order_line(name: str, fixed_takes: str, costs: CostOptions, *, limit: int | None) -> str:
    """Say that an order was chosen, for what, and what the fixed one takes."""
    given = "the default times" if costs == CostOptions() else "these costs"
    if limit is None:
        return f"{name}: order chosen for {given}; the fixed one takes {fixed_takes}: --fixed-order"
    return f"{name}: order chosen for {given} within --activation-limit {limit}; the fixed one, without it, takes {fixed_takes}"


def with_notes(timeline: Timeline, lines: Sequence[str]) -> Timeline:
    """Return the timeline with more notes."""
    return replace(timeline, meta={**timeline.meta, "notes": [*timeline.meta.get("notes", ()), *lines]})


def fixed_line(source: str) -> str | None:
    """Say that a schedule has other orders than the one shown; None for those that have none."""
    if not follows_costs(source):
        return None
    return "order: the fixed one; simulate, compare and plot choose one by the costs, where any are given (--fixed-order keeps it)"

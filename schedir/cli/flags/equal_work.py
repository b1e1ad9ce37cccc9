"""Schedules that are predicted on the same work, as `compare` and `plot` do: what they have in common, and the order of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from schedir.cli.flags.costs import chooses_order, following, read_cluster, read_costs, without_costs
from schedir.cli.flags.options import ChoosingOptions, ShapeOptions
from schedir.cli.flags.orders import order_line, with_notes
from schedir.cli.flags.prediction import Common, check_draws, check_skip_bytes, micro_batch_size, resized
from schedir.cli.flags.prediction_options import CostOptions
from schedir.cli.flags.sources import read_program
from schedir.cli.screen.screen import seconds

if TYPE_CHECKING:
    from schedir.costs.model import CostModel
    from schedir.ir.program import Program
    from schedir.timeline.timeline import Timeline
    from schedir.workflows.comparing.compare_schedules import CommonSetting, ComparedSchedule


def predict_alike(
    sources: Sequence[str],
    common: Common,
    *,
    shapes: Sequence[ShapeOptions],
    options: Sequence[ChoosingOptions],
) -> tuple[list[Timeline], list[str]]:
    """Predict schedules on the same work of a mini-batch; return also the lines that say what is not plain about them.

    `shapes` and `options` are those of each. The lines say which stages hold less work than the costs were given for, and which
    orders follow the costs.
    """
    from schedir.workflows.comparing.compare_schedules import compare_schedules
    from schedir.workflows.comparing.equal_work import equal_work

    fixed = [read_program(*each) for each in zip(sources, shapes, map(without_costs, options), strict=True)]
    setting = common_setting(common, fixed)
    work = equal_work(setting.costs, fixed)
    chosen = by_costs(sources, options, common.costs, costs=[work.of(program) for program in fixed])
    programs = fixed if common.order.fixed_order else [read_program(*each) for each in zip(sources, shapes, chosen, strict=True)]
    limit = next((each.activation_limit for each in options if each.activation_limit is not None), None)
    sides, lines = noted(compare_schedules(programs, setting), fixed, setting, common.costs, limit=limit)
    return [side.timeline for side in sides], [*work.lines(programs), *lines]


def common_setting(common: Common, programs: Sequence[Program], samples: int | None = None) -> CommonSetting:
    """Return the setting; sizes are those of the schedule that cuts its mini-batch into most micro-batches.

    `samples` is how many draws of all durations are asked for.
    """
    from schedir.workflows.comparing.compare_schedules import CommonSetting

    check_skip_bytes(common.costs, common.lowering)
    finest = max(programs, key=lambda program: program.num_micro_batches)
    size = micro_batch_size(common.sizes, finest)
    if samples is not None:
        check_draws(common.engine)
    return CommonSetting(
        costs=resized(read_costs(common.costs), size),
        cluster=read_cluster(common.costs),
        lowering=common.lowering.options(),
        engine=common.engine.engine or "auto",
        seed=common.engine.seed,
        sends=common.engine.sends or "buffered",
        jitter=common.engine.jitter or 0.0,
        samples=samples,
        memory_limit=common.engine.memory_limit,
        cores=common.engine.cores,
        mini_batch_size=None if size is None else size * finest.num_micro_batches,
    )


def by_costs(
    sources: Sequence[str], options: Sequence[ChoosingOptions], given: CostOptions, *, costs: Sequence[CostModel]
) -> list[ChoosingOptions]:
    """Return every schedule's options, with its own costs where it is one that follows costs and there are any to follow."""
    return [
        following(source, own, model) if chooses_order(own, given) else own
        for source, own, model in zip(sources, options, costs, strict=True)
    ]


def noted(
    sides: Sequence[ComparedSchedule], fixed: Sequence[Program], setting: CommonSetting, given: CostOptions, *, limit: int | None
) -> tuple[list[ComparedSchedule], list[str]]:
    """Return the sides, those whose order is not the fixed one with a note that says so; these notes also alone."""
    from schedir.workflows.comparing.compare_schedules import compare_schedules

    others = [side.timeline.graph.program != one for side, one in zip(sides, fixed, strict=True)]
    if not any(others):
        return list(sides), []
    found, lines = [], []
    takes = compare_schedules(fixed, replace(setting, samples=None))
    for side, other, plain in zip(sides, others, takes, strict=True):
        if other:
            name = side.timeline.graph.program.name
            lines.append(order_line(name, f"{seconds(plain.seconds_per_mini_batch)} per mini-batch", given, limit=limit))
            side = replace(side, timeline=with_notes(side.timeline, lines[-1:]))  # noqa: PLW2901 - with its note
        found.append(side)
    return found, lines

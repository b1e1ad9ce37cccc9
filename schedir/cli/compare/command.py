"""`schedir compare`: schedules side by side, two timelines against each other, or, with a model, predicted and trained."""

from __future__ import annotations

from typing import Annotated

import typer

from schedir.cli.compare.options import CompareOutput, CompareShape, TrainingOptions
from schedir.cli.flags.flags import as_command, refuse_all, refuse_given
from schedir.cli.flags.options import ChoosingOptions, CostOptions, EngineOptions, GraphOptions, SizeOptions, VerdictOptions
from schedir.cli.flags.orders import OrderOptions
from schedir.errors import ArgumentError


@as_command
def compare(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SCHEDULE...|TIMELINE...", help="Schedules (names, files, functions), or timeline files."),
    ],
    *,
    training: TrainingOptions,
    output: CompareOutput,
    shape: CompareShape,
    costs: CostOptions,
    options: ChoosingOptions,
    order: OrderOptions,
    lowering: GraphOptions,
    sizes: SizeOptions,
    engine: EngineOptions,
    verdict: VerdictOptions,
) -> None:
    """Put schedules side by side on the same work; with --model they are also trained, predicted against measured."""
    from schedir.cli.flags.sources import is_timeline
    from schedir.workflows.files import check_folder

    check_folder(output.folder)
    if any(map(is_timeline, sources)):
        from schedir.cli.compare.timelines import compare_timelines

        given = (training, shape, costs, options, order, lowering, sizes, engine, verdict)
        refuse_all(given, "timelines of files are compared as they are")
        compare_timelines(sources, output)
        return
    if training.model is not None:
        from schedir.cli.compare.training import compare_with_training
        from schedir.workflows.training_results import TrainingSetting

        _refuse_with_model(costs, sizes, engine)
        refuse_given(order, "with --model nothing chooses an order")
        if options.activation_limit is not None:
            raise ArgumentError("--activation-limit: with --model nothing chooses an order: leave it out")
        refuse_given(
            lowering, "with --model recomputation starts early, and the model says what its stages share", but=("recompute",)
        )
        refuse_given(verdict, "with --model predictions draw from the measured costs, and no memory is limited")
        setting = TrainingSetting(recompute=lowering.recompute or "never", seed=engine.seed or 0, **training.given())
        compare_with_training(sources, training.model, output=output, shape=shape, options=options, setting=setting)
        return
    refuse_given(training, "without --model nothing is trained")
    from schedir.cli.compare.schedules import compare_side_by_side
    from schedir.cli.flags.prediction import Common

    common = Common(costs=costs, lowering=lowering, sizes=sizes, engine=engine, verdict=verdict)
    compare_side_by_side(sources, common, output=output, shape=shape, options=options, order=order)


def _refuse_with_model(costs: CostOptions, sizes: SizeOptions, engine: EngineOptions) -> None:
    """Refuse flags that a measurement leaves no room for."""
    refuse_given(costs, "with --model costs are measured")
    refuse_given(sizes, "with --model the data has its own sizes")
    refuse_given(engine, "with --model predictions draw from the measured costs", but=("seed",))

"""`schedir compare`: schedules side by side, two timelines against each other, or, with a model, predicted and trained."""

from __future__ import annotations

from typing import Annotated

import typer

from schedir.cli.compare.options import CompareOutput, CompareShape, TrainingOptions
from schedir.cli.flags.flags import as_command, refuse_all, refuse_given
from schedir.cli.flags.prediction import Common
from schedir.cli.flags.prediction_options import VerdictOptions
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
    common: Common,
    verdict: VerdictOptions,
) -> None:
    """Put schedules side by side on the same work; with --model they are also trained, predicted against measured."""
    from schedir.cli.flags.sources import is_timeline
    from schedir.workflows.files import check_folder

    check_folder(output.folder)
    if any(map(is_timeline, sources)):
        from schedir.cli.compare.timelines import compare_timelines

        refuse_all((training, shape, common, verdict), "timelines of files are compared as they are")
        compare_timelines(sources, output)
        return
    if training.model is not None:
        from schedir.cli.compare.training import compare_with_training
        from schedir.workflows.comparing.training_results import TrainingSetting

        _refuse_with_model(common)
        refuse_given(verdict, "with --model predictions draw from the measured costs, and no memory is limited")
        recompute, seed = common.lowering.recompute or "never", common.engine.seed or 0
        setting = TrainingSetting(recompute=recompute, seed=seed, **training.given())
        compare_with_training(sources, training.model, output=output, shape=shape, options=common.options, setting=setting)
        return
    refuse_given(training, "without --model nothing is trained")
    from schedir.cli.compare.schedules import compare_side_by_side

    compare_side_by_side(sources, common, output=output, shape=shape, verdict=verdict)


def _refuse_with_model(common: Common) -> None:
    """Refuse flags that a measurement leaves no room for."""
    refuse_given(common.costs, "with --model costs are measured")
    refuse_given(common.sizes, "with --model the data has its own sizes")
    refuse_given(common.engine, "with --model predictions draw from the measured costs", but=("seed",))
    refuse_given(common.order, "with --model nothing chooses an order")
    if common.options.activation_limit is not None:
        raise ArgumentError("--activation-limit: with --model nothing chooses an order: leave it out")
    reason = "with --model recomputation starts early, and the model says what its stages share"
    refuse_given(common.lowering, reason, but=("recompute",))

"""`schedir train`: really train a model by a schedule, with checkpoints, from the start or from where one stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedir.cli.flags.flags import as_command
from schedir.cli.flags.options import RecomputeOptions, ScheduleOptions
from schedir.cli.screen.progress import Steps
from schedir.cli.screen.screen import counted
from schedir.cli.train.options import TrainOptions, TrainOutput, TrainShape
from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from schedir.workflows.training.train_log import TrainLog


@as_command
def train(
    schedule: Annotated[
        str | None, typer.Argument(metavar="SCHEDULE", help="A schedule: its name, a file or a function; a plan has its own.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Argument(metavar="CHECKPOINT", help="With --resume: a checkpoint, a folder of them, or auto.")
    ] = None,
    *,
    shape: TrainShape,
    training: TrainOptions,
    output: TrainOutput,
    options: ScheduleOptions,
    recompute: RecomputeOptions,
) -> None:
    """Train a model for real: any schedule, as long as you like, checkpoints to go on from, a measured timeline at the end."""
    from executor.workers.environment import process_number
    from schedir.cli.train.places import beginning
    from schedir.workflows.files import check_folder
    from schedir.workflows.training.train_files import check_names, write_train_files
    from schedir.workflows.training.train_log import TrainLog

    if training.model is None:
        raise ArgumentError("train needs a model: give --model RECIPE, a model of ours or file.py:function")
    check_folder(output.folder)
    check_names(output.folder)
    is_first = process_number() == 0  # of several processes one prints and writes
    with _held(output.folder) if is_first else nullcontext(), Steps(quiet=not is_first) as steps:
        # looked up before torch, which takes seconds to load
        begin = beginning(schedule, checkpoint, training=training, output=output)
        steps.status("loading torch")
        from executor.global_random import seed_all
        from executor.recipe.training_loop import train_recipe
        from executor.recipe.training_outcome import Watchers
        from schedir.cli.flags.recipes import find_recipe
        from schedir.cli.screen.train_progress import TrainProgress
        from schedir.cli.screen.train_text import print_outcome
        from schedir.cli.train.planning import training_plan

        seed_all(training.seed or 0)
        recipe = find_recipe(training.model)
        plan = training_plan(recipe, begin.schedule, shape, training=training, output=output, options=options, recompute=recompute)
        steps.say(recipe.headline)
        steps.status(f"building the pipeline of {plan.schedule}")
        log = TrainLog(output.folder, say=steps.say)
        progress = TrainProgress(steps, total=plan.num_mini_batches)
        watch = Watchers((log, progress) if is_first else (progress,))
        with _told_how_to_go_on(log, steps, checkpoint_every=output.checkpoint_every):
            outcome = train_recipe(recipe, plan, folder=output.checkpoints, resume=begin.checkpoint, watch=watch)
        if not is_first:
            return
        if not outcome.losses:
            log.nothing_is_left()
            steps.say(
                f"nothing is left to train: {outcome.checkpoint} stands after {counted(outcome.first_mini_batch, 'mini-batch')}"
            )
        steps.status("drawing and writing what was measured")
        files = write_train_files(output.folder, outcome, log=log, recipe=recipe, plan=plan)
    print_outcome(outcome, log.evaluations)
    _print_files(files)


def _print_files(files: Sequence[Path]) -> None:
    """Say what was written, and which of it there is not, since a training that had nothing left to do cannot make it."""
    from schedir.workflows.training.train_files import MEASURED

    missing = [f"no {name}" for name in MEASURED if name not in {file.name for file in files}]
    if missing:
        print(f"{', '.join(missing)}: nothing was trained here, so nothing was measured")
    for file in files:
        print(f"wrote {file}")


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold the folder for this training, and end in it what a killed one has left between two files."""
    from schedir.workflows.filled_folder import finish_left_over
    from schedir.workflows.training.folder_lock import folder_held

    with folder_held(folder):
        finish_left_over(folder)
        yield


@contextmanager
def _told_how_to_go_on(log: TrainLog, steps: Steps, *, checkpoint_every: int | None) -> Iterator[None]:
    """Say in one line how to go on where anything is raised inside, before the line that says what it was."""
    from schedir.cli.train.places import way_on

    try:
        yield
    except BaseException:
        line = way_on(log, checkpoint_every)
        if line:
            steps.say(line)
        raise
    finally:
        log.close()

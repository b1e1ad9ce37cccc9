"""What of a recipe is trained where passes are short and repeated: by `compare --model` and by `profile`.

    as the recipe says     loss, loss_weight, loss_reduction, optimizer, adam_prediction, batch_norm, autocast
    waited for             all stages' gradients before any update, where a norm over the model or a common skip needs them
    left out, and said     clip, loss_scaling, lr_scheduler: a Trainer's, and so `schedir train`'s

Those left out hold over a whole training, not over a pass: a rate that is stepped through every round, the warm-up's too, would end
elsewhere than the recipe means. That stages wait for each other is in the graph, so it is predicted and trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from executor.model.pipeline import Pipeline
from executor.recipe.recipe import Recipe
from executor.trainer.updating.clipping import Clip
from executor.trainer.updating.loss_scaling import LossScaling
from executor.trainer.updating.update_rules import UpdateRules
from schedir.ir.program import Program

LEFT_OUT = ("clip", "loss_scaling", "lr_scheduler")
"""Fields of a recipe that short passes do not follow."""


def pipeline_of(recipe: Recipe, stages: Sequence[nn.Module]) -> Pipeline:
    """Return a pipeline of these stages, copies of the recipe's, whose gradients weigh micro-batches as the recipe says."""
    return Pipeline(
        stages,
        loss=recipe.loss,
        optimizer=recipe.optimizer,
        loss_weight=recipe.loss_weight,
        loss_reduction=recipe.loss_reduction,
        adam_prediction=recipe.adam_prediction,
        batch_norm=recipe.batch_norm,
    )


def decides_together(recipe: Recipe, program: Program) -> bool:
    """Tell whether the recipe lets all stages decide together on their updates; a schedule without a flush has no moment for it."""
    rules = UpdateRules(Clip.of(recipe.clip), LossScaling.of(recipe.loss_scaling))
    return program.weights.synchronous and rules.together(synchronous=True)


@contextmanager
def precision_of(recipe: Recipe) -> Iterator[None]:
    """Let this thread compute in the recipe's type; a training that begins here hands it on to its workers.

    Draw data outside: a recipe's data are not computed in it by a Trainer either.
    """
    with ExitStack() as entered:
        if recipe.autocast is not None:
            # by type of device: whoever trains here, threads or GPUs, finds its own; without a GPU torch would warn of the second
            for device in ("cpu", *(("cuda",) if torch.cuda.is_available() else ())):
                entered.enter_context(torch.autocast(device, dtype=recipe.autocast))
        yield


def left_out(recipe: Recipe) -> str:
    """Say in one line what of this recipe is not trained here, and what trains it; empty if nothing is."""
    names = [name for name in LEFT_OUT if getattr(recipe, name) is not None]
    if not names:
        return ""
    return f"left out of the recipe: {', '.join(names)}; schedir train and executor.Trainer follow the whole recipe"

"""From what stands behind --model to a recipe: one of our models by its name, or a function of the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedir.errors import ArgumentError

if TYPE_CHECKING:
    from executor import Recipe

MODELS = ("character-transformer", "mlp", "conv-net")
"""Our models: functions of `executor.recipe.ready_made`."""

PLACES = "FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION"
"""What may stand before and behind the colon."""
RECIPE_HELP = f"a model of ours ({', '.join(MODELS)}), or {PLACES}, a function without arguments that returns a Recipe."
"""What may stand where a model is asked for, as --help says it."""


def find_recipe(model: str) -> Recipe:
    """Return the recipe of a name or of `module:function`; raise ArgumentError with the known names."""
    from executor.recipe.recipe import load_recipe

    if ":" in model:
        return load_recipe(model)
    if model not in MODELS:
        raise ArgumentError(f"model {model!r} is unknown: use {', '.join(MODELS)}, or {PLACES}")
    return load_recipe(f"executor.recipe.ready_made:{model.replace('-', '_')}")

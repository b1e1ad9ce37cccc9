from __future__ import annotations

import re
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from executor.model.pipeline import Pipeline
from executor.model.stages import Stages
from executor.recipe.recipe import Recipe, load_recipe
from executor.recipe.short_passes import pipeline_of
from executor.recipe.training_plan import TrainingPlan, make_trainer
from schedir.errors import ArgumentError, FormatError, RefusedError, SchedirError

MADE = """
import torch
from torch import nn
from executor.recipe.recipe import Recipe

def recipe():
    return Recipe(stages=[nn.Linear(2, 2)], loss=nn.functional.mse_loss, optimizer=torch.optim.SGD, data=list, name="mine")

def sized(width):
    return recipe()

def wrong():
    return 3

NOT_A_FUNCTION = 4
"""


def made(**fields: Any) -> Recipe:
    base: dict[str, Any] = {
        "loss": nn.functional.mse_loss,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "data": lambda _: [],
    }
    return Recipe(**(base | fields))


def test_a_recipe_without_a_word_about_its_data_is_headed_by_its_name_alone() -> None:
    assert made(stages=[nn.Linear(1, 1)], name="mine").headline == "mine"
    assert made(stages=[nn.Linear(1, 1)], name="mine", about="ones").headline == "mine: ones"


def layers(*widths: int) -> nn.Sequential:
    """Linear layers without bias of 1 x width: as many parameters as the width says."""
    return nn.Sequential(*(nn.Linear(1, width, bias=False) for width in widths))


def sizes(stages: tuple[nn.Module, ...]) -> list[list[int]]:
    return [[layer.out_features for layer in stage.children() if isinstance(layer, nn.Linear)] for stage in stages]


def test_a_model_is_one_stage_unless_asked_for_more() -> None:
    assert sizes(made(model=layers(1, 2)).cut()) == [[1, 2]]


def test_given_stages_are_not_cut_again() -> None:
    stages = [nn.Linear(1, 1), nn.Linear(1, 1)]
    recipe = made(stages=stages)
    assert recipe.cut() == tuple(stages)
    assert recipe.cut(2) == tuple(stages)
    with pytest.raises(ArgumentError, match="cut into 2 stages, but 3 are asked for"):
        recipe.cut(3)


def test_a_recipe_has_stages_or_a_model() -> None:
    with pytest.raises(ArgumentError, match="neither stages nor model"):
        made()
    with pytest.raises(ArgumentError, match="both stages and model"):
        made(stages=[nn.ReLU()], model=nn.Sequential(nn.ReLU()))
    with pytest.raises(ArgumentError, match="has no stages"):
        made(stages=[])
    with pytest.raises(RefusedError, match=r"Linear is neither nn\.Sequential nor a model of Hugging Face"):
        made(model=nn.Linear(1, 1))


def test_a_recipe_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text(MADE)
    assert load_recipe(f"{file}:recipe").name == "mine"


def test_a_recipe_comes_from_a_module_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipe_in_working_directory.py").write_text(MADE)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert load_recipe("recipe_in_working_directory:recipe").name == "mine"
    assert sys.path == before


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("missing", r"two.py has no function 'missing': give .*two.py:FUNCTION"),
        ("NOT_A_FUNCTION", "has no function 'NOT_A_FUNCTION'"),
        ("sized", "needs arguments .*'width'.*: give them default values"),
        ("wrong", "returned int: return an executor.Recipe"),
        ("", "names no function: give FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION"),
    ],
)
def test_a_wrong_function_is_named_in_one_line(function: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text(MADE)
    with pytest.raises(ArgumentError, match=message) as caught:
        load_recipe(f"{file}:{function}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere.py:recipe", "nowhere.py: no such file: give FILE.py:FUNCTION"),
        ("no_such_module_anywhere:recipe", "there is no module 'no_such_module_anywhere' here: check the name"),
        ("../up:recipe", "'../up' is no module name"),
        ("plain", "names no function"),
    ],
)
def test_a_wrong_place_is_named_in_one_line(place: str, message: str) -> None:
    with pytest.raises(SchedirError, match=message) as caught:
        load_recipe(place)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import sys\nsys.exit(0)\n",
            r"^bad.py:recipe raised SystemExit: 0 \(bad.py:2 in <module>\): leave sys.exit out of what is loaded$",
        ),
        ("def recipe(:\n", r"^bad.py:recipe raised SyntaxError: invalid syntax \(bad.py:1\): mend it there$"),
        ("import not_there_at_all\n", r"'not_there_at_all' \(bad.py:1 in <module>\): install or mend it$"),
        ("\n1 / 0\n", r"^bad.py:recipe raised ZeroDivisionError: division by zero \(bad.py:2 in <module>\): mend it there$"),
    ],
)
def test_a_file_that_does_not_load_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.py").write_text(text)
    with chdir(tmp_path), pytest.raises(FormatError, match=message) as caught:
        load_recipe("bad.py:recipe")
    assert "\n" not in str(caught.value)


def test_a_recipe_may_use_dataclasses_and_its_neighbours(tmp_path: Path) -> None:
    """A dataclass looks its module up by name, which a file that is loaded by its path must have, too."""
    (tmp_path / "a_neighbour.py").write_text("NAME = 'mine'\n")
    (tmp_path / "with_class.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import KW_ONLY, dataclass\nimport a_neighbour\n"
        "@dataclass\nclass Width:\n    _: KW_ONLY\n    value: int = 3\n" + MADE
    )
    assert load_recipe(f"{tmp_path / 'with_class.py'}:recipe").name == "mine"


def takes_nothing() -> list[object]:
    return []


def takes_two(seed: int, loss: float) -> list[object]:
    return [seed, loss]


WRONG: list[tuple[str, object, str]] = [
    ("loss", None, "loss None is of type NoneType, which cannot be called: give a function of (output, target)"),
    ("loss", lambda output: output, "loss does not take (output, target), too many positional arguments: give a function of"),
    ("optimizer", 5, "optimizer 5 is of type int, which cannot be called: give a function of (parameters)"),
    ("optimizer", lambda: None, "optimizer does not take (parameters), too many positional arguments: give a function of"),
    ("data", [], "data [] is of type list, which cannot be called: give a function of (seed)"),
    ("data", takes_nothing, "data does not take (seed), too many positional arguments: give a function of (seed)"),
    ("data", takes_two, "data does not take (seed), missing a required argument: 'loss': give a function of (seed)"),
    ("validation", [], "validation [] is of type list, which cannot be called: give a function of (seed)"),
    ("lr_scheduler", lambda: None, "lr_scheduler does not take (optimizer), too many positional arguments: give a function of"),
    ("loss_weight", 5, "loss_weight 5 is of type int, which cannot be called: give a function of (target)"),
    ("metrics", [len], "is of type list, not Mapping: give a dict of functions"),
    ("metrics", {"right": takes_nothing}, "metric right does not take (output, target), too many positional arguments"),
    ("epoch_size", 0, "epoch_size 0 must be an integer of at least 1"),
    ("stages", 5, "stages 5 is of type int, not Sequence or Sequential or ModuleList: give a list of nn.Modules"),
]


@pytest.mark.parametrize(("field", "value", "message"), WRONG)
def test_what_no_training_could_use_is_named_where_it_is_given(field: str, value: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        made(**({"stages": [nn.Linear(1, 1)]} | {field: value}))


def test_stages_that_are_none_are_named() -> None:
    with pytest.raises(ArgumentError, match=r"stages hold NoneType: give at least one stage, each an nn\.Module"):
        Pipeline([None, None], loss=nn.functional.mse_loss, optimizer=torch.optim.SGD)  # type: ignore[list-item]  # a mistake
    with pytest.raises(ArgumentError, match="stages hold NoneType"):
        Stages([None])  # type: ignore[list-item]  # so here


def test_a_model_without_layers_is_named() -> None:
    with pytest.raises(ArgumentError, match="recipe model has a model without layers"):
        made(model=nn.Sequential())


def test_a_recipe_says_how_losses_are_added_and_weights_predicted() -> None:
    recipe = made(stages=[nn.Linear(1, 1)], loss_reduction="sum", adam_prediction="literal")
    plan = TrainingPlan(schedule="xpipe", num_devices=1, num_micro_batches=2, workers="threads")
    with make_trainer(recipe, plan) as trainer:
        pipelines = [trainer._pipeline, pipeline_of(recipe, recipe.cut())]
    assert [(each.loss_reduction, each.adam_prediction) for each in pipelines] == [("sum", "literal")] * 2


def test_what_stands_under_a_recipe_s_name_is_said(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text(MADE + "\nasync def later():\n    return recipe()\n")
    with pytest.raises(ArgumentError, match=r"has no function 'NOT_A_FUNCTION': give .*:FUNCTION, not what is of type int$"):
        load_recipe(f"{file}:NOT_A_FUNCTION")
    with pytest.raises(ArgumentError, match=r"has no function 'nothing': give .* with one of recipe, sized, wrong, later$"):
        load_recipe(f"{file}:nothing")
    with pytest.raises(ArgumentError, match=r"returned coroutine: return an executor\.Recipe"):
        load_recipe(f"{file}:later")

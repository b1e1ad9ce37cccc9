"""The examples do what they say."""

from itertools import islice
from typing import Any

import pytest
import torch

from executor.recipe.recipe import load_recipe
from schedir.compiler import compile_program, load_program
from schedir.errors import DeadlockError
from schedir.ir.facts import facts
from schedir.ir.notation.grid import grid
from schedir.schedules.registry import build_program
from tests.repository import ROOT

EXAMPLES = ROOT / "examples"


def test_mended_is_1f1b_on_two_devices() -> None:
    program = load_program(EXAMPLES / "mended.program.toml")

    assert [" ".join(map(str, order)) for order in program.orders()] == [
        "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3",
        "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3",
    ]
    assert facts(compile_program(program)).peak_live_activations == (2, 1)


def test_broken_deadlocks_and_mended_does_not() -> None:
    with pytest.raises(DeadlockError, match="0B0 waits for 1B0 of device 1; device 1: 1F2 waits for 0F2 of device 0"):
        compile_program(load_program(EXAMPLES / "broken.program.toml"))

    assert facts(compile_program(load_program(EXAMPLES / "mended.program.toml"))).peak_live_activations == (2, 1)


def test_the_function_s_grid_is_the_one_in_its_text() -> None:
    program = load_program(f"{EXAMPLES / 'grouped.py'}:grouped", num_devices=2, num_micro_batches=4)
    graph = compile_program(program)

    assert grid(graph, width=100).splitlines()[:2] == [
        "device 0 | F0 F1 .  .  B1 B0 F2 F3 .  .  B3 B2*",
        "device 1 | .  F0 F1 B1 B0 .  .  F2 F3 B3 B2*.",
    ]
    assert facts(graph).peak_live_activations == (2, 2)


EAGER = """\
device 0 | F0 F1 F2 F3 F4 B0 F5 B1 .  B2 .  B3 .  B4 .  B5*
device 1 | .  F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 .  B4 .  B5*.
device 2 | .  .  F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5*.  .
"""


def test_eager_runs_2_p_minus_k_minus_1_forwards_ahead() -> None:
    program = load_program(f"{EXAMPLES / 'eager.py'}:eager", num_devices=3, num_micro_batches=6)
    graph = compile_program(program)

    assert grid(graph, width=100).startswith(EAGER)
    assert facts(graph).peak_live_activations == (5, 3, 1)


def test_eager_without_extra_is_1f1b() -> None:
    shape: dict[str, Any] = {"num_devices": 4, "num_micro_batches": 9}

    assert list(load_program(f"{EXAMPLES / 'eager.py'}:eager", extra=0, **shape).orders()) == list(
        build_program("1f1b", **shape).orders()
    )


def test_the_recipe_of_one_s_own_cuts_into_equal_stages_and_learns() -> None:
    recipe = load_recipe(f"{EXAMPLES / 'majority.py'}:majority")
    (model,) = recipe.cut()
    optimizer = recipe.optimizer(list(model.parameters()))
    losses = []
    for bits, most in islice(recipe.data(0), 60):
        optimizer.zero_grad()
        loss = recipe.loss(model(bits), most)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    assert [len(list(stage.children())) for stage in recipe.cut(2)] == [4, 4]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize(("name", "num_stages"), [("gpt2", 2), ("vit", 4)])
def test_the_recipes_of_hugging_face_are_cut_between_their_blocks(name: str, num_stages: int) -> None:
    recipe = load_recipe(f"{EXAMPLES / 'hugging_face.py'}:{name}")
    stages = recipe.cut(num_stages)
    inputs, labels = next(iter(recipe.data(0)))
    output = stages[0](**inputs)
    for stage in stages[1:]:
        output = stage(*output)

    assert len(stages) == num_stages
    assert torch.isfinite(recipe.loss(output, labels))

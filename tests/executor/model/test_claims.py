"""A model is trained by one training at a time."""

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from executor.trainer.trainer import Trainer
from executor.training import train
from schedir.errors import ArgumentError, RefusedError
from tests.executor.small.models import WIDTH, batches, compiled, mlp, pipeline_of, sgd
from tests.executor.small.trainers import alive

TAKEN = (
    r"^stage 0 holds 0\.0\.weight, which belongs to an open Trainer of xpipe: close it, or give each its own copy "
    r"\(copy\.deepcopy\)$"
)


def opened(stages: list[nn.Module], schedule: str = "xpipe", **options: object) -> Trainer:
    given = {"num_micro_batches": 2, "loss": nn.functional.mse_loss, "optimizer": sgd, "timeout": 60.0}
    return Trainer(stages, schedule=schedule, **(given | options))  # type: ignore[arg-type]  # options of any type


def test_a_second_trainer_of_a_model_is_refused_until_the_first_is_closed() -> None:
    stages = mlp(2)
    with opened(stages) as first:
        first.step(*batches(1)[0])
        with pytest.raises(RefusedError, match=TAKEN):
            opened(stages, "1f1b")
        first.step(*batches(1)[0])
    with opened(stages, "1f1b") as second:
        assert second.step(*batches(1)[0]).loss > 0


def test_train_is_refused_what_a_trainer_holds() -> None:
    stages = mlp(2)
    with opened(stages), pytest.raises(RefusedError, match=TAKEN):
        train(compiled("1f1b", 2, 2), pipeline_of(stages), batches(1))


def test_a_trainer_is_refused_what_train_holds() -> None:
    stages = mlp(2)
    refused = []

    def data() -> Iterator[tuple[Tensor, Tensor]]:
        yield from batches(1)
        with pytest.raises(RefusedError, match="which belongs to another call of train: wait for it") as error:
            opened(stages)
        refused.append(error)

    train(compiled("1f1b", 2, 2), pipeline_of(stages), data())
    assert len(refused) == 1
    opened(stages).close()


def test_another_model_with_one_of_its_parameters_is_refused_too() -> None:
    stages, others = mlp(2), mlp(2, seed=1)
    others[1][2].weight = stages[0][0].weight  # type: ignore[index]  # a Sequential
    with (
        opened(stages),
        pytest.raises(RefusedError, match=r"stage 1 holds 1\.2\.weight, which belongs to an open Trainer of xpipe"),
    ):
        opened(others)


def test_a_module_whose_buffers_change_is_held_though_nothing_of_it_is_trained() -> None:
    shared = nn.BatchNorm1d(WIDTH, affine=False, dtype=torch.float64)
    with (
        opened([*mlp(1), shared]),
        pytest.raises(RefusedError, match="stage 1 holds 1, which belongs to an open Trainer of xpipe: close it"),
    ):
        opened([*mlp(1, seed=1), shared])


def test_frozen_layers_and_layers_without_a_state_may_stand_in_two_models() -> None:
    frozen, activation = nn.Linear(WIDTH, WIDTH, dtype=torch.float64).requires_grad_(False), nn.ReLU()
    with opened([*mlp(1), nn.Sequential(frozen, activation)]) as first:
        with opened([*mlp(1, seed=1), nn.Sequential(frozen, activation)]) as second:
            second.step(*batches(1)[0])
        first.step(*batches(1)[0])


@pytest.mark.parametrize("schedule", ["1f1b", "xpipe"])
def test_a_model_is_free_again_after_a_failure(schedule: str) -> None:
    stages = mlp(2)

    def fails() -> None:
        with opened(stages, schedule) as made:
            made.step(*batches(1)[0])
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails()
    opened(stages).close()


def test_a_model_is_free_again_where_a_trainer_could_not_be_made() -> None:
    stages = mlp(2)
    with pytest.raises(ArgumentError, match="optimizer returns NoneType"):
        opened(stages, optimizer=lambda _: None)
    opened(stages).close()


@pytest.mark.parametrize("schedule", ["1f1b", "xpipe"])
def test_a_model_is_free_again_once_nobody_has_its_trainer(schedule: str) -> None:
    """A trainer whose steps are on their way refers to itself: it is found when another one asks."""
    stages = mlp(2)
    gc.disable()
    try:
        made = opened(stages, schedule)
        for pair in batches(3):
            made.step(*pair)
        del made
        opened(stages).close()
    finally:
        gc.enable()
    assert alive() == []

"""What a pipeline takes, and what it refuses before it could train wrongly."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from executor.training import train
from schedir.errors import ArgumentError, RefusedError
from tests.executor.small.models import MakeOptimizer, batches, compiled, mlp, pipeline_of, reference

WORDS = 10


def plain_sgd(parameters: list[nn.Parameter]) -> Optimizer:
    return SGD(parameters, lr=0.1)


def embedding(*, sparse: bool) -> list[nn.Module]:
    torch.manual_seed(1)
    return [nn.Embedding(WORDS, 4, sparse=sparse).double(), nn.Linear(4, 4).double()]


def words(count: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(2)
    return [
        (torch.randint(0, WORDS, (8,), generator=generator), torch.randn(8, 4, generator=generator, dtype=torch.float64))
        for _ in range(count)
    ]


def test_sparse_gradients_train_as_the_unpartitioned_model() -> None:
    run = train(compiled("1f1b", 2, 4), pipeline_of(embedding(sparse=True), optimizer=plain_sgd), words(5))

    assert run.losses == pytest.approx(reference(embedding(sparse=True), words(5), plain_sgd)[0], abs=1e-10)


def nesterov(parameters: list[nn.Parameter]) -> Optimizer:
    return SGD(parameters, lr=0.1, momentum=0.9, nesterov=True)


@pytest.mark.parametrize("optimizer", [plain_sgd, nesterov], ids=lambda make: make.__name__)
@pytest.mark.parametrize("options", [{"horizon": "exact"}, {"horizon": 0}, {"backward_weights": "stash"}], ids=str)
def test_sparse_gradients_are_predicted_and_swapped_like_dense_ones(optimizer: MakeOptimizer, options: dict[str, object]) -> None:
    """SGD's updates are the same for both; rows that no word reads have a momentum in neither."""
    graph = compiled("xpipe", 2, 2, num_mini_batches=6, **options)
    losses = [train(graph, pipeline_of(embedding(sparse=sparse), optimizer=optimizer), words(6)).losses for sparse in (True, False)]

    assert losses[0] == pytest.approx(losses[1], abs=1e-12)


def test_replicas_reduce_sparse_gradients() -> None:
    graph = compiled("pipedream", 3, 1, replicas=(2, 1), num_mini_batches=8)
    losses = [train(graph, pipeline_of(embedding(sparse=sparse), optimizer=plain_sgd), words(8)).losses for sparse in (True, False)]

    assert losses[0] == pytest.approx(losses[1], abs=1e-12)


def test_an_optimizer_that_takes_no_sparse_gradients_is_named_with_its_stage() -> None:
    with pytest.raises(RefusedError, match=r"the optimizer of stage 0 does not take its sparse gradients \(Adam .*\): use SGD"):
        train(compiled("1f1b", 2, 2), pipeline_of(embedding(sparse=True), optimizer=torch.optim.Adam), words(1))


def test_a_lazy_layer_is_refused_until_the_model_has_run_once() -> None:
    stages: list[nn.Module] = [nn.LazyLinear(4).double(), *mlp(1)]
    with pytest.raises(RefusedError, match=r"^0\.weight has no shape yet, .*: run the model once on one mini-batch, or use"):
        pipeline_of(stages)

    data = batches(3)
    nn.Sequential(*stages)(data[0][0])
    expected = reference(deepcopy(stages), data)[0]
    assert train(compiled("1f1b", 2, 4), pipeline_of(stages), data).losses == pytest.approx(expected, abs=1e-10)


def test_a_lazy_buffer_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"^1\.running_mean has no shape yet"):
        pipeline_of([*mlp(1), nn.LazyBatchNorm1d(affine=False)])


def step_of_another(_parameters: list[nn.Parameter]) -> Optimizer:
    return SGD([nn.Parameter(torch.ones(2))], lr=0.1)


OPTIMIZERS: list[tuple[Callable[..., object], str]] = [
    (lambda parameters: None, "optimizer returns NoneType: give a function that returns a torch"),  # noqa: ARG005
    (torch.optim.LBFGS, "optimizer LBFGS runs forward and backward itself, by a closure, which no stage can do alone: use one"),
    (step_of_another, r"optimizer returns a SGD with a parameter of shape \[2\] that is not the stage's: make it of"),
]


@pytest.mark.parametrize(("optimizer", "message"), OPTIMIZERS, ids=["none", "closure", "of others"])
def test_an_optimizer_that_no_stage_can_use_is_refused(optimizer: MakeOptimizer, message: str) -> None:
    with pytest.raises((ArgumentError, RefusedError), match=message):
        train(compiled("gpipe", 2, 2), pipeline_of(mlp(2), optimizer=optimizer), batches(1))


def test_one_optimizer_for_all_stages_is_refused() -> None:
    """Every stage would step it with the gradients of all."""
    stages = mlp(2)
    whole = SGD(nn.Sequential(*stages).parameters(), lr=0.1)

    with pytest.raises(ArgumentError, match=r"shape \[4, 4\] that is not the stage's: make it of the parameters that it is given"):
        train(compiled("gpipe", 2, 2), pipeline_of(stages, optimizer=lambda _: whole), batches(1))


SCHEDULERS: list[tuple[object, str]] = [
    (ReduceLROnPlateau, "scheduler ReduceLROnPlateau needs a metric, which no stage knows when it updates: use one that steps by"),
    (lambda _: None, "scheduler returns NoneType: give a function that returns a torch.optim.lr_scheduler.LRScheduler"),
    (3, "scheduler 3 is of type int, which cannot be called: give a function of"),
]


@pytest.mark.parametrize(("scheduler", "message"), SCHEDULERS, ids=["metric", "none", "number"])
def test_a_scheduler_that_no_stage_can_use_is_refused(scheduler: object, message: str) -> None:
    with pytest.raises((ArgumentError, RefusedError), match=message):
        train(compiled("gpipe", 1, 2), pipeline_of(mlp(1), scheduler=scheduler), batches(1))


class Counts(nn.Module):
    """Remembers something that is neither parameter nor buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.calls


def test_a_module_that_two_stages_share_is_refused_if_it_may_remember_something() -> None:
    shared = Counts()
    first, second = mlp(2)

    with pytest.raises(
        RefusedError, match=r"stages 0 and 1 share the module 0\.1 = 1\.0 \(Counts\), .*: give each its own, say by"
    ):
        pipeline_of([nn.Sequential(first, shared), nn.Sequential(shared, second)])


def test_an_activation_or_dropout_may_be_shared() -> None:
    shared = nn.Sequential(nn.ReLU(), nn.Dropout(0.0))
    first, second = mlp(2)
    stages: list[nn.Module] = [nn.Sequential(first, shared), nn.Sequential(shared, second)]
    expected = reference(deepcopy(stages), batches(2))[0]

    assert train(compiled("1f1b", 2, 4), pipeline_of(stages), batches(2)).losses == pytest.approx(expected, abs=1e-10)


def test_views_of_one_memory_in_two_stages_are_refused() -> None:
    memory = torch.randn(8, 4)
    stages = [nn.Linear(4, 4) for _ in range(2)]
    for stage, rows in zip(stages, memory.split(4), strict=True):
        stage.weight = nn.Parameter(rows)

    with pytest.raises(RefusedError, match=r"stages 0 and 1 share the memory of 0\.weight and 1\.weight: put both in one stage"):
        pipeline_of(stages)


def test_a_model_made_in_inference_mode_is_refused() -> None:
    with torch.inference_mode():
        stages = mlp(1)

    with pytest.raises(
        RefusedError, match=r"0\.0\.weight was made in torch.inference_mode, where nothing can be trained: make the"
    ):
        pipeline_of(stages)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=lambda mode: mode.__name__)
@pytest.mark.parametrize("schedule", ["1f1b", "xpipe"])
def test_the_modes_of_the_caller_are_not_those_of_training(schedule: str, mode: Callable[[], AbstractContextManager[None]]) -> None:
    """Neither that in which it is called, nor that in which the data was made."""
    graph = compiled(schedule, 2, 2, num_mini_batches=4)
    expected = train(graph, pipeline_of(mlp(2)), batches(4)).losses
    pipeline = pipeline_of(mlp(2))
    with mode():
        run = train(graph, pipeline, batches(4))

    assert run.losses == expected


def test_the_shared_modules_that_are_taken_are_torchs_own() -> None:
    """A subclass of ReLU may remember something."""

    class Remembers(nn.ReLU):
        pass

    shared = Remembers()
    with pytest.raises(RefusedError, match=r"share the module 0\.1 = 1\.1 \(Remembers\)"):
        pipeline_of([nn.Sequential(stage, shared) for stage in mlp(2)])


def test_a_pipeline_is_trained_by_one_call_at_a_time() -> None:
    pipeline, graph = pipeline_of(mlp(2)), compiled("1f1b", 2, 2)
    refused: list[str] = []

    def mini_batches() -> Iterator[tuple[Tensor, Tensor]]:
        """Train the same pipeline while it is trained."""
        yield from batches(1)
        with pytest.raises(RefusedError, match="which belongs to another call of train: wait for it") as error:
            train(graph, pipeline, batches(1))
        refused.append(str(error.value))

    train(graph, pipeline, mini_batches())
    assert len(refused) == 1
    train(graph, pipeline, batches(1))  # and is free behind it

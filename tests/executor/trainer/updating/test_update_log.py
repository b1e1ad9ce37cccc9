"""Learning rates and gradient norms of updates, held against the model that was not cut."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from executor.trainer.trainer import Trainer
from executor.trainer.updating.clipping import Clip
from executor.trainer.updating.update_log import UpdateFacts, UpdateLog
from schedir.errors import SchedirWarning
from tests.executor.small.models import batches, mlp
from tests.executor.small.trainers import train_step_by_step

DATA = batches(9)


def standing(parameters: list[nn.Parameter]) -> Optimizer:
    """Weights stay what they are, so the gradient of a mini-batch is that of the first weights, whatever the schedule."""
    return torch.optim.SGD(parameters, lr=0.0, momentum=0.9)


def logged(
    schedule: str, *, num_stages: int = 2, data: list[tuple[Tensor, Tensor]] = DATA, drains: tuple[int, ...] = (), **options: Any
) -> list[UpdateFacts]:
    """Train, drain behind some mini-batches and at the end, and return everything that is told meanwhile."""
    given: dict[str, Any] = {
        "loss": nn.functional.mse_loss,
        "optimizer": standing,
        "timeout": 60.0,
        "num_micro_batches": 2,
        **options,
    }
    with Trainer(mlp(num_stages), schedule=schedule, **given) as made:
        made.log_updates()
        found: list[UpdateFacts] = []
        for number, mini_batch in enumerate(data):
            made.step(*mini_batch)
            found += made.take_updates()
            if number in drains:
                made.drain()
                found += made.take_updates()
        made.drain()
        return [*found, *made.take_updates()]


def gradients(num_stages: int, mini_batch: tuple[Tensor, Tensor]) -> list[list[Tensor]]:
    """Return the gradients of the first weights by stage."""
    stages = mlp(num_stages)
    nn.functional.mse_loss(nn.Sequential(*stages)(mini_batch[0]), mini_batch[1]).backward()
    return [[parameter.grad for parameter in stage.parameters() if parameter.grad is not None] for stage in stages]


def norm(parts: list[list[Tensor]]) -> float:
    return float(torch.cat([part.flatten() for stage in parts for part in stage]).norm())


@pytest.mark.parametrize(
    ("schedule", "num_stages"),
    [
        ("gpipe", 3),
        ("1f1b", 2),
        ("interleaved-1f1b", 4),
        ("zb-h1", 2),
        ("chimera", 2),
        ("pipedream", 3),
        ("xpipe", 2),
        ("pipedream-2bw", 2),
    ],
)
def test_every_mini_batch_has_the_norm_of_the_model_that_is_not_cut(schedule: str, num_stages: int) -> None:
    found = logged(schedule, num_stages=num_stages, drains=(3,))
    assert [facts.mini_batch for facts in found] == list(range(9))
    expected = [norm(gradients(num_stages, mini_batch)) for mini_batch in DATA]
    assert [facts.gradient_norm for facts in found] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    "options",
    [{"clip": 1e-3}, {"clip": Clip(1e-3, per="stage")}, {"loss_scaling": 1024.0}, {"loss_scaling": 8.0, "clip": 1e-3}],
    ids=["model", "stage", "scaled", "both"],
)
def test_the_norm_is_that_before_clipping_and_without_the_loss_scale(options: dict[str, Any]) -> None:
    found = logged("1f1b", data=DATA[:3], **options)
    expected = [norm(gradients(2, mini_batch)) for mini_batch in DATA[:3]]
    assert [facts.gradient_norm for facts in found] == pytest.approx(expected, rel=1e-9)


def test_an_update_of_a_round_counts_for_each_of_its_mini_batches() -> None:
    """Two replicas of the first stage average two mini-batches, the last one stands alone; the second stage has them one by one."""
    found = logged("pipedream", replicas=(2, 1), num_micro_batches=1, num_devices=3)
    assert [facts.mini_batch for facts in found] == list(range(9))
    by_mini_batch = [gradients(2, mini_batch) for mini_batch in DATA]
    for number, facts in enumerate(found):
        round_of = by_mini_batch[number // 2 * 2 : number // 2 * 2 + 2]
        first = [torch.stack(parts).mean(0) for parts in zip(*(stages[0] for stages in round_of), strict=True)]
        assert facts.gradient_norm == pytest.approx(norm([first, by_mini_batch[number][1]]), rel=1e-10)


@pytest.mark.parametrize("schedule", ["1f1b", "xpipe"])
def test_the_rate_is_that_of_the_update(schedule: str) -> None:
    """It halves behind every update, also over a drain."""
    found = logged(
        schedule,
        drains=(2,),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.25),
        lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
    )
    assert [facts.learning_rate for facts in found] == [0.25 * 0.5**number for number in range(9)]


def test_an_update_that_is_left_out_has_a_norm_that_is_none() -> None:
    data = [DATA[0], (DATA[1][0] * float("inf"), DATA[1][1]), DATA[2]]
    with pytest.warns(SchedirWarning, match="gradients of mini-batch 1 are not finite on stage 0: its update was left out"):
        found = logged("1f1b", data=data, clip=1.0, on_nan="continue")
    assert [torch.tensor(facts.gradient_norm).isfinite().item() for facts in found] == [True, False, True]


def test_frozen_stages_have_no_rate_and_count_nothing() -> None:
    stages = mlp(2)
    stages[0].requires_grad_(requires_grad=False)
    with Trainer(stages, schedule="1f1b", num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=standing) as made:
        made.log_updates()
        made.step(*DATA[0])
        (facts,) = made.take_updates()
    assert facts.learning_rate == 0.0
    assert facts.gradient_norm == pytest.approx(norm([gradients(2, DATA[0])[1]]), rel=1e-10)


@pytest.mark.parametrize("schedule", ["1f1b", "pipedream", "xpipe"])
def test_whoever_takes_updates_down_trains_the_same_to_the_last_bit(schedule: str) -> None:
    def made() -> Trainer:
        return Trainer(
            mlp(2),
            schedule=schedule,
            num_micro_batches=2,
            loss=nn.functional.mse_loss,
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True),
        )

    plain, logging = made(), made()
    logging.log_updates()
    expected, found = train_step_by_step(plain, DATA), train_step_by_step(logging, DATA)
    assert found[0] == expected[0]
    assert all(torch.equal(found[1][key], value) for key, value in expected[1].items())


def test_nothing_is_told_without_being_asked_for() -> None:
    with Trainer(mlp(2), schedule="1f1b", num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=standing) as made:
        made.step(*DATA[0])
        assert made.take_updates() == ()


def test_a_mini_batch_is_told_once_all_processes_have_told_of_their_stages() -> None:
    """Stage 0 is of one process, with a gradient of norm 3 and rate 0.5, stage 1 of the other, of norm 4 and rate 0.25."""
    logs = [UpdateLog([1, 1], num_processes=2) for _ in range(2)]
    for stage, (log, length, rate) in enumerate(zip(logs, (3.0, 4.0), (0.5, 0.25), strict=True)):
        log.note(stage, 0, gradients=[torch.tensor([length])], rate=rate)
        log.finish([0])
    first, second = (log.take_own() for log in logs)

    assert logs[0].merged([first, []]) == []
    assert logs[0].merged([[], second]) == [UpdateFacts(mini_batch=0, learning_rate=0.5, gradient_norm=5.0)]


def test_replicas_in_several_processes_count_once() -> None:
    """Of chimera, say: each process hosts both stages, with gradients of norm 3 and 4, which the replicas have exchanged."""
    logs = [UpdateLog([1, 1], num_processes=2) for _ in range(2)]
    for log in logs:
        for stage, length in enumerate((3.0, 4.0)):
            log.note(stage, 0, gradients=[torch.tensor([length])], rate=0.5)
        log.finish([0])

    parts = [log.take_own() for log in logs]
    assert logs[0].merged(parts) == [UpdateFacts(mini_batch=0, learning_rate=0.5, gradient_norm=5.0)]


def test_where_no_stage_has_an_optimizer_there_is_no_rate() -> None:
    log = UpdateLog([1], num_processes=1)
    log.note(0, 0, gradients=[None], rate=None)
    log.finish([0])

    assert log.merged([log.take_own()]) == [UpdateFacts(mini_batch=0, learning_rate=None, gradient_norm=0.0)]

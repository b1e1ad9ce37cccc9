"""A checkpoint that does not fit is refused in whole: the training that it was offered goes on as if nothing had been."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, LambdaLR, LRScheduler, MultiStepLR, SequentialLR, StepLR

from executor.trainer.trainer import Trainer
from schedir.errors import FormatError
from tests.executor.small.models import batches, mlp
from tests.executor.small.trainers import assert_bit_equal

DATA = batches(8)
MakeScheduler = Callable[[Optimizer], LRScheduler]


def adam(parameters: list[nn.Parameter]) -> Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def apart(parameters: list[nn.Parameter]) -> Optimizer:
    """Matrices and vectors in groups of their own."""
    matrices, vectors = ([p for p in parameters if (p.dim() > 1) is wanted] for wanted in (True, False))
    return torch.optim.Adam([{"params": matrices, "lr": 0.01}, {"params": vectors, "lr": 0.02}])


def step(optimizer: Optimizer) -> LRScheduler:
    return StepLR(optimizer, 2)


def cosine(optimizer: Optimizer) -> LRScheduler:
    return CosineAnnealingLR(optimizer, 5)


def one_behind_the_other(optimizer: Optimizer) -> LRScheduler:
    return SequentialLR(optimizer, [StepLR(optimizer, 2), ExponentialLR(optimizer, 0.9)], milestones=[2])


def others_behind(optimizer: Optimizer) -> LRScheduler:
    return SequentialLR(optimizer, [StepLR(optimizer, 2), CosineAnnealingLR(optimizer, 5)], milestones=[2])


def made(
    scheduler: MakeScheduler | None = step, optimizer: Callable[[list[nn.Parameter]], Optimizer] = adam, **more: Any
) -> Trainer:
    return Trainer(
        mlp(2),
        schedule="1f1b",
        num_micro_batches=2,
        loss=nn.functional.mse_loss,
        optimizer=optimizer,
        lr_scheduler=scheduler,
        timeout=60,
        **more,
    )


def trained(trainer: Trainer, first: int, last: int) -> list[float]:
    return [trainer.step(*mini_batch).loss for mini_batch in DATA[first:last]]


def saved(folder: Path, *words: Any, **more: Any) -> Path:
    with made(*words, **more) as trainer:
        trained(trainer, 0, 3)
        return trainer.save(folder)


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a checkpoint says of itself, and give it the sum that it has then."""
    path = folder / "checkpoint.json"
    manifest = json.loads(path.read_text())
    del manifest["own_sha256"]
    change(manifest)
    own = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**manifest, "own_sha256": own}))


def refused(folder: Path, match: str, *words: Any, **more: Any) -> None:
    """Load between the steps of one of two trainings that are alike, in vain: they stay alike to the last bit."""
    with made(*words, **more) as tried, made(*words, **more) as twin:
        assert trained(tried, 0, 2) == trained(twin, 0, 2)
        random = torch.get_rng_state()
        with pytest.raises(FormatError, match=match) as told:
            tried.load(folder)
        assert "\n" not in str(told.value)
        assert torch.equal(torch.get_rng_state(), random)
        assert tried.mini_batch == 2
        assert trained(tried, 2, 6) == trained(twin, 2, 6)
        assert_bit_equal(tried.state_dict(), twin.state_dict())


@pytest.mark.parametrize(
    ("there", "here", "message"),
    [
        (step, cosine, "is of a training with StepLR, but this one is with CosineAnnealingLR: use the same lr_scheduler"),
        (step, one_behind_the_other, r"with StepLR, but this one is with SequentialLR\(StepLR, ExponentialLR\): use"),
        (
            one_behind_the_other,
            others_behind,
            r"with SequentialLR\(StepLR, ExponentialLR\), but this one is with SequentialLR\(StepLR, CosineAnnealingLR\): use",
        ),
        (step, None, "with StepLR, but this one is without lr_scheduler: use the same lr_scheduler"),
        (None, step, "without lr_scheduler, but this one is with StepLR: use the same lr_scheduler"),
    ],
)
def test_another_lr_scheduler_is_named_and_nothing_is_changed(
    *, there: MakeScheduler | None, here: MakeScheduler | None, message: str, tmp_path: Path
) -> None:
    refused(saved(tmp_path, there), message, here)


def test_schedulers_made_of_others_go_on(tmp_path: Path) -> None:
    with made(one_behind_the_other) as trainer:
        trained(trainer, 0, 3)
        trainer.save(tmp_path)
        losses = trained(trainer, 3, 8)
    with made(one_behind_the_other) as trainer:
        trainer.load(tmp_path)
        assert trained(trainer, 3, 8) == losses


def test_a_checkpoint_from_before_classes_were_noted_goes_on_and_refuses_what_keeps_other_values(tmp_path: Path) -> None:
    with made() as trainer:
        trained(trainer, 0, 3)
        folder = trainer.save(tmp_path)
        losses = trained(trainer, 3, 8)
    changed(folder, lambda manifest: manifest["optimizer"].pop("scheduler_kinds"))
    with made() as trainer:
        trainer.load(folder)
        assert trained(trainer, 3, 8) == losses
    refused(folder, r"is of another lr_scheduler than CosineAnnealingLR \(T_max, eta_min, gamma, step_size\): use the one", cosine)


def test_a_scheduler_that_does_not_take_its_state_is_refused_behind_those_that_have(tmp_path: Path) -> None:
    """The first stage's has taken its state when the second one's fails; both are as before."""

    class Once(MultiStepLR):
        number = 0
        broken = False

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            super().load_state_dict(state_dict)
            Once.number += 1
            if Once.broken and Once.number % 2 == 0:
                raise RuntimeError("no more")

    def once(optimizer: Optimizer) -> LRScheduler:
        return Once(optimizer, [1, 3], 0.1)

    folder = saved(tmp_path, once)
    Once.broken = True
    refused(folder, r"the lr_scheduler Once does not take its state \(RuntimeError: no more\): use the one", once)


def test_rates_that_a_function_gives_go_on(tmp_path: Path) -> None:
    def falling(optimizer: Optimizer) -> LRScheduler:
        return LambdaLR(optimizer, lambda number: 0.9**number)

    with made(falling) as trainer:
        trained(trainer, 0, 3)
        trainer.save(tmp_path)
        losses = trained(trainer, 3, 8)
    with made(falling) as trainer:
        trainer.load(tmp_path)
        assert trained(trainer, 3, 8) == losses


def test_groups_are_neither_mixed_nor_parted(tmp_path: Path) -> None:
    one, two = saved(tmp_path / "one", step, adam), saved(tmp_path / "two", step, apart)
    refused(one, r"0\.2\.weight and 0\.0\.bias were one group of Adam there, but are two here: make the same groups", step, apart)
    refused(two, r"0\.0\.weight and 0\.0\.bias had other options of Adam there, but are one group here", step, adam)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda manifest: manifest.pop("optimizer"), '"optimizer" does not say what a checkpoint has to'),
        (lambda manifest: manifest["optimizer"].pop("groups"), '"optimizer" does not say .*KeyError'),
        (lambda manifest: manifest["optimizer"].pop("schedulers"), '"optimizer" does not say .*KeyError'),
        (lambda manifest: manifest["optimizer"].update(kind=3), "3 is no name of a class"),
        (lambda manifest: manifest["optimizer"].update(values={"0.0.weight/x": {"unheard": 1}}), '"optimizer" does not say'),
        (lambda manifest: manifest["optimizer"]["schedulers"].__setitem__(0, [1]), "is no state of a scheduler"),
        (lambda manifest: manifest["optimizer"]["groups"][0]["parameters"].pop(), "was not trained there"),
        (lambda manifest: manifest.update(mini_batch=-1), "-1 is no number of mini-batches"),
        (lambda manifest: manifest.update(loss_scale={}), "KeyError: 'scale'"),
        (lambda manifest: manifest.update(data=None), "None says nothing about the data"),
        (lambda manifest: manifest["rng"]["dict"].update(torch={"bytes": ""}), "its random numbers are not those"),
    ],
)
def test_a_checkpoint_with_right_sums_that_is_not_whole_is_refused(
    change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    folder = saved(tmp_path)
    changed(folder, change)
    refused(folder, message)


def test_a_state_of_another_shape_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = saved(tmp_path)
    path = folder / "optimizer.safetensors"
    save_file({**load_file(path), "1.2.bias/exp_avg": torch.zeros(3)}, path)
    total = hashlib.sha256(path.read_bytes()).hexdigest()
    changed(folder, lambda manifest: manifest["sha256"].update({path.name: total}))
    refused(folder, r"1\.2\.bias/exp_avg is \[3\], but its parameter is \[4\]: take another checkpoint")

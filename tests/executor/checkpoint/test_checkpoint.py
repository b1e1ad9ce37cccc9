"""Save, and go on as if nothing had been: the same process, another one, another cut, another schedule."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from executor.trainer.trainer import Trainer
from schedir.errors import ArgumentError, FormatError, RefusedError, RunError
from tests.executor.checkpoint.checkpointed import OPTIMIZERS, make_trainer
from tests.executor.small.models import WIDTH, batches, mlp, sgd
from tests.executor.small.trainers import alive, assert_bit_equal
from tests.repository import ROOT

DATA = batches(12)


def steps(trainer: Trainer, first: int, last: int) -> list[float]:
    made = [trainer.step(*mini_batch) for mini_batch in DATA[first:last]]
    trainer.drain()
    return [step.loss for step in made]


@pytest.mark.parametrize(
    ("schedule", "optimizer"), [("1f1b", "adam"), ("pipedream", "adam"), *(("xpipe", name) for name in OPTIMIZERS)]
)
def test_d15_training_goes_on_bit_for_bit(schedule: str, optimizer: str, tmp_path: Path) -> None:
    with make_trainer(schedule, optimizer=optimizer) as trainer:
        steps(trainer, 0, 5)
        folder = trainer.save(tmp_path)
        losses, weights = steps(trainer, 5, 12), trainer.state_dict()
    with make_trainer(schedule, optimizer=optimizer, seed=9) as trainer:
        steps(trainer, 0, 2)
        assert trainer.load(tmp_path).mini_batch == trainer.mini_batch == 5
        assert steps(trainer, 5, 12) == losses
        assert_bit_equal(trainer.state_dict(), weights)
    assert folder == tmp_path / "mini-batch-000005"
    assert (tmp_path / "latest").read_text() == "mini-batch-000005\n"
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint.json", "model.safetensors", "optimizer.safetensors"]


@pytest.mark.slow
def test_d15_six_steps_are_three_and_three_in_another_process(tmp_path: Path) -> None:
    """Adam, a falling rate, dropout: parameters and optimizer state bit-equal (known problem D15)."""
    program = (
        "import sys; from pathlib import Path; from tests.executor.checkpoint.test_checkpoint import steps, make_trainer\n"
        "folder = Path(sys.argv[1])\n"
        "with make_trainer('1f1b') as trainer:\n"
        "    trainer.load(folder / 'three')\n"
        "    steps(trainer, 3, 6)\n"
        "    trainer.save(folder / 'both')\n"
    )
    with make_trainer("1f1b") as trainer:
        steps(trainer, 0, 3)
        trainer.save(tmp_path / "three")
        steps(trainer, 3, 6)
        trainer.save(tmp_path / "six")
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, check=True, timeout=600)
    for name in ("model.safetensors", "optimizer.safetensors"):
        first, second = (tmp_path / each / "mini-batch-000006" / name for each in ("six", "both"))
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    ("schedule", "num_stages"), [("1f1b", 1), ("gpipe", 6), ("interleaved-1f1b", 4), ("chimera", 2), ("xpipe", 2)]
)
def test_another_cut_and_another_schedule_go_on_from_the_same_weights(schedule: str, num_stages: int, tmp_path: Path) -> None:
    """Without dropout, whose draws depend on the cut, the synchronous ones train the very same mini-batches alike."""
    with make_trainer("pipedream", 3, dropout=0.0) as trainer:
        steps(trainer, 0, 5)
        trainer.save(tmp_path)
        weights = trainer.state_dict()
    with make_trainer("1f1b", 3, dropout=0.0) as trainer:
        trainer.load(tmp_path)
        losses = steps(trainer, 5, 9)
    with make_trainer(schedule, num_stages, dropout=0.0) as trainer:
        trainer.load(tmp_path)
        assert_bit_equal(trainer.state_dict(), weights)
        found = steps(trainer, 5, 9)
    if trainer.synchronous and schedule != "chimera":  # there each replica of a batch norm sees half the micro-batches
        assert found == pytest.approx(losses, abs=1e-12)
    assert found[0] == pytest.approx(losses[0], abs=1e-12)


def test_a_plain_model_takes_the_weights_of_a_checkpoint(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    with make_trainer("xpipe") as trainer:
        steps(trainer, 0, 3)
        folder = trainer.save(tmp_path)
        weights = trainer.state_dict()
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(0.2), nn.BatchNorm1d(WIDTH)) for _ in range(6)]
    model = nn.Sequential(*layers).double()
    model.load_state_dict(load_file(folder / "model.safetensors"))
    assert_bit_equal(model.state_dict(), weights)


def test_saving_is_draining_and_nothing_more(tmp_path: Path) -> None:
    with make_trainer("xpipe") as saved, make_trainer("xpipe") as drained:
        for trainer in (saved, drained):
            steps(trainer, 0, 4)
        saved.save(tmp_path)
        assert steps(saved, 4, 9) == steps(drained, 4, 9)
        assert_bit_equal(saved.state_dict(), drained.state_dict())


def test_the_random_numbers_of_the_process_go_on(tmp_path: Path) -> None:
    import random

    import numpy as np

    def draw() -> list[Any]:
        return [float(torch.rand(())), random.random(), float(np.random.mtrand._rand.standard_normal())]

    with make_trainer("1f1b") as trainer:
        draw()
        trainer.save(tmp_path)
        expected = [draw(), draw()]
        draw()
        trainer.load(tmp_path)
        assert [draw(), draw()] == expected


def test_what_the_caller_says_about_the_data_comes_back(tmp_path: Path) -> None:
    with make_trainer("1f1b") as trainer:
        trainer.save(tmp_path, data={"epoch": 3, "file": "a.bin", "offsets": (1, 2)})
        assert trainer.load(tmp_path).data == {"epoch": 3, "file": "a.bin", "offsets": (1, 2)}
        with pytest.raises(RefusedError, match="the place in the data keeps an object, which a checkpoint cannot hold"):
            trainer.save(tmp_path, data={"it": object()})
        assert trainer.mini_batch == 0


def saved(folder: Path) -> Path:
    with make_trainer("1f1b") as trainer:
        steps(trainer, 0, 1)
        return trainer.save(folder)


def loads_with(stages: list[nn.Module], folder: Path, optimizer: Any = sgd) -> None:
    with Trainer(stages, schedule="1f1b", num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=optimizer) as trainer:
        trainer.load(folder)


def test_another_model_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    saved(tmp_path)
    stages = mlp(2)
    before = [parameter.clone() for stage in stages for parameter in stage.parameters()]
    with pytest.raises(FormatError, match=r"mini-batch-000001 lacks 0\.2\.bias \(and \d+ more\): it is of another model"):
        loads_with(stages, tmp_path)
    assert all(torch.equal(*pair) for pair in zip(before, (p for stage in stages for p in stage.parameters()), strict=True))


def test_other_shapes_types_and_optimizers_are_named(tmp_path: Path) -> None:
    def linears(width: int, dtype: torch.dtype = torch.float64) -> list[nn.Module]:
        return [nn.Linear(2, width, dtype=dtype), nn.Linear(width, 2, dtype=dtype)]

    with Trainer(linears(3), schedule="1f1b", num_micro_batches=1, loss=nn.functional.mse_loss, optimizer=sgd) as trainer:
        trainer.save(tmp_path)
    with pytest.raises(FormatError, match=r"0\.weight is float64 \[3, 2\], but float64 \[4, 2\] in the model: make both the same"):
        loads_with(linears(4), tmp_path)
    with pytest.raises(FormatError, match=r"0\.weight is float64 \[3, 2\], but float32 \[3, 2\] in the model"):
        loads_with(linears(3, torch.float32), tmp_path)
    with pytest.raises(FormatError, match="is of a training with SGD, but the optimizer is Adam: use the same"):
        loads_with(linears(3), tmp_path, torch.optim.Adam)


def test_an_optimizer_that_keeps_more_than_tensors_is_refused(tmp_path: Path) -> None:
    class Keeps(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]  # as torch's does
            super().step(closure)
            for parameter in self.param_groups[0]["params"]:
                self.state[parameter]["log"] = object()

    made = Trainer(mlp(2), schedule="1f1b", num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=Keeps)
    with made:
        made.step(*DATA[0])
        with pytest.raises(RefusedError, match=r"the optimizer of 0\.0\.weight keeps an object, which a checkpoint cannot hold"):
            made.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_groups_of_parameters_keep_their_options_in_another_cut(tmp_path: Path) -> None:
    def two_groups(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        matrices, vectors = ([p for p in parameters if (p.dim() > 1) is wanted] for wanted in (True, False))
        return torch.optim.SGD([{"params": matrices, "lr": 0.1}, {"params": vectors, "lr": 0.3}], momentum=0.9)

    def made(num_stages: int) -> Trainer:
        torch.manual_seed(0)
        layers: list[nn.Module] = [nn.Linear(WIDTH, WIDTH).double() for _ in range(4)]
        from executor.model.cutting.split import split

        return Trainer(
            split(nn.Sequential(*layers), num_stages),
            schedule="1f1b",
            num_micro_batches=2,
            loss=nn.functional.mse_loss,
            optimizer=two_groups,
            lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
        )

    with made(4) as trainer:
        steps(trainer, 0, 3)
        trainer.save(tmp_path)
        losses = steps(trainer, 3, 6)
    for num_stages in (1, 2):
        with made(num_stages) as trainer:
            trainer.load(tmp_path)
            assert steps(trainer, 3, 6) == pytest.approx(losses, abs=1e-12)


def test_frozen_parameters_and_stages_without_any_are_saved(tmp_path: Path) -> None:
    def made() -> tuple[list[nn.Module], Trainer]:
        torch.manual_seed(0)
        first, last = nn.Linear(WIDTH, WIDTH).double(), nn.Linear(WIDTH, WIDTH).double()
        first.requires_grad_(requires_grad=False)
        stages: list[nn.Module] = [first, nn.ReLU(), last]
        return stages, Trainer(stages, schedule="1f1b", num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd)

    stages, trainer = made()
    with trainer:
        steps(trainer, 0, 2)
        trainer.save(tmp_path)
        weights: dict[str, Tensor] = trainer.state_dict()
    stages, trainer = made()
    with torch.no_grad():
        stages[0].weight.zero_()  # type: ignore[operator]  # a Linear
    with trainer:
        trainer.load(tmp_path)
        assert_bit_equal(trainer.state_dict(), weights)


def fails_from(patch: pytest.MonkeyPatch, call: str, error: BaseException, *, number: int = 0) -> None:
    """Let a call of the system fail from its `number`-th time on, as on a disk that is full from then on."""
    original, seen = getattr(os, call), [0]

    def failing(*words: Any, **more: Any) -> Any:
        seen[0] += 1
        if seen[0] > number:
            raise error
        return original(*words, **more)

    patch.setattr(os, call, failing)


@pytest.mark.parametrize(("number", "newest"), [(0, 2), (1, 2), (2, 2), (3, 2), (4, 4), (5, 4)])
def test_a_disk_that_is_full_at_any_moment_of_a_save_leaves_what_was_there(
    *, number: int, newest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three files, their folder, the folder above, and what names the newest come to the disk: from one on nothing does any more.

    Behind the fourth the new checkpoint is whole. Either way training goes on, and from the newest as without the fault.
    """
    with make_trainer("xpipe") as trainer:
        steps(trainer, 0, 2)
        before = trainer.save(tmp_path)
        content = {path.name: path.read_bytes() for path in before.iterdir()}
        steps(trainer, 2, 4)
        with monkeypatch.context() as patch:
            fails_from(patch, "fsync", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), number=number)
            with pytest.raises(RunError, match=r"mini-batch-000004 cannot be written: no space left on device: make room") as told:
                trainer.save(tmp_path)
        losses = steps(trainer, 4, 6)
    assert "\n" not in str(told.value)
    assert {path.name: path.read_bytes() for path in before.iterdir()} == content
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    with make_trainer("xpipe") as other:
        assert other.load(tmp_path).mini_batch == newest
        steps(other, newest, 4)
        assert steps(other, 4, 6) == losses


@pytest.mark.parametrize("call", ["fsync", "rename", "replace"])
def test_an_interrupt_while_saving_leaves_the_checkpoint_before(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer("1f1b")
    steps(trainer, 0, 2)
    trainer.save(tmp_path)
    steps(trainer, 2, 4)
    with monkeypatch.context() as patch:
        fails_from(patch, call, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            trainer.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert alive() == []
    with make_trainer("1f1b") as other:
        assert other.load(tmp_path).mini_batch == (4 if call == "replace" else 2)


@pytest.mark.parametrize("value", [torch.ones(2), {1, 2}, 1j, object()])
def test_a_place_in_the_data_that_cannot_be_saved_ends_no_training(value: object, tmp_path: Path) -> None:
    with make_trainer("1f1b") as trainer:
        steps(trainer, 0, 1)
        with pytest.raises(RefusedError, match=r"the place in the data keeps an? .*: plain values and tensors only"):
            trainer.save(tmp_path, data={"a": value})
        steps(trainer, 1, 2)
        assert trainer.save(tmp_path, data={"a": 2}).name == "mini-batch-000002"


def test_a_new_checkpoint_lets_older_ones_go_and_none_before_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with make_trainer("xpipe") as trainer:
        for number in range(3):
            steps(trainer, number, number + 1)
            trainer.save(tmp_path, keep_last=2)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "mini-batch-000002", "mini-batch-000003"]
        steps(trainer, 3, 4)
        with monkeypatch.context() as patch:
            fails_from(patch, "fsync", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
            with pytest.raises(RunError, match="mini-batch-000004 cannot be written"):
                trainer.save(tmp_path, keep_last=1)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "mini-batch-000002", "mini-batch-000003"]
        for wrong in (0, -1, 1.5, True):
            with pytest.raises(
                ArgumentError, match=rf"keep_last {wrong} must be an integer of at least 1: leave it out to keep all"
            ):
                trainer.save(tmp_path, keep_last=wrong)  # type: ignore[arg-type]  # what a user may give

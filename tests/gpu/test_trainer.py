"""A trainer on one real GPU gives what threads give. One command: python -m pytest -m gpu tests/gpu"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from executor.trainer.trainer import Trainer
from schedir.errors import SchedirWarning
from tests.executor.small.models import batches, mlp, sgd
from tests.executor.small.trainers import alive, assert_bit_equal, trainer

pytestmark = pytest.mark.gpu

Setup = tuple[str, int, int, dict[str, Any]]
"""(schedule, stages, micro-batches, options)."""

SETUPS: list[Setup] = [
    ("gpipe", 2, 3, {}),
    ("1f1b", 2, 4, {"clip": 0.05}),
    ("1f1b", 2, 4, {"recompute": "always"}),
    ("interleaved-1f1b", 4, 4, {}),
    ("zb-v", 4, 4, {}),
    ("pipedream", 3, 1, {}),
    ("pipedream-2bw", 2, 3, {}),
    ("xpipe", 3, 2, {}),
    ("spectrain", 2, 2, {"recompute": "always"}),
]


def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def trained(setup: Setup, workers: str) -> tuple[list[float], dict[str, float], dict[str, Tensor]]:
    """Train, evaluate in between, drain, and train on."""
    name, stages, micro_batches, options = setup
    data = batches(14, samples=micro_batches + 1)
    with trainer(stages, name, micro_batches, workers=workers, **options) as made:
        steps = [made.step(*pair) for pair in data[:9]]
        figures = made.evaluate(batches(2, seed=9))
        made.drain()
        steps += [made.step(*pair) for pair in data[9:]]
        made.drain()
        return [step.loss for step in steps], figures, {key: value.cpu() for key, value in made.state_dict().items()}


@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_steps_and_evaluations_are_those_of_threads(setup: Setup) -> None:
    losses, figures, weights = trained(setup, "cuda")
    expected = trained(setup, "threads")
    assert losses == pytest.approx(expected[0], rel=1e-9)
    assert figures["loss"] == pytest.approx(expected[1]["loss"], rel=1e-9)
    for key, tensor in expected[2].items():
        torch.testing.assert_close(weights[key], tensor, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["1f1b", "xpipe"])
def test_a_checkpoint_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    data = batches(8, samples=4)
    with trainer(2, name, 2, workers="cuda", optimizer=adam) as made:
        for pair in data[:4]:
            made.step(*pair)
        made.save(tmp_path)
        steps = [made.step(*pair) for pair in data[4:]]
        made.drain()
        losses, weights = [step.loss for step in steps], made.state_dict()
    with trainer(2, name, 2, workers="cuda", optimizer=adam) as other:
        assert other.load(tmp_path).mini_batch == 4
        steps = [other.step(*pair) for pair in data[4:]]
        other.drain()
        assert [step.loss for step in steps] == losses
        assert_bit_equal(other.state_dict(), weights)


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_a_model_is_where_it_was_when_training_ends(where: str) -> None:
    stages = [stage.to(where) for stage in mlp(2)]
    with Trainer(stages, num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=adam, workers="cuda") as made:
        made.step(*batches(1)[0])
        assert all(parameter.is_cuda for stage in stages for parameter in stage.parameters())
        states = [copy.optimizer for copy in made._pipeline._copies.values()]
    assert {parameter.device.type for stage in stages for parameter in stage.parameters()} == {where}
    moments = {state["exp_avg"].device.type for optimizer in states if optimizer for state in optimizer.state.values()}
    assert moments == {where}


def test_auto_trains_a_model_on_the_gpu_there_and_data_may_lie_anywhere() -> None:
    losses = []
    for place in ("cpu", "cuda"):
        with Trainer([stage.cuda() for stage in mlp(2)], num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd) as made:
            assert made.workers == "cuda"
            losses.append([made.step(inputs.to(place), target.to(place)).loss for inputs, target in batches(3)])
    # micro-batches begin at other addresses where they are cut out of a mini-batch on the GPU, which may have kernels of their own
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


def test_threads_warn_of_a_model_on_the_gpu_and_give_it_back() -> None:
    stages = [stage.cuda() for stage in mlp(2)]
    with pytest.warns(SchedirWarning, match=r"the model is on cuda:0, but workers 'threads' compute on the CPU"):
        made = Trainer(stages, num_micro_batches=2, loss=nn.functional.mse_loss, optimizer=sgd, workers="threads")
    with made:
        made.step(*batches(1)[0])
        assert not next(stages[0].parameters()).is_cuda
    assert next(stages[0].parameters()).is_cuda


@pytest.mark.parametrize("name", ["1f1b", "pipedream"])
def test_a_timeline_is_on_the_clock_of_the_host_and_in_order(name: str) -> None:
    with trainer(2, name, 2, workers="cuda") as made:
        for pair in batches(12):
            step = made.step(*pair)
        assert 0 < step.seconds < 60
        made.drain()
        timeline = made.timeline
    newest = timeline.graph.mini_batch >= (0 if name == "1f1b" else 2)
    assert np.isfinite(timeline.start[newest]).all()
    assert timeline.meta["workers"] == "cuda"
    assert timeline.meta["gpus"][0]["allocated_bytes"] > 0
    source, target, _ = timeline.graph.edges()
    assert (timeline.start[target] >= timeline.end[source])[newest[source] & newest[target]].all()


def test_an_error_on_the_gpu_names_its_task_and_leaves_no_thread() -> None:
    class Failing(nn.Module):
        def forward(self, tensor: Tensor) -> Tensor:
            if tensor.shape[0] == 3:
                raise ValueError("not three")
            return tensor * 1.0

    made = Trainer([*mlp(1), Failing()], num_micro_batches=1, loss=nn.functional.mse_loss, optimizer=sgd, workers="cuda")
    made.step(*batches(1, samples=2)[0])
    with pytest.raises(ValueError, match="not three") as failure:
        made.step(*batches(1, samples=3)[0])
    assert "1F1 (stage 1, micro-batch 0 of mini-batch 1)" in " ".join(failure.value.__notes__)
    assert alive() == []


def test_memory_does_not_grow_with_the_number_of_steps_or_of_shapes() -> None:
    """Forty steps leave less behind than one small tensor a step; cuBLAS keeps megabytes of its own, from the first product on."""
    with trainer(3, "xpipe", 2, workers="cuda") as made:
        held = []
        for number in range(120):
            made.step(*batches(1, samples=4 + number % 7)[0])
            if number % 40 == 39:
                made.drain()
                gc.collect()
                held.append(torch.cuda.memory_allocated())
    assert max(held[1:]) <= held[0] + 2048

"""Training on one real GPU gives what threads give. One command: python -m pytest -m gpu tests/gpu"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from executor.training import Run, train
from executor.workers.cuda.partitions import split_sms
from schedir.compiler import compile_program
from schedir.errors import RefusedError
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import SCHEDULES, build_program
from tests.executor.serial.scalar_cases import TRAINED, load
from tests.executor.small.models import assert_dependencies_kept, batches, mlp, pipeline_of, reference
from tests.programs import accepted_shape

pytestmark = pytest.mark.gpu

DATA = batches(6, samples=16)


def graph_of(name: str, **compile_options: Any) -> TaskGraph:
    devices, micro_batches = accepted_shape(name, 2, 4)
    program = build_program(name, num_devices=devices, num_micro_batches=micro_batches)
    return compile_program(program, **compile_options)


def on(workers: str, graph: TaskGraph, stages: Callable[[int], Sequence[nn.Module]] = mlp, **options: Any) -> Run:
    count = graph.program.num_mini_batches
    data = DATA * (count // len(DATA) + 1)
    size = len(data) - len(data) % count if graph.program.weights.synchronous else count
    return train(graph, pipeline_of(stages(graph.program.num_stages), **options), data[:size], workers=workers)


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_every_schedule_trains_as_on_threads(name: str) -> None:
    graph = graph_of(name)
    threads, cuda = on("threads", graph), on("cuda", graph)
    assert cuda.losses == pytest.approx(threads.losses, rel=1e-9)
    for key, expected in threads.state_dict().items():
        torch.testing.assert_close(cuda.state_dict()[key].cpu(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("recompute", ["never", "except-last", "always"])
def test_gradients_are_those_of_the_whole_model(recompute: str) -> None:
    run = on("cuda", graph_of("1f1b", recompute=recompute))
    _, expected = reference(mlp(2), DATA)
    for key, gradient in run.gradients.items():
        torch.testing.assert_close(gradient.cpu(), expected[key], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", TRAINED)
def test_the_cases_worked_out_by_hand_hold(name: str) -> None:
    """Devices take turns here, which keeps every read; cases with replicas need a GPU for each."""
    case = load(name)
    try:
        run = case.train(workers="cuda")
    except RefusedError as refused:
        assert "some would share one" in str(refused)  # noqa: PT017 - which of the two happens depends on the machine
        pytest.skip("replicas need a GPU each")
    for key, expected in load(name).train().state_dict().items():
        torch.testing.assert_close(run.state_dict()[key].cpu(), expected, rtol=1e-9, atol=1e-9)


def test_spans_are_recorded_in_order_and_memory_is_told() -> None:
    timeline = on("cuda", graph_of("1f1b")).timeline
    assert np.isfinite(timeline.start).all()
    assert_dependencies_kept(timeline)
    assert timeline.meta["workers"] == "cuda"
    assert timeline.meta["gpus"][0]["allocated_bytes"] > 0


def test_updates_stand_behind_the_backwards_that_they_need() -> None:
    timeline = on("cuda", graph_of("xpipe")).timeline
    graph = timeline.graph
    for update in np.flatnonzero(graph.kind == Kind.UPDATE).tolist():
        for source in graph.sources(update).tolist():
            assert timeline.end[source] <= timeline.start[update]


class Noisy(nn.Module):
    """Draws on the GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4, dtype=torch.float64)

    def forward(self, tensor: Tensor) -> Tensor:
        return nn.functional.dropout(self.linear(tensor), 0.5, self.training) + 0.1 * torch.rand_like(tensor)


def noisy(count: int) -> list[nn.Module]:
    torch.manual_seed(2)
    return [Noisy() for _ in range(count)]


def test_random_numbers_are_those_of_the_seed_and_come_again_when_recomputed() -> None:
    runs = [on("cuda", graph_of("1f1b", recompute=how), noisy) for how in ("never", "never", "always")]
    assert runs[0].losses == runs[1].losses == runs[2].losses


class Telling(nn.Module):
    """Says what type it gets."""

    def __init__(self, told: list[torch.dtype]) -> None:
        super().__init__()
        self._told = told

    def forward(self, tensor: Tensor) -> Tensor:
        self._told.append(tensor.dtype)
        return tensor


def types_under_autocast(device_type: str, workers: str) -> set[torch.dtype]:
    """Train in float32 (autocast leaves float64 alone) and return the types behind a Linear."""
    told: list[torch.dtype] = []
    stages = [nn.Sequential(nn.Linear(4, 4), Telling(told)) for _ in range(2)]
    data = [(inputs.float(), target.float()) for inputs, target in DATA]
    with torch.autocast(device_type, dtype=torch.bfloat16):
        run = train(graph_of("1f1b"), pipeline_of(stages), data, workers=workers)
    assert np.isfinite(run.losses).all()
    return set(told)


def test_autocast_is_entered_on_the_gpu() -> None:
    assert types_under_autocast("cuda", "cuda") == {torch.bfloat16}


def test_a_model_that_is_on_the_gpu_is_trained_there() -> None:
    run = on("auto", graph_of("1f1b"), lambda count: [stage.cuda() for stage in mlp(count)])
    assert run.timeline.meta["workers"] == "cuda"


def test_an_error_on_the_gpu_names_its_task() -> None:
    class Failing(nn.Module):
        def forward(self, tensor: Tensor) -> Tensor:
            if tensor.is_cuda:
                raise ValueError("not today")
            return tensor

    with pytest.raises(ValueError, match="not today") as failure:
        on("cuda", graph_of("1f1b"), lambda count: [*mlp(count - 1), Failing()])
    assert "1F0" in " ".join(failure.value.__notes__)


def test_multiprocessors_are_split_or_the_split_is_refused() -> None:
    graph = graph_of("1f1b")
    try:
        shares = split_sms(torch.device("cuda", 0), 2)
    except RefusedError as refused:
        assert "let the devices take turns" in str(refused)  # noqa: PT017 - which of the two happens depends on the machine
        pytest.skip(str(refused))
    assert shares[0].num_sms == shares[1].num_sms > 0
    assert on("cuda-partitions", graph).losses == pytest.approx(on("threads", graph).losses, rel=1e-9)

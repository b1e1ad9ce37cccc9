"""Every synchronous schedule trains as the unpartitioned model: split backwards, pairs, two copies. D9 is a known problem."""

from itertools import cycle, islice
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from executor.training import train
from schedir.compiler import compile_program
from schedir.ir.shape import Shape
from schedir.schedules.registry import SCHEDULES, build_program
from tests.executor.small.models import batches, compiled, mlp, pipeline_of, reference
from tests.programs import accepted_shape

EXACT = 1e-10
SYNCHRONOUS = tuple(name for name, schedule in SCHEDULES.items() if not schedule.continuous)
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("gpipe", {"order": "fifo"}),
    ("interleaved-1f1b", {"stages_per_device": 1}),
    ("interleaved-1f1b", {"stages_per_device": 3}),
    ("looped-bfs", {"stages_per_device": 3}),
    ("interleaved-zb", {"stages_per_device": 3}),
    ("hanayo", {"waves": 2}),
    ("hanayo", {"split_backward": False}),
]
"""Options that change the order, beside those that schedules have by default."""
GRID = [
    (name, devices, micro_batches, options, recompute)
    for name, options in [*((name, {}) for name in SYNCHRONOUS), *VARIANTS]
    for devices in range(1, 5)
    for micro_batches in range(1, 10)
    for recompute in (("never", "mixed") if options else ("never", "always", "mixed"))
    if SCHEDULES[name].accepts(Shape(devices, micro_batches, 1, SCHEDULES[name].stages_per_device)) is None
]
RECOMPUTE = ("never", "except-last", "always", "mixed")


def mixed_modes(num_stages: int) -> str:
    """Return always, never, except-last, always, … by stage."""
    return ",".join(islice(cycle(["always", "never", "except-last"]), num_stages))


def assert_trains_like_the_whole_model(
    name: str, shape: tuple[int, int], *, recompute: str = "never", mini_batches: int = 2, **options: Any
) -> None:
    devices, micro_batches = shape
    program = build_program(name, num_devices=devices, num_micro_batches=micro_batches, **options)
    graph = compile_program(program, recompute=mixed_modes(program.num_stages) if recompute == "mixed" else recompute)
    data = batches(mini_batches, samples=micro_batches + 1)
    losses, gradients = reference(mlp(program.num_stages), data)
    run = train(graph, pipeline_of(mlp(program.num_stages)), data, workers="threads", timeout=60)

    assert run.losses == pytest.approx(losses, rel=0, abs=EXACT)
    assert run.gradients.keys() == gradients.keys()
    assert max(float((run.gradients[key] - gradients[key]).abs().max()) for key in gradients) < EXACT


@pytest.mark.parametrize("recompute", RECOMPUTE)
@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_gradients_are_those_of_the_unpartitioned_model(name: str, recompute: str) -> None:
    assert_trains_like_the_whole_model(name, accepted_shape(name, 3, 5), recompute=recompute)


@pytest.mark.parametrize("recompute", ["never", "mixed"])
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_options_of_the_order_do_not_change_gradients(name: str, options: dict[str, Any], recompute: str) -> None:
    assert_trains_like_the_whole_model(name, (2, 3), recompute=recompute, **options)


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_losses_of_five_steps_are_those_of_the_unpartitioned_model(name: str) -> None:
    assert_trains_like_the_whole_model(name, accepted_shape(name, 2, 3), mini_batches=5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "devices", "micro_batches", "options", "recompute"), GRID)
def test_gradients_are_those_of_the_unpartitioned_model_for_every_shape(
    *, name: str, devices: int, micro_batches: int, options: dict[str, Any], recompute: str
) -> None:
    """Five steps of every accepted shape up to 4 devices and 9 micro-batches."""
    assert_trains_like_the_whole_model(name, (devices, micro_batches), recompute=recompute, mini_batches=5, **options)


class Split(nn.Module):
    """One operation with two outputs that are used differently."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 4, bias=False).double()
        nn.init.ones_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.linear(x).chunk(2, dim=1)
        output: Tensor = 2 * a + 3 * b
        return output


def passes() -> nn.Module:
    """Return a stage y = x, whose weight's gradient is that of y by x."""
    linear = nn.Linear(2, 2, bias=False).double()
    linear.weight.data = torch.eye(2, dtype=torch.float64)
    return linear


@pytest.mark.parametrize(("name", "devices"), [("gpipe", 2), ("zb-h1", 2), ("zb-v", 1)])
def test_d9_every_output_of_a_split_operation_has_its_own_gradient(name: str, devices: int) -> None:
    """D9: x = [[1, 2]], loss (2a + 3b).sum(): dW = [[2, 4], [2, 4], [3, 6], [3, 6]], dx = [[10, 10]]."""
    pipeline = pipeline_of([passes(), Split()])
    pipeline.loss = lambda output, _: output.sum()
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    run = train(compiled(name, devices, 1), pipeline, [(x, x)])

    assert run.gradients["1.linear.weight"].tolist() == [[2, 4], [2, 4], [3, 6], [3, 6]]
    assert run.gradients["0.weight"].tolist() == [[10, 20], [10, 20]]

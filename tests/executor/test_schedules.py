"""Every synchronous schedule trains as the unpartitioned model: split backwards, pairs, two copies. D9 is a known problem."""

import pytest
import torch
from torch import Tensor, nn

from executor.training import train
from schedir.ir.shape import Shape
from schedir.schedules.registry import SCHEDULES
from tests.executor.models import batches, compiled, mlp, pipeline_of, reference
from tests.programs import accepted_shape

EXACT = 1e-10
SYNCHRONOUS = tuple(name for name, schedule in SCHEDULES.items() if not schedule.continuous)
GRID = [
    (name, devices, micro_batches)
    for name in SYNCHRONOUS
    for devices in range(1, 5)
    for micro_batches in range(1, 10)
    if SCHEDULES[name].accepts(Shape(devices, micro_batches, 1, SCHEDULES[name].stages_per_device)) is None
]


def assert_trains_like_the_whole_model(name: str, devices: int, micro_batches: int, *, recompute: str = "never") -> None:
    graph = compiled(name, devices, micro_batches, recompute=recompute)
    data = batches(2, samples=micro_batches + 1)
    losses, gradients = reference(mlp(graph.program.num_stages), data)
    run = train(graph, pipeline_of(mlp(graph.program.num_stages)), data, timeout=60)

    assert run.losses == pytest.approx(losses, abs=EXACT)
    assert run.gradients.keys() == gradients.keys()
    assert max(float((run.gradients[key] - gradients[key]).abs().max()) for key in gradients) < EXACT


@pytest.mark.parametrize("recompute", ["never", "except-last"])
@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_gradients_are_those_of_the_unpartitioned_model(name: str, recompute: str) -> None:
    assert_trains_like_the_whole_model(name, *accepted_shape(name, 3, 5), recompute=recompute)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "devices", "micro_batches"), GRID)
def test_gradients_are_those_of_the_unpartitioned_model_for_every_shape(name: str, devices: int, micro_batches: int) -> None:
    assert_trains_like_the_whole_model(name, devices, micro_batches)


class Split(nn.Module):
    """One operation with two outputs that are used differently."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 4, bias=False).double()
        nn.init.ones_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.linear(x).chunk(2, dim=1)
        return 2 * a + 3 * b


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

"""Models with habits, and how each is trained: by name, in processes and by threads alike."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from executor.training import train
from tests.distributed.programs.work import TIMEOUT_S, Found
from tests.executor.small.models import WIDTH, batches, compiled, mlp, pipeline_of
from tests.executor.test_boundary import several


class Scale(nn.Module):
    """y = w x for x of any shape."""

    def __init__(self, weight: float = 1.5) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(weight, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.w * x


def tuples(workers: str) -> Found:
    """D10: a float that needs a gradient, a mask of integers, a float that needs none."""
    graph = compiled("1f1b", 3, 4, recompute="always")
    return Found.of(train(graph, pipeline_of(several()), batches(3), workers=workers, timeout=TIMEOUT_S))


def changing_shapes(workers: str) -> Found:
    """D31: rows of 16, 24 and 16 numbers; the middle stage has no parameters."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((4, 16), (4, 24), (2, 16))
    data = [(torch.randn(shape, generator=generator).double(), torch.zeros(shape).double()) for shape in shapes]
    pipeline = pipeline_of([Scale(), nn.ReLU(), Scale()])
    return Found.of(train(compiled("1f1b", 3, 2), pipeline, data, workers=workers, timeout=TIMEOUT_S))


def dropout_and_norm(workers: str) -> Found:
    """D11, D12: what stages draw, and statistics, under recomputation."""
    stages = [nn.Sequential(stage, nn.BatchNorm1d(WIDTH).double(), nn.Dropout(0.5)) for stage in mlp(3)]
    graph = compiled("gpipe", 3, 4, recompute="always")
    return Found.of(train(graph, pipeline_of(stages), batches(3), workers=workers, seed=7, timeout=TIMEOUT_S))


def deferred_norm(workers: str) -> Found:
    """D11: statistics of whole mini-batches, under recomputation; one device has two stages."""
    stages = [nn.Sequential(stage, nn.BatchNorm1d(WIDTH).double()) for stage in mlp(6)]
    graph = compiled("interleaved-1f1b", 3, 3, stages_per_device=2, recompute="always")
    pipeline = pipeline_of(stages, batch_norm="deferred")
    return Found.of(train(graph, pipeline, batches(3), workers=workers, timeout=TIMEOUT_S))


def sparse_gradients(workers: str) -> Found:
    """Two copies of an embedding reduce sparse gradients."""
    torch.manual_seed(0)
    stages = [nn.Embedding(9, WIDTH, sparse=True).double(), *mlp(1)]
    data = [(torch.arange(6) % 9, target) for _, target in batches(6, samples=6)]
    graph = compiled("pipedream", 3, 2, replicas=(2, 1), num_mini_batches=6)
    pipeline = pipeline_of(stages, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    return Found.of(train(graph, pipeline, data, workers=workers, timeout=TIMEOUT_S))


def moved_between_runs(workers: str) -> Found:
    """Trained twice, with stages on other devices the second time: Adam's state and the rate go with them."""
    pipeline = pipeline_of(
        mlp(6),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.1),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
    )
    train(compiled("zb-v", 3, 6), pipeline, batches(2), workers=workers, timeout=TIMEOUT_S)
    graph = compiled("interleaved-1f1b", 3, 6, stages_per_device=2)
    return Found.of(train(graph, pipeline, batches(2, seed=2), workers=workers, timeout=TIMEOUT_S))


MODELS: dict[str, Callable[[str], Found]] = {
    function.__name__: function
    for function in (tuples, changing_shapes, dropout_and_norm, deferred_norm, sparse_gradients, moved_between_runs)
}


def all_models(workers: str) -> dict[str, Found]:
    return {name: function(workers) for name, function in MODELS.items()}


def elementwise(setup: tuple[str, int, int, int], workers: str) -> Found:
    """D17: ten passes with activations of `size` numbers in every micro-batch."""
    name, devices, micro_batches, size = setup
    graph = compiled(name, devices, micro_batches)
    pipeline = pipeline_of(scales(graph.program.num_stages), optimizer=slowly)
    return Found.of(train(graph, pipeline, ten_times(micro_batches, size), workers=workers, timeout=TIMEOUT_S))


def scales(count: int) -> list[nn.Module]:
    return [Scale(0.9) for _ in range(count)]


def slowly(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-3)


def ten_times(micro_batches: int, size: int) -> list[tuple[Tensor, Tensor]]:
    """Return a mini-batch, ten times, of one sample of `size` numbers per micro-batch."""
    inputs = torch.randn(micro_batches, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return [(inputs, torch.zeros_like(inputs))] * 10

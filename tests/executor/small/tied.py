"""Models whose stages hold the same weights, and how the unpartitioned model trains."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from executor.model.pipeline import Pipeline
from executor.training import Run, train
from schedir.compiler import compile_program
from schedir.schedules.registry import build_program
from tests.executor.small.models import MakeOptimizer

WORDS, WIDTH, LENGTH = 11, 6, 5

Data = list[tuple[Tensor, Tensor]]


class Embed(nn.Module):
    """Words and their places."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)

    def forward(self, words: Tensor) -> Tensor:
        output: Tensor = self.token(words) + self.place(torch.arange(words.shape[1]))
        return output


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return output


class Head(nn.Module):
    """Compares with the embedding of every word."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.out.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.out(self.norm(x))
        return output


def gpt(num_stages: int) -> list[nn.Module]:
    """Return a language model in float64 whose last layer has the weights of its first; one stage has all of it."""
    torch.manual_seed(0)
    embed = Embed()
    layers = [embed, *(Block() for _ in range(max(num_stages - 2, 1))), Head(next(embed.token.parameters()))]
    model = nn.Sequential(*layers).double()
    if num_stages == 1:
        return [model]
    return [model[:2], model[2]] if num_stages == 2 else list(model)


def adam(parameters: list[nn.Parameter]) -> Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


def loss(output: Tensor, target: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output.reshape(-1, WORDS), target.reshape(-1))


def texts(count: int, samples: int = 10) -> Data:
    generator = torch.Generator().manual_seed(3)
    return [tuple(torch.randint(0, WORDS, (samples, LENGTH), generator=generator) for _ in range(2)) for _ in range(count)]  # type: ignore[misc]  # two of them


def trained_whole(
    stages: Sequence[nn.Module], data: Data, optimizer: MakeOptimizer = adam
) -> tuple[list[float], dict[str, Tensor]]:
    """Train the unpartitioned model; return losses and weights."""
    model = nn.Sequential(*stages)
    steps = optimizer(list(model.parameters()))
    losses = []
    for inputs, target in data:
        steps.zero_grad()
        found = loss(model(inputs), target)
        found.backward()
        steps.step()
        losses.append(found.item())
    return losses, model.state_dict()


def tied_pipeline(num_stages: int, optimizer: MakeOptimizer = adam) -> Pipeline:
    return Pipeline(gpt(num_stages), loss=loss, optimizer=optimizer)


def train_tied(
    name: str, num_devices: int, num_micro_batches: int, *, optimizer: MakeOptimizer = adam, workers: str = "threads"
) -> Run:
    """Train the tied model by a schedule on three mini-batches."""
    program = build_program(name, num_devices=num_devices, num_micro_batches=num_micro_batches)
    pipeline = tied_pipeline(program.num_stages, optimizer)
    return train(compile_program(program, ties=pipeline.ties), pipeline, texts(3), workers=workers, timeout=60)


class Scale(nn.Module):
    """y = w * x."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.w = weight

    def forward(self, x: Tensor) -> Tensor:
        return x * self.w


def d8(*, workers: str, local: bool = False) -> tuple[Run, list[Scale]]:
    """Known problem D8: h = w x on stage 0, y = w h on the last stage, w = 2, x = 3, loss y, one step of SGD with rate 0.1.

    `local` puts both on one device, by a V of two stages per device, with stages between them that change nothing.
    """
    weight = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
    stages: list[nn.Module] = [Scale(weight), Scale(weight)]
    if local:
        stages[1:1] = [nn.Identity(), nn.Identity()]
    program = build_program("zb-v" if local else "1f1b", num_devices=2, num_micro_batches=1)
    made = Pipeline(stages, loss=lambda output, _: output.mean(), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    data = [(torch.tensor([3.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64))]
    run = train(compile_program(program, ties=made.ties), made, data, workers=workers, timeout=60)
    return run, [stage for stage in stages if isinstance(stage, Scale)]

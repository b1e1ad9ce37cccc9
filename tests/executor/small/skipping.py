"""Models with skip connections over stages, and how the whole model trains."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from executor.model.pipeline import Pipeline
from executor.model.skips import Skip
from executor.model.stages import Stages
from schedir.compiler import compile_program
from schedir.ir.graph import TaskGraph
from schedir.schedules.registry import build_program
from tests.executor.small.models import WIDTH, MakeOptimizer, sgd

Data = list[tuple[Tensor, Tensor]]


class Layer(nn.Module):
    """Mixes all its inputs; returns what it makes and, `extra` times, something else for stages further on."""

    def __init__(self, num_inputs: int = 1, extra: int = 0) -> None:
        super().__init__()
        self.mix = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(num_inputs))
        self.scale = nn.Parameter(torch.rand(extra, WIDTH)) if extra else None

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        mixed = torch.tanh(sum(mix(x) for mix, x in zip(self.mix, inputs, strict=True)))
        return mixed if self.scale is None else (mixed, *(torch.sin(mixed * scale) for scale in self.scale))


def unet(num_stages: int, *, seed: int = 0) -> Stages:
    """Return stages in float64 of which each on the way down is joined to its mirror image on the way up, as in a U-Net."""
    torch.manual_seed(seed)
    skips = [Skip(k, num_stages - 1 - k) for k in range(num_stages // 2) if num_stages - 1 - k >= k + 2]
    sources, targets = {skip.source for skip in skips}, {skip.target for skip in skips}
    layers = [Layer(2 if stage in targets else 1, 1 if stage in sources else 0) for stage in range(num_stages)]
    return Stages([layer.double() for layer in layers], skips=skips)


def fan(num_stages: int, *, seed: int = 0) -> Stages:
    """Stage 0 gives the very tensor that stage 1 takes to every stage behind that, and stage 1 something to the last."""
    torch.manual_seed(seed)
    skips = [Skip(0, target, 0) for target in range(2, num_stages)] if num_stages > 2 else []

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Layer()

        def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
            y = self.layer(x)
            assert isinstance(y, Tensor)
            return (y, y) if skips else y

    layers: list[nn.Module] = [Twice(), *(Layer(1 if stage == 1 else 2) for stage in range(1, num_stages))]
    return Stages([layer.double() for layer in layers[:num_stages]], skips=skips)


class Whole(nn.Module):
    """The same stages called one after the other, values kept in a dict: the model that was not cut."""

    def __init__(self, stages: Stages) -> None:
        super().__init__()
        self.stages, self.skips = nn.ModuleList(stages), stages.skips

    def forward(self, x: Tensor) -> Tensor:
        kept: dict[int, list[Tensor]] = {}
        inputs: Sequence[Tensor] = (x,)
        for number, stage in enumerate(self.stages):
            output = stage(*inputs, *kept.pop(number, []))
            outputs = output if isinstance(output, tuple) else (output,)
            taken = set()
            for skip in self.skips:
                if skip.source == number:
                    kept.setdefault(skip.target, []).extend(outputs[place] for place in skip.places)
                    taken |= set(skip.places)
            inputs = [part for place, part in enumerate(outputs) if place not in taken]
        return inputs[0]


def train_whole(stages: Stages, data: Data, optimizer: MakeOptimizer = sgd) -> tuple[list[float], dict[str, Tensor]]:
    """Return losses, and weights under the names of the stages."""
    model = Whole(stages)
    steps, losses = optimizer(list(model.parameters())), []
    for inputs, target in data:
        steps.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), target)
        loss.backward()
        steps.step()
        losses.append(loss.item())
    return losses, {key.removeprefix("stages."): value for key, value in model.state_dict().items()}


def pipeline_with(stages: Stages, optimizer: MakeOptimizer = sgd) -> Pipeline:
    return Pipeline(stages, loss=nn.functional.mse_loss, optimizer=optimizer)


def compiled_with(pipeline: Pipeline, name: str, shape: tuple[int, int], **options: object) -> TaskGraph:
    """Compile a schedule for (devices, micro-batches), with all that the pipeline's stages have beside the chain."""
    lowering = {key: options.pop(key) for key in ("recompute", "recompute_start") if key in options}
    program = build_program(name, num_devices=shape[0], num_micro_batches=shape[1], **options)  # type: ignore[arg-type]  # options of any type
    return compile_program(program, skips=pipeline.skips, ties=pipeline.ties, **lowering)  # type: ignore[arg-type]  # so here


class UNet(nn.Module):
    """Two layers down, two in the middle, two up, joined as in a U-Net; the middle keeps something for the end, too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.down = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.middle = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        first = torch.tanh(self.down[0](x))
        second = torch.tanh(self.down[1](first))
        inner = torch.tanh(self.middle[0](second))
        last = torch.tanh(self.middle[1](inner))
        third = torch.tanh(self.up[0](torch.cat([last, second], 1)))
        output: Tensor = self.up[1](torch.cat([third, first], 1)) + inner
        return output


CUTS = ["down.1", "middle.1", "up.1"]
"""Four stages: stage 2 ends with what is put together for `up.1`, of something of stage 0; the last needs something of stage 1."""

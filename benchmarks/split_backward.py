"""What the two halves of a backward cost beside the whole, by differentiating twice and by putting weight gradients off.

    python -m benchmarks.split_backward [--repeats 40] [--write]

One stage on one thread: forward is run anew for every backward and not timed. The three ways take turns within every repeat, each
after a warm-up; times are CPU seconds of the thread, medians over the repeats, ratios of those medians.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import thread_time

import torch
from torch import Tensor, nn

from benchmarks.sections import machine, table, write_section
from executor.boundary import Message
from executor.model.split_ways import Split
from executor.model.stage_copy import StageCopy
from executor.recipe.ready_made import Embedding, TransformerBlock
from executor.stage.gradients import Gradients
from executor.stage.record import Record, differentiate
from executor.stage.splitting.splitting import Splitter
from executor.stage.weights import WeightSet

WIDTH, LENGTH, SAMPLES = 128, 32, 8
"""Of the transformer: two blocks take about 5 ms forward."""
CHANNELS, SIZE = 32, 16


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table: a stage and what goes into it."""

    name: str
    make: Callable[[], nn.Module]
    input: Callable[[], Tensor]
    needs_grad: bool = True
    """False for a model's first stage."""


def transformer() -> nn.Module:
    """Return two transformer blocks."""
    return nn.Sequential(*(TransformerBlock(WIDTH, heads=4) for _ in range(2)))


def first_of_transformer() -> nn.Module:
    """Return the same with an embedding before."""
    return nn.Sequential(Embedding(96, LENGTH, WIDTH), transformer())


def convolutions() -> nn.Module:
    """Return two convolution blocks."""
    blocks = (
        nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.GroupNorm(4, CHANNELS), nn.ReLU(inplace=True))
        for _ in range(2)
    )
    return nn.Sequential(*blocks)


def linears() -> nn.Module:
    """Return four Linears of width 512, with tanh between them."""
    return nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.Tanh()) for _ in range(4)))


CASES = (
    Case("transformer, 2 blocks", transformer, lambda: torch.randn(SAMPLES, LENGTH, WIDTH)),
    Case("the same behind an embedding, stage 0", first_of_transformer, lambda: torch.randint(96, (SAMPLES, LENGTH)), False),
    Case("convolutions, 2 blocks", convolutions, lambda: torch.randn(SAMPLES, CHANNELS, SIZE, SIZE)),
    Case("MLP, 4 layers", linears, lambda: torch.randn(128, 512)),
)

WHOLE, DIFFERENTIATE, DEFERRED = "whole", Split.DIFFERENTIATE.value, Split.DEFERRED.value
WAYS = (WHOLE, DIFFERENTIATE, DEFERRED)


class Stage:
    """A stage whose forwards are recorded as the executor records them."""

    def __init__(self, case: Case) -> None:
        torch.manual_seed(0)
        module = case.make()
        self._module, self._input, self._needs_grad = module, case.input(), case.needs_grad
        copy = StageCopy(module, lambda parameters: torch.optim.SGD(parameters, lr=0.1), None)
        self._weights = WeightSet(copy.parameters, version=0)
        copy.bind(self._weights.leaves)

    def forward(self) -> Record:
        """Run forward; return the record with a gradient of the output."""
        record = Record(Message((self._input,), (self._needs_grad,)), weights=self._weights)
        record.inputs = record.message.with_gradients()
        output = self._module(*record.inputs)
        record.take_roots([output])
        record.seeds = (torch.ones_like(output),)
        return record


def seconds_of(stage: Stage, repeats: int) -> Mapping[str, tuple[float, float]]:
    """Return the median CPU seconds of I (of B for the whole) and of W (0), by way."""
    splitters = {way: Splitter(Split(way)) for way in WAYS[1:]}
    samples: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for _ in range(repeats + 3):
        for way in WAYS:
            record = stage.forward()
            begin = thread_time()
            _first_half(record, splitters.get(way))
            middle = thread_time()
            if way != WHOLE:
                splitters[way].weight_grad(record)
            samples[way].append((middle - begin, thread_time() - middle if way != WHOLE else 0.0))
    return {way: _medians(taken[3:]) for way, taken in samples.items()}


def _first_half(record: Record, splitter: Splitter | None) -> Gradients:
    if splitter is None:
        return differentiate(record, inputs=True, parameters=True)
    return splitter.input_grad(record)


def _medians(samples: list[tuple[float, float]]) -> tuple[float, float]:
    first, second = zip(*samples, strict=True)
    return median(first), median(second)


HEAD = (
    *("stage", "whole B", "differentiated twice: I", "W", "(I + W) / B"),
    *("deferred: I", "W", "(I + W) / B"),
)


def row(case: Case, found: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """Return one line of the table."""
    whole = found[WHOLE][0]
    cells = [case.name, _milliseconds(whole)]
    for way in (DIFFERENTIATE, DEFERRED):
        first, second = found[way]
        cells += [_milliseconds(first), _milliseconds(second), f"{(first + second) / whole:.2f}"]
    return tuple(cells)


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms"


def main() -> None:
    """Print the table; `--write` puts it into docs/performance.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--write", action="store_true", help="replace the section in docs/performance.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for case in CASES:
        rows.append(row(case, seconds_of(Stage(case), arguments.repeats)))
        print(" | ".join(rows[-1]), flush=True)
    text = table(HEAD, rows)
    print(f"\n{text}")
    if arguments.write:
        write_section("Split backward", f"{introduction(arguments.repeats)}\n\n{text}")


def introduction(repeats: int) -> str:
    """Say what was run where."""
    return (
        f"`python -m benchmarks.split_backward --write`, on {machine('torch')}, one thread; CPU seconds, medians of {repeats}\n"
        "repeats in which the three ways take turns. B is one differentiation by input and weights; the halves are in\n"
        "[split_backward.md](split_backward.md)."
    )


if __name__ == "__main__":
    main()

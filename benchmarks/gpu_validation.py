"""Predictions against measurements on the GPUs of this machine: one GPU is enough, its devices take turns.

    python -m benchmarks.gpu_validation [--minutes 9] [--rounds 5] [--mini-batches 8] [--only TEXT] [--out FOLDER] [--write]
    python -m benchmarks.gpu_validation --from-spans [--write]

The same tables as `benchmarks.validation`, with models that keep a GPU busy. Needs torch, numpy and simpy, and no network. Every
configuration is on disk when it is measured: a second run goes on where the first one ended, be it by its time limit or by somebody
else. `--write` makes a section of docs/validation.md. Ends with exit code 2 and one line where there is no GPU.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from time import monotonic

import torch

from benchmarks.sections import write_section
from benchmarks.validation.configurations import CHOICES, Configuration
from benchmarks.validation.figures import Row, row_of
from benchmarks.validation.measure import measure
from benchmarks.validation.records import load, save
from benchmarks.validation.report import ON_GPUS, VALIDATION, body
from executor.profiling.machine import gpu_facts
from executor.recipe.ready_made import character_transformer, conv_net, mlp
from executor.recipe.recipe import Recipe
from executor.workers.cuda.driver import visible_gpus
from schedir.errors import ArgumentError, SchedirError

SPANS = Path(__file__).parent / "validation" / "gpu_spans"

MODELS: dict[str, Callable[[], Recipe]] = {
    "mlp": lambda: mlp(num_layers=8, width=3072, mini_batch_size=8192),
    "convolutions": lambda: conv_net(num_blocks=4, channels=512, size=8, mini_batch_size=1024),
    "transformer": lambda: character_transformer(num_blocks=4, width=768, length=256, mini_batch_size=64),
}
"""About 4 million million operations a mini-batch, 16 to 32 tasks of milliseconds, so that launching them is no part of it; and 0.3
GB of weights or data at most, which every round moves to the GPU and back, and which the profile runs through on the CPU once."""

DISTINCT = 4
"""Mini-batches that differ: drawing more would take the host longer than training on them takes the GPU."""


class GpuConfiguration(Configuration):
    """A row with a model of this size."""

    def recipe(self) -> Recipe:
        """Return the model with its data."""
        return _recipe(self.model)


@cache
def _recipe(model: str) -> Recipe:
    made = MODELS[model]()
    drawn = list(islice(made.data(0), DISTINCT))
    return replace(made, data=lambda _: cycle(drawn))


def configurations(only: str) -> list[GpuConfiguration]:
    """Return those whose name holds a text: every model's first, then every model's second, so that any beginning tells of all."""
    found = [GpuConfiguration(model, *choice) for choice in CHOICES for model in MODELS]
    return [configuration for configuration in found if only in configuration.name]


def main() -> None:
    """Measure what is not measured yet, as far as there is time, and print the tables."""
    options, failed = _options(), 0
    try:
        if not options.from_spans:
            visible_gpus("cuda", 2)
            options.out.mkdir(parents=True, exist_ok=True)
            failed = _measure(options)
        rows = [row_of(record) for record in load(options.out) if options.only in record.configuration.name]
        if not rows:
            raise ArgumentError(f"{options.out} holds no spans: leave --from-spans out, or look at the errors above")
    except SchedirError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    text = f"{_where()}\n\n{body(rows, (), rounds=options.rounds, mini_batches=options.mini_batches, told=ON_GPUS)}"
    print(text, flush=True)
    if options.write:
        write_section("GPUs", text, VALIDATION)
    sys.exit(1 if failed else 0)


def _measure(options: argparse.Namespace) -> int:
    """Measure what is not on disk, until there is no time for another; return how many could not be measured."""
    began, limit_s, failed = monotonic(), options.minutes * 60, 0
    left = [one for one in configurations(options.only) if not (options.out / f"{one.name}.npz").exists()]
    _say(f"{len(left)} to measure, those in {options.out} are not measured again")
    for number, configuration in enumerate(left):
        spent = monotonic() - began
        # the mean of those so far, of which the first take longest: kernels are loaded, models and data are made
        if number and spent * (number + 1) / number > limit_s:
            _say(f"{spent:.0f} s: no time for {len(left) - number} more; the same command measures them")
            break
        _say(f"{spent:.0f} s: {number + 1}/{len(left)} {configuration.name}")
        failed += not _measure_one(configuration, options, share_s=(limit_s - spent) / (len(left) - number))
    return failed


def _measure_one(configuration: GpuConfiguration, options: argparse.Namespace, *, share_s: float) -> bool:
    """Measure one and keep it; tell what is wrong with it, which stops no other, and return whether nothing was."""
    size = {"rounds": options.rounds, "mini_batches": options.mini_batches}
    try:
        record = measure(configuration, options.out, **size, workers="cuda", time_limit_s=share_s)
    except (SchedirError, RuntimeError) as error:
        _say(f"    error: {configuration.name}: {' '.join(str(error).split())[:300]}")
        return False
    save(record, options.out)
    _say(", ".join(_figures(row_of(record))))
    return True


def _figures(row: Row) -> Iterator[str]:
    yield f"    predicted {row.predicted_s * 1e3:.2f} ms"
    yield f"measured {row.measured_s * 1e3:.2f} ms"
    yield f"{row.error:+.1%}, noise {row.noise:.1%}, {row.rounds} rounds"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _where() -> str:
    facts = gpu_facts()
    names = ", ".join(facts.get("gpus", ["the stored spans"]))
    versions = f"torch {torch.__version__}, CUDA {facts.get('cuda')}, driver {_driver()}"
    return f"{names}; {versions}. `python -m benchmarks.gpu_validation --write`."


def _driver() -> str:
    """Return the version of the GPU's driver, as its own tool says it."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "of unknown version"
    query = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    return answer.stdout.split("\n")[0] or "of unknown version"


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_validation", description=__doc__)
    parser.add_argument("--minutes", type=float, default=9.0, help="no configuration begins that would end later than this")
    parser.add_argument("--rounds", type=int, default=5, help="at most so many of every configuration, as far as there is time")
    parser.add_argument("--mini-batches", type=int, default=8, help="steps in steady state of every round")
    parser.add_argument("--only", default="", metavar="TEXT", help="configurations whose name holds this")
    parser.add_argument("--out", type=Path, default=SPANS)
    parser.add_argument("--from-spans", action="store_true", help="measure nothing: make the tables of what is stored")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()

"""Predictions against measurements on the GPUs of this machine: one GPU is enough, its devices take turns.

    python -m benchmarks.gpu_validation [--rounds 5] [--mini-batches 10] [--out FOLDER] [--write]

The same tables as `benchmarks.validation`, with models that keep a GPU busy; `--write` makes a section of docs/validation.md.
Needs no network. Ends with exit code 2 and one line where there is no GPU.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.sections import write_section
from benchmarks.validation.configurations import CHOICES, Configuration
from benchmarks.validation.figures import row_of
from benchmarks.validation.measure import measure
from benchmarks.validation.records import load, save
from benchmarks.validation.report import VALIDATION, body
from executor.profiling.machine import gpu_facts
from executor.recipe.ready_made import character_transformer, conv_net, mlp
from executor.recipe.recipe import Recipe
from executor.workers.cuda.driver import visible_gpus
from schedir.errors import SchedirError

SPANS = Path(__file__).parent / "validation" / "gpu_spans"

MODELS: dict[str, Callable[[], Recipe]] = {
    "mlp": lambda: mlp(num_layers=8, width=8192, mini_batch_size=8192),
    "convolutions": lambda: conv_net(num_blocks=4, channels=256, size=64, mini_batch_size=256),
    "transformer": lambda: character_transformer(num_blocks=8, width=1024, length=512, mini_batch_size=64),
}
"""Large enough that a task takes milliseconds, so that launching it is no part of it."""


class GpuConfiguration(Configuration):
    """A row with a model of this size."""

    def recipe(self) -> Recipe:
        """Return the model with its data."""
        return MODELS[self.model]()


def main() -> None:
    """Measure everything and print the tables."""
    options = _options()
    try:
        visible_gpus("cuda", 2)
        options.out.mkdir(parents=True, exist_ok=True)
        _measure(options)
    except SchedirError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    rows = [row_of(record) for record in load(options.out)]
    text = f"{_where()}\n\n{body(rows, (), rounds=options.rounds, mini_batches=options.mini_batches)}"
    print(text)
    if options.write:
        write_section("GPUs", text, VALIDATION)


def _measure(options: argparse.Namespace) -> None:
    chosen = [GpuConfiguration(model, *choice) for model in MODELS for choice in CHOICES]
    for number, configuration in enumerate(chosen, start=1):
        print(f"{number}/{len(chosen)} {configuration.name}", file=sys.stderr)
        found = measure(configuration, options.out, rounds=options.rounds, mini_batches=options.mini_batches, workers="cuda")
        save(found, options.out)


def _where() -> str:
    facts = gpu_facts()
    names = ", ".join(facts["gpus"])
    versions = f"torch {torch.__version__}, CUDA {facts['cuda']}, driver {_driver()}"
    return f"{names}; {versions}. `python -m benchmarks.gpu_validation --write`."


def _driver() -> str:
    """Return the version of the GPU's driver, as its own tool says it."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "of unknown version"
    query = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    return answer.stdout.split("\n")[0] or "of unknown version"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_validation", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mini-batches", type=int, default=10)
    parser.add_argument("--out", type=Path, default=SPANS)
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""One process of a group that runs programs in torch's runtime: `python -m tests.executor.in_torch.torch_ranks RANK FOLDER CASE…`.

Every case's gradients, under the keys of the whole model, and its loss go into FOLDER/CASE.RANK.pt; what was refused into
FOLDER/refused.RANK.pt.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed, nn

from executor.torch_runtime import TorchRuntime, hosted_stages
from schedir.compiler import load_program
from schedir.errors import SchedirError
from schedir.ir.program import Program
from schedir.schedules.registry import build_program
from tests.executor.small.models import batches, mlp
from tests.repository import ROOT

SIZE = 2
"""Processes."""

SAMPLES = 8

NAMES = (
    *("gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-h2"),
    *("interleaved-zb", "zb-v", "v-half", "dualpipev", "hanayo"),
)
"""All schedules that torch can run."""

CASES = tuple(f"{name}:{form}" for name in (*NAMES, "own") for form in ("compute-only", "compute-comms"))

OWN = """
schema = "schedir.program/1"
name = "own"
order = [
  "0F0 0F1 1F1 1F0 1I0 0B0 1B1 1W0 0I1 0W1",   # two neighbouring stages; backwards whole and split, in any order
  "2F0 2F1 2I1 2B0 2W1",
]
"""
"""Three stages on two devices."""


def program_for(name: str, folder: Path) -> Program:
    if name != "own":
        return build_program(name, num_devices=SIZE, num_micro_batches=4)
    path = folder / f"own.{os.getpid()}.toml"
    path.write_text(OWN)
    return load_program(path)


def run(program: Program, form: str, rank: int) -> tuple[float | None, dict[str, torch.Tensor]]:
    hosted = hosted_stages(program, rank)
    stages = {stage: module for stage, module in enumerate(mlp(program.num_stages)) if stage in hosted}
    [(inputs, targets)] = batches(1, samples=SAMPLES)
    loss = TorchRuntime(program, stages, loss=nn.functional.mse_loss, form=form).step(inputs, targets)
    named = ((f"{stage}.{name}", each) for stage, module in stages.items() for name, each in module.named_parameters())
    return loss, {name: parameter.grad for name, parameter in named if parameter.grad is not None}


def refusals() -> list[str]:
    """Return what is said about shapes that do not fit."""
    three, two = (build_program("1f1b", num_devices=devices, num_micro_batches=4) for devices in (3, 2))
    [(inputs, targets)] = batches(1, samples=7)

    def runtime(program: Program, stages: list[nn.Module]) -> TorchRuntime:
        return TorchRuntime(program, stages, loss=nn.functional.mse_loss)

    attempts = (
        lambda: runtime(three, mlp(3)),
        lambda: runtime(two, []),
        lambda: runtime(two, mlp(2)).step(inputs, targets),
    )
    return [said(attempt) for attempt in attempts]


def said(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except SchedirError as error:
        return str(error)
    return ""


def main(rank: int, folder: Path, cases: Sequence[str]) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=SIZE, timeout=timedelta(seconds=600))
    for case in cases:
        name, form = case.split(":")
        torch.save(run(program_for(name, folder), form, rank), folder / f"{case}.{rank}.pt")
    torch.save(refusals(), folder / f"refused.{rank}.pt")
    distributed.destroy_process_group()


def launch(folder: Path, cases: Sequence[str], *, most_seconds: float) -> None:
    """Run `main` in all processes, which are ended in any case; raise AssertionError with their output if one fails."""
    words = [sys.executable, "-m", "tests.executor.in_torch.torch_ranks"]
    logs = [folder / f"log.{rank}" for rank in range(SIZE)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank, log in enumerate(logs):
            with log.open("w") as output:
                command = [*words, str(rank), str(folder), *cases]
                processes.append(subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output))
        codes = [process.wait(timeout=most_seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert codes == [0] * SIZE, "\n".join(log.read_text()[-2000:] for log in logs)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])

"""What we export runs unchanged in torch's runtime, on two gloo processes, with our gradients.

One launch for all cases, bounded; its processes are ended in any case. Slow: two processes import torch.
"""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from executor.torch_runtime import TorchRuntime, hosted_stages
from executor.training import train
from schedir.compiler import compile_program
from schedir.errors import ArgumentError
from schedir.schedules.registry import build_program
from tests.executor.in_torch.torch_ranks import CASES, SAMPLES, SIZE, launch, program_for
from tests.executor.small.models import batches, mlp, pipeline_of


def difference(folder: Path, case: str) -> float:
    """Train the same program with our executor; return the largest difference of a loss or a gradient, inf for missing ones."""
    program = program_for(case.split(":", maxsplit=1)[0], folder)
    run = train(compile_program(program), pipeline_of(mlp(program.num_stages)), batches(1, samples=SAMPLES))
    theirs: dict[str, Tensor] = {}
    losses: list[float] = []
    for rank in range(SIZE):
        loss, gradients = torch.load(folder / f"{case}.{rank}.pt")
        theirs |= gradients
        losses += [] if loss is None else [loss]
    if len(losses) != 1 or theirs.keys() != run.gradients.keys():
        return math.inf
    return max(abs(losses[0] - run.losses[0]), *(float((theirs[key] - run.gradients[key]).abs().max()) for key in theirs))


@pytest.mark.slow
def test_what_we_export_trains_in_torch_as_in_ours(tmp_path: Path) -> None:
    """One test, so that there is one launch however many processes run the tests."""
    launch(tmp_path, CASES, most_seconds=900)

    assert len(CASES) == 2 * 12
    assert {case: found for case in CASES if (found := difference(tmp_path, case)) > 1e-10} == {}
    for rank in range(SIZE):
        devices, stages, samples = torch.load(tmp_path / f"refused.{rank}.pt")
        assert devices == "the process group has 2 processes, but 1f1b 3 devices: start one process for each"
        assert stages == f"stages lack number {rank}, which device {rank} runs: give stages [{rank}]"
        assert samples.startswith(
            "7 samples do not split into 4 equal micro-batches, and PyTorch's pipelining has one shape for all"
        )


def test_a_device_hosts_the_stages_of_its_order() -> None:
    program = build_program("zb-v", num_devices=2, num_micro_batches=4)

    assert [hosted_stages(program, device) for device in range(2)] == [[0, 3], [1, 2]]


def test_without_processes_nothing_runs() -> None:
    program = build_program("gpipe", num_devices=2, num_micro_batches=2)

    with pytest.raises(ArgumentError, match=r"there is no process group: call torch\.distributed\.init_process_group first"):
        TorchRuntime(program, mlp(2), loss=nn.functional.mse_loss)
    with pytest.raises(ArgumentError, match="form 'csv' is no form of torch: use compute-only or compute-comms"):
        TorchRuntime(program, mlp(2), loss=nn.functional.mse_loss, form="csv")

"""Two processes with a GPU each train as threads do; GPUs are simulated, and gloo stands for NCCL. One launch."""

from functools import cache

import pytest
import torch
from torch import nn

from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.patience import Patience
from executor.workers.distributed import own_gpu as module
from executor.workers.distributed.launch import launch
from executor.workers.distributed.own_gpu import GpuRecorder, OwnGpu, own_gpu
from schedir.errors import RefusedError
from tests.distributed import trainers, work
from tests.distributed.gpus import everything
from tests.executor.cuda.streams import Machine, plain

SETUPS: list[work.Setup] = [("1f1b", 2, 3, {}), ("zb-v", 2, 4, {}), ("chimera", 2, 4, {}), ("xpipe", 2, 2, {})]
STEPS: list[trainers.Setup] = [("1f1b", 2, 2, 3, {"clip": 0.05}), ("pipedream", 2, 2, 1, {})]


@cache
def launched() -> list[tuple[list[work.Found], list[trainers.Trained], list[int]]]:
    return launch(everything, SETUPS, STEPS, num_processes=2, timeout_s=work.LAUNCH_S)


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("number", range(len(SETUPS)), ids=[setup[0] for setup in SETUPS])
def test_weights_gradients_and_losses_are_those_of_threads(number: int, process: int) -> None:
    found, expected = launched()[process][0][number], work.trained(SETUPS[number], "threads")
    assert found.losses == expected.losses
    assert work.same(found.weights, expected.weights)
    assert work.same(found.gradients, expected.gradients)


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("number", range(len(STEPS)), ids=[setup[0] for setup in STEPS])
def test_steps_and_evaluations_are_those_of_threads(number: int, process: int) -> None:
    found, expected = launched()[process][1][number], trainers.step_by_step(STEPS[number], "threads")
    assert (found.losses, found.between, found.after) == (expected.losses, expected.between, expected.after)
    assert work.same(found.weights, expected.weights)


@pytest.mark.parametrize("process", [0, 1])
def test_tensors_of_a_gpu_go_through_groups_of_two_that_are_shut_down(process: int) -> None:
    groups = launched()[process][2]
    assert set(groups) == {0, 2}
    assert groups.count(0) == groups.count(2)


def test_a_task_is_over_when_the_gpu_has_ended_it() -> None:
    machine = Machine()
    gpu = Gpu(torch.device("cuda", 0), machine)
    own = OwnGpu(gpu, Patience(1.0))
    recorder = GpuRecorder(1, own)
    made = torch.ones(2)
    with own.computing():
        recorder.begin(0)
        machine.write(made, gpu.compute)
        recorder.finish(0)
    compute = plain(gpu.compute)
    assert machine.host[compute.number] >= compute.clock[compute.number]


class OnGpu(nn.Linear):
    """Says that it lies on a GPU."""

    def parameters(self, recurse: bool = True) -> object:  # type: ignore[override]  # one that knows no more than where it is
        del recurse
        return iter([type("Parameter", (), {"is_cuda": True})()])


def test_processes_that_would_share_a_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "visible_gpus", lambda *_: (torch.device("cuda", 0),))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(RefusedError, match="2 processes share 1 of this host, and NCCL needs one for each: start fewer"):
        own_gpu([OnGpu(1, 1)], timeout_s=1.0)


def test_a_model_on_the_cpu_is_trained_there() -> None:
    assert own_gpu([nn.Linear(1, 1)], timeout_s=1.0) is None

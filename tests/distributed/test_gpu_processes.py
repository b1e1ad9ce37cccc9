"""Two processes with a GPU each train as threads do; GPUs are simulated, and gloo stands for NCCL. One launch."""

import os
from functools import cache

import pytest
import torch
from torch import nn

from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.patience import Patience
from executor.workers.distributed import own_gpu as module
from executor.workers.distributed.meeting.launch import launch
from executor.workers.distributed.meeting.start import Participant
from executor.workers.distributed.own_gpu import GpuRecorder, OwnGpu, check_apart, own_gpu
from schedir.errors import RefusedError
from tests.distributed.programs import trainers, work
from tests.distributed.programs.gpus import Known, everything
from tests.executor.cuda.streams import Machine, plain

SETUPS: list[work.Setup] = [("1f1b", 2, 3, {}), ("zb-v", 2, 4, {}), ("chimera", 2, 4, {}), ("xpipe", 2, 2, {})]
STEPS: list[trainers.Setup] = [("1f1b", 2, 2, 3, {"clip": 0.05}), ("pipedream", 2, 2, 1, {})]


@cache
def launched() -> list[Known]:
    return launch(everything, SETUPS, STEPS, num_processes=2, timeout_s=work.LAUNCH_S)


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("number", range(len(SETUPS)), ids=[setup[0] for setup in SETUPS])
def test_weights_gradients_and_losses_are_those_of_threads(number: int, process: int) -> None:
    found, expected = launched()[process].found[number], work.trained(SETUPS[number], "threads")
    assert found.losses == expected.losses
    assert work.same(found.weights, expected.weights)
    assert work.same(found.gradients, expected.gradients)


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("number", range(len(STEPS)), ids=[setup[0] for setup in STEPS])
def test_steps_and_evaluations_are_those_of_threads(number: int, process: int) -> None:
    found, expected = launched()[process].steps[number], trainers.step_by_step(STEPS[number], "threads")
    assert (found.losses, found.between, found.after) == (expected.losses, expected.between, expected.after)
    assert work.same(found.weights, expected.weights)


@pytest.mark.parametrize("process", [0, 1])
def test_tensors_of_a_gpu_go_through_groups_of_two_that_are_shut_down(process: int) -> None:
    groups = launched()[process].groups
    assert set(groups) == {0, 2}
    assert groups.count(0) == groups.count(2)


def test_a_task_is_over_when_the_gpu_has_ended_it() -> None:
    machine = Machine()
    gpu = Gpu(torch.device("cuda", 0), machine)
    own = OwnGpu(gpu, Patience(60.0))
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


def own_number(monkeypatch: pytest.MonkeyPatch, *, visible: int, **variables: str) -> int | None:
    """Return the number of the card that a process takes of those that it sees, under some variables."""
    for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"WORLD_SIZE": "8", "MASTER_ADDR": "a", "MASTER_PORT": "1"} | variables).items():
        monkeypatch.setenv(name, value)
    machine = Machine()
    monkeypatch.setattr(module, "TorchDriver", lambda: machine)
    monkeypatch.setattr(module, "visible_gpus", lambda *_: tuple(torch.device("cuda", number) for number in range(visible)))
    monkeypatch.setenv(module.ERROR_HANDLING, "3")
    own = own_gpu([OnGpu(1, 1)], timeout_s=1.0)
    assert own is not None
    return own._gpu.device.index


def test_a_process_that_sees_one_card_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As SLURM starts them: each process has its own card, and no other is visible to it."""
    assert own_number(monkeypatch, visible=1, RANK="3", LOCAL_RANK="3", LOCAL_WORLD_SIZE="4") == 0
    assert own_number(monkeypatch, visible=1, RANK="5") == 0


def test_a_process_that_sees_all_cards_of_its_host_takes_that_of_its_number_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_number(monkeypatch, visible=4, RANK="6", LOCAL_RANK="2", LOCAL_WORLD_SIZE="4") == 2


def test_without_a_number_on_its_host_processes_are_dealt_out_to_hosts_of_equally_many_cards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two hosts of four cards each: processes 0 to 3 on one, 4 to 7 on the other."""
    assert [own_number(monkeypatch, visible=4, RANK=str(number)) for number in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_nccl_only_reports_errors_unless_somebody_wants_it_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    own_number(monkeypatch, visible=1, RANK="0")
    assert os.environ[module.ERROR_HANDLING] == "3"
    monkeypatch.delenv(module.ERROR_HANDLING)
    own_gpu([OnGpu(1, 1)], timeout_s=1.0)
    assert os.environ[module.ERROR_HANDLING] == "0"


def members(*cards: str) -> list[Participant]:
    return [Participant(number, "a", 1, "", "", card) for number, card in enumerate(cards)]


def test_two_processes_on_one_card_are_named() -> None:
    check_apart(members("GPU-1", "GPU-2", "GPU-3"))
    check_apart(members("", "", ""))
    with pytest.raises(
        RefusedError, match=r"^process 0 \(host a, device 0\) and process 2 \(host a, device 2\) would both compute on"
    ):
        check_apart(members("GPU-1", "GPU-2", "GPU-1"))


@pytest.mark.parametrize("process", [0, 1])
def test_processes_that_would_share_a_card_are_refused_in_all_of_them(process: int) -> None:
    assert "would both compute on the GPU GPU-1, and NCCL does not connect a GPU with itself" in launched()[process].sharing


@pytest.mark.parametrize("process", [0, 1])
def test_all_connections_of_nccl_are_made_before_the_first_task(process: int) -> None:
    assert launched()[process].made_late == []


def test_a_model_on_the_cpu_is_trained_there() -> None:
    assert own_gpu([nn.Linear(1, 1)], timeout_s=1.0) is None

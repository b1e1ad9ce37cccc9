"""What workers a name stands for, and what is said of a model that lies elsewhere."""

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from executor.workers.choice import WorkersKind, choose_workers, machines_workers
from schedir.errors import ArgumentError, SchedirWarning


def stages_on(*devices: str) -> Any:
    """Stages with a parameter each, as far as anybody looks."""
    return [SimpleNamespace(parameters=lambda device=device: [SimpleNamespace(device=torch.device(device))]) for device in devices]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)


@pytest.mark.parametrize(
    ("devices", "chosen"),
    [
        (("cpu", "cpu"), WorkersKind.THREADS),
        (("cpu", "cuda:1"), WorkersKind.CUDA),
        ((), WorkersKind.THREADS),
    ],
)
def test_auto_follows_the_model(devices: tuple[str, ...], chosen: WorkersKind) -> None:
    assert choose_workers("auto", stages_on(*devices)) is chosen


def test_auto_follows_processes_that_were_started_together(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert choose_workers("auto", stages_on("cpu")) is WorkersKind.DISTRIBUTED
    assert machines_workers() == "auto"


def test_a_command_takes_gpus_where_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, chosen in ((True, "cuda"), (False, "auto")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert machines_workers() == chosen


def test_an_unknown_kind_is_refused_with_all_that_there_are() -> None:
    with pytest.raises(ArgumentError, match="'tpu' is unknown: use auto or distributed or threads or cuda or cuda-partitions"):
        choose_workers("tpu", stages_on("cpu"))


def test_a_model_that_leaves_its_gpu_is_told() -> None:
    with pytest.warns(SchedirWarning, match="the model is on cuda:0, but workers 'threads' compute on the CPU: it is moved there"):
        choose_workers("threads", stages_on("cuda:0"))


@pytest.mark.parametrize(
    ("name", "device"), [("threads", "cpu"), ("cuda", "cuda:0"), ("cuda", "cpu"), ("auto", "cuda:0"), ("distributed", "cuda:0")]
)
def test_nothing_is_said_where_the_model_goes_as_asked(name: str, device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choose_workers(name, stages_on(device))

"""GPUs that are simulated."""

from __future__ import annotations

import pytest
import torch

from executor.workers.cuda import start
from tests.executor.cuda.streams import Machine


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return installed(monkeypatch, 2)


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return installed(monkeypatch, 1)


def installed(monkeypatch: pytest.MonkeyPatch, count: int) -> Machine:
    machine = Machine()
    monkeypatch.setattr(start, "TorchDriver", lambda: machine)
    monkeypatch.setattr(start, "visible_gpus", lambda *_: tuple(torch.device("cuda", number) for number in range(count)))
    return machine

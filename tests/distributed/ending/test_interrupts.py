"""Ctrl-C and SIGTERM while a process looks for the others: the command ends at once, in one line that says for whom it waited."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch lists no names

from executor.workers.distributed.meeting.launch import HOST
from tests.distributed.programs.work import LAUNCH_S
from tests.repository import ROOT

pytestmark = pytest.mark.slow
RECIPE = """
import torch
from torch import nn
from executor import Recipe


def tiny():
    return Recipe(
        stages=[nn.Linear(4, 4), nn.Linear(4, 4)],
        loss=nn.functional.mse_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        data=lambda seed: [(torch.ones(4, 4), torch.ones(4, 4))],
    )
"""
SIGNALS = pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """Yield a socket on which nobody answers."""
    with socket.create_server((HOST, 0)) as made:
        made.settimeout(LAUNCH_S)
        yield made


def started(folder: Path, port: int) -> subprocess.Popen[str]:
    """Start process 1 of 2, whose store is at a port."""
    (folder / "made.py").write_text(RECIPE, encoding="utf-8")
    words = ["train", "1f1b", "--model", "made.py:tiny", "--micro-batches", "2"]
    places = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": HOST, "MASTER_PORT": str(port)}
    return subprocess.Popen(
        [sys.executable, "-m", "schedir", *words],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ.get("PATH", "")} | places,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


@SIGNALS
def test_while_the_store_does_not_answer(tmp_path: Path, listening: socket.socket, sent: signal.Signals) -> None:
    """As where process 0 is stopped: the connection is made, and then nothing comes."""
    port = listening.getsockname()[1]
    with started(tmp_path, port) as process:
        connection, _ = listening.accept()
        with connection:
            process.send_signal(sent)
            _, said = process.communicate(timeout=LAUNCH_S)

    line = f"error: interrupted while process 1 waited for the store at {HOST}:{port}, which process 0 keeps\n"
    assert (process.returncode, said) == (1, line)


@SIGNALS
def test_while_a_process_has_not_come(tmp_path: Path, listening: socket.socket, sent: signal.Signals) -> None:
    port = listening.getsockname()[1]
    store = TCPStore(HOST, port, is_master=True, wait_for_workers=False, master_listen_fd=os.dup(listening.fileno()))
    with started(tmp_path, port) as process:
        store.wait(["schedir/1/hello/1"], timedelta(seconds=LAUNCH_S))
        process.send_signal(sent)
        _, said = process.communicate(timeout=LAUNCH_S)

    line = "error: interrupted while process 1 waited at the start of the run for process 0 of 2\n"
    assert (process.returncode, said) == (1, line)

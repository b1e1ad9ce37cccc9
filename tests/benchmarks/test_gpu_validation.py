"""The benchmark for a real GPU, run on a simulated one with models that are small."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu_validation
from benchmarks.validation.measure import measure
from executor.recipe.ready_made import conv_net, mlp
from tests.executor.cuda.conftest import installed

MODELS = {
    "mlp": lambda: mlp(num_layers=8, width=8, mini_batch_size=16),
    "convolutions": lambda: conv_net(num_blocks=4, channels=4, size=4, mini_batch_size=16),
}
COMMAND = ["gpu_validation", "--rounds", "1", "--mini-batches", "2"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, 1)
    monkeypatch.setattr(gpu_validation, "visible_gpus", lambda *_: (torch.device("cuda", 0),))
    monkeypatch.setattr(gpu_validation, "MODELS", MODELS)
    monkeypatch.setattr(gpu_validation, "CHOICES", (("gpipe", 4, "never"), ("xpipe", 4, "never")))
    gpu_validation._recipe.cache_clear()


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", [*COMMAND, *arguments])
    with pytest.raises(SystemExit) as ended:
        gpu_validation.main()
    return int(ended.value.code or 0)


@pytest.mark.usefixtures("small")
def test_all_is_measured_and_kept_and_nothing_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    assert run(monkeypatch, "--out", str(tmp_path), "--only", "mlp") == 0
    assert sorted(path.name for path in tmp_path.glob("*.npz")) == ["mlp-gpipe-m4-never.npz", "mlp-xpipe-m4-never.npz"]
    said = capsys.readouterr()
    assert "| mlp xpipe | 4 | never |" in said.out
    assert "Goals: mean at most 2%" in said.out
    assert "2/2 mlp-xpipe-m4-never" in said.err
    assert run(monkeypatch, "--out", str(tmp_path), "--only", "mlp") == 0
    assert "0 to measure" in capsys.readouterr().err
    assert run(monkeypatch, "--out", str(tmp_path), "--from-spans") == 0
    assert "| mlp xpipe | 4 | never |" in capsys.readouterr().out


@pytest.mark.usefixtures("small")
def test_a_second_command_goes_on_where_time_was_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    """Of nine minutes the first has taken 500 s, so there is no time for a second."""
    seconds = iter([0.0, 0.0, 500.0])
    with monkeypatch.context() as patch:
        patch.setattr(gpu_validation, "monotonic", lambda: next(seconds))
        assert run(patch, "--out", str(tmp_path)) == 0
    assert "500 s: no time for 3 more; the same command measures them" in capsys.readouterr().err
    assert [path.name for path in tmp_path.glob("*.npz")] == ["mlp-gpipe-m4-never.npz"]


@pytest.mark.usefixtures("small")
def test_what_fails_is_told_and_stops_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    def failing(configuration: Any, *given: Any, **size: Any) -> Any:
        if configuration.model == "mlp":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return measure(configuration, *given, **size)

    monkeypatch.setattr(gpu_validation, "measure", failing)
    assert run(monkeypatch, "--out", str(tmp_path), "--only", "gpipe") == 1
    assert "error: mlp-gpipe-m4-never: CUDA out of memory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.glob("*.npz")] == ["convolutions-gpipe-m4-never.npz"]


def test_any_beginning_tells_of_all_models() -> None:
    found = gpu_validation.configurations("")
    assert [one.model for one in found[:3]] == list(gpu_validation.MODELS)
    assert len({one.name for one in found}) == len(found) == 30


def test_without_a_gpu_there_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert run(monkeypatch, "--out", str(tmp_path)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: workers 'cuda' need up to 2 GPUs, 0 are visible")
    assert said.err.count("\n") == 1

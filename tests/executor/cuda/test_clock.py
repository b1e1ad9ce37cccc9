from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from executor.workers.cuda.clock import CudaRecorder, Mark
from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.patience import Patience
from schedir.errors import RunError
from tests.executor.cuda.streams import Machine


class At:
    """An event at a time of its GPU's own clock, in milliseconds."""

    def __init__(self, time_ms: float) -> None:
        self.time_ms = time_ms

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: Any) -> float:
        return float(end_event.time_ms - self.time_ms)


class Never:
    def query(self) -> bool:
        return False


def test_two_marks_give_offset_and_drift_of_a_gpus_clock() -> None:
    """GPU 0 counts true milliseconds from 5; GPU 1 runs 1 % fast, from 700. Both are marked at 1 s and 3 s of the host's clock."""
    machine = Machine()
    gpus = [Gpu(torch.device("cuda", number), machine) for number in range(2)]
    recorder = CudaRecorder(gpus, [0, 1])
    second = 1_000_000_000
    recorder._first = [Mark(At(5.0), second - 1000, second + 1000), Mark(At(700.0), second - 3000, second + 3000)]
    recorder._last = [Mark(At(2005.0), 3 * second - 500, 3 * second + 500), Mark(At(2720.0), 3 * second - 500, 3 * second + 500)]
    for task, (gpu, begin, end) in enumerate([(0, 505.0, 1005.0), (1, 700.0 + 1010.0, 700.0 + 1515.0)]):
        pair = recorder._pair(task, gpus[gpu])
        pair.begin, pair.end, pair.recorded = At(begin), At(end), True
    start, end = recorder.spans()
    assert start == pytest.approx([0.0, 0.5])
    assert end == pytest.approx([0.5, 1.0])
    assert recorder.bound_s == pytest.approx(1e-6 + 3e-6)


def test_what_was_not_recorded_in_this_pass_has_no_time() -> None:
    machine = Machine()
    gpu = Gpu(torch.device("cuda", 0), machine)
    recorder = CudaRecorder([gpu], [0, 0])
    patience = Patience(1.0)
    for tasks in ((0, 1), (1,)):
        recorder.reset()
        recorder.mark_first(patience)
        for task in tasks:
            recorder.begin(task)
            recorder.finish(task)
        recorder.mark_last(patience)
    start, end = recorder.spans()
    assert np.isnan([start[0], end[0]]).all()
    assert start[1] == 0.0
    assert recorder.bound_s == 0.0


def test_a_gpu_that_hangs_is_named() -> None:
    with pytest.raises(RunError, match=r"waited 0\.01 s for the send stream of cuda:1: raise timeout"):
        Patience(0.01).await_event(Never(), "the send stream of cuda:1")  # type: ignore[arg-type]  # needs no more than that

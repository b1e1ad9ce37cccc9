from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from executor.run.clock import UNRECORDED
from executor.workers.clocks import Offset
from executor.workers.cuda import clock, marks
from executor.workers.cuda.clock import CudaRecorder
from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.marks import Mark
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
    recorder = CudaRecorder(gpus, 2, Patience(60.0))
    second = 1_000_000_000
    first = [Mark(At(5.0), Offset(0, second, 1000)), Mark(At(700.0), Offset(0, second, 3000))]
    last = [Mark(At(2005.0), Offset(0, 3 * second, 500)), Mark(At(2720.0), Offset(0, 3 * second, 500))]
    recorder.note_marks(first)
    for task, (gpu, begin, end) in enumerate([(0, 505.0, 1005.0), (1, 700.0 + 1010.0, 700.0 + 1515.0)]):
        pair = recorder._pair(task, gpus[gpu])
        pair.begin, pair.end, pair.recorded = At(begin), At(end), True
    recorder.note_marks(last)
    assert recorder.times()[0].tolist() == [1_500_000_000, 2_000_000_000]
    starts, ends = recorder.spans()
    assert starts == pytest.approx([0.0, 0.5])
    assert ends == pytest.approx([0.5, 1.0])


def test_tasks_on_both_sides_of_a_mark_that_is_off_keep_their_order() -> None:
    """One ends at 1010 ms of the GPU's clock, the next begins there and is recorded behind a mark that is 30 us early."""
    machine = Machine()
    gpu = Gpu(torch.device("cuda", 0), machine)
    recorder = CudaRecorder([gpu], 2, Patience(60.0))
    second, early = 1_000_000_000, 30_000
    recorder.note_marks([Mark(At(0.0), Offset(0, second, 1000))])
    pairs = [recorder._pair(0, gpu)]
    recorder.note_marks([Mark(At(1000.0), Offset(0, 2 * second - early, 40_000))])
    pairs.append(recorder._pair(1, gpu))
    recorder.note_marks([Mark(At(2000.0), Offset(0, 3 * second, 1000))])
    for pair, begin, end in zip(pairs, (990.0, 1010.0), (1010.0, 1020.0), strict=True):
        pair.begin, pair.end, pair.recorded = At(begin), At(end), True
    (_, first_end), (next_start, next_end) = recorder.times_of(0), recorder.times_of(1)
    assert first_end == next_start < next_end


class Steps:
    """The host's clock and a GPU's in steps: each look at the host's is a step, and so is each event."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return 1000 * self.count


def test_a_mark_bounds_the_offset_by_all_its_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host reads 1000 and 2000 ns, 3000 and 4000, …; the GPU came to its events 300, 2600, 4300, … ns behind 1000.

    So the offset is between 1000 and 2000, less 0; between 3000 and 4000, less 2300 (700 … 1700); 5000 … 6000, less 4000
    (1000 … 2000); the rest like the first: between 1000 and 1700.
    """
    events = iter([At(time * 1e-6) for time in (1300, 3600, 5300, 7300, 9300, 11300, 13300)])
    machine = Machine()
    gpu = Gpu(torch.device("cuda", 0), machine)
    monkeypatch.setattr(machine, "event", lambda **_: next(events))
    monkeypatch.setattr(gpu.clock, "record_event", lambda _: None)
    monkeypatch.setattr(marks, "perf_counter_ns", Steps())
    found = marks.mark(gpu, Patience(60.0)).offset
    assert (found.offset, found.bound) == (1350, 350)


def test_spans_of_two_gpus_may_be_off_by_the_bounds_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = {0: 1000.0, 1: 3000.0, 2: 500.0}
    gpus = [Gpu(torch.device("cuda", number), Machine()) for number in bounds]
    monkeypatch.setattr(clock, "mark", lambda gpu, _: Mark(At(0.0), Offset(0, 0, bounds[gpu.device.index])))
    recorder = CudaRecorder(gpus, 1, Patience(60.0))
    recorder.align()
    assert recorder.bound_s == pytest.approx(1e-6 + 3e-6)


def test_what_was_not_recorded_in_this_pass_has_no_time() -> None:
    gpu = Gpu(torch.device("cuda", 0), Machine())
    recorder = CudaRecorder([gpu], 2, Patience(60.0))
    recorder.enter(gpu)
    for tasks in ((0, 1), (1,)):
        recorder.reset()
        recorder.align()
        for task in tasks:
            recorder.begin(task)
            recorder.finish(task)
    Patience(60.0).await_event(gpu.compute.record_event(), "the compute stream")
    recorder.align()
    start, end = recorder.spans()
    assert np.isnan([start[0], end[0]]).all()
    assert start[1] == 0.0
    assert recorder.bound_s == 0.0


def test_a_task_that_the_gpu_has_not_ended_has_no_time_yet() -> None:
    gpu = Gpu(torch.device("cuda", 0), Machine())
    recorder = CudaRecorder([gpu], 1, Patience(60.0))
    recorder.align()
    recorder.enter(gpu)
    recorder.begin(0)
    recorder.finish(0)
    assert recorder.times_of(0) == (UNRECORDED, UNRECORDED)  # the simulated event is done at the second look
    assert UNRECORDED not in recorder.times_of(0)


def test_times_are_kept_for_the_newest_tasks_of_an_endless_row() -> None:
    gpu = Gpu(torch.device("cuda", 0), Machine())
    recorder = CudaRecorder([gpu], 2, Patience(60.0))
    recorder.align()
    recorder.enter(gpu)
    for task in (0, 1, 2, -1):
        recorder.begin(task)
        recorder.finish(task)
    for _ in range(2):
        found = [recorder.times_of(task) for task in range(3)]
    assert found[0] == (UNRECORDED, UNRECORDED)
    assert found[1] < found[2]


def test_a_gpu_that_hangs_is_named() -> None:
    with pytest.raises(RunError, match=r"waited 0\.01 s for the send stream of cuda:1: raise timeout"):
        Patience(0.01).await_event(Never(), "the send stream of cuda:1")  # type: ignore[arg-type]  # needs no more than that

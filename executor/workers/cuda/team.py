"""One process with a GPU for every device of the graph."""

from __future__ import annotations

from collections.abc import Sequence

from executor.run.clock import Recorder
from executor.workers.base import Workers
from executor.workers.cuda.clock import CudaRecorder
from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.patience import Patience
from executor.workers.cuda.workers import CudaWorkers
from executor.workers.team import OneProcess, PassTimes, ReadTimes
from schedir.ir.graph import TaskGraph


class CudaTeam(OneProcess):
    """All devices are GPUs of this process, or shares of one."""

    def __init__(self, gpus: Sequence[Gpu], *, timeout_s: float) -> None:
        super().__init__(timeout_s=timeout_s)
        self._gpus = tuple(gpus)
        self._workers: CudaWorkers | None = None
        """Once they are asked for."""

    def recorder(self, size: int, *, endless: bool) -> Recorder:  # noqa: ARG002 - one signature for all
        """Return what notes events."""
        return CudaRecorder(self._gpus, size, Patience(self.timeout_s))

    def workers(self, graph: TaskGraph, recorder: Recorder, *, endless: bool) -> Workers:  # noqa: ARG002 - one signature for all
        """Return one thread per GPU."""
        assert isinstance(recorder, CudaRecorder), "GPUs are timed by events"
        self._workers = CudaWorkers(graph, self._gpus, recorder=recorder, timeout_s=self.timeout_s)
        return self._workers

    def begin(self) -> None:
        """Begin to watch the GPUs' memory."""
        assert self._workers is not None, "a team begins behind its workers"
        self._workers.reset_peaks()

    def taken(self, read: ReadTimes) -> PassTimes:
        """Return the times as they are, and which GPUs took part, the peaks of their memory, and how far their clocks hold."""
        assert self._workers is not None, "whoever has times had workers"
        recorder = self._workers.recorder
        if self._workers.is_open:
            recorder.align()
        peaks = self._workers.peaks()
        gpus = [{"gpu": gpu.driver.name(gpu.device)} | peak for gpu, peak in zip(self._gpus, peaks, strict=True)]
        return PassTimes(*read(), {"workers": "cuda", "clock": recorder.bound_s, "gpus": gpus})

    def close(self) -> None:
        """Leave the memory to whoever trains next; called in peace only, since a GPU that hangs would keep the caller waiting."""
        self._gpus[0].driver.give_back()

    def failed(self, error: BaseException) -> BaseException:
        """Return the error; let go of the GPUs if no training has begun on them, for nobody else does then."""
        if self._workers is None:
            for gpu in self._gpus:
                gpu.close()
        elif not self._workers.has_begun:
            self._workers.close()
        return error

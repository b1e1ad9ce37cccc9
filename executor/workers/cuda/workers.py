"""The workers themselves: a thread per GPU enqueues a whole pass, then the host waits once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from executor.home import Home
from executor.workers.base import ExchangePlan
from executor.workers.cuda.clock import CudaRecorder
from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.patience import Patience
from executor.workers.cuda.ports import PeerChannel, PeerReduction
from executor.workers.threads import ThreadWorkers
from schedir.errors import ArgumentError
from schedir.ir.graph import TaskGraph


class CudaWorkers(ThreadWorkers):
    """One GPU per device of the graph."""

    recorder: CudaRecorder

    def __init__(self, graph: TaskGraph, gpus: Sequence[Gpu], *, recorder: CudaRecorder, timeout_s: float) -> None:
        """`gpus` has the GPU of every device of the graph, each a GPU, or a share of one, of its own."""
        if len(gpus) != graph.program.num_devices:
            raise ArgumentError(
                f"the graph has {graph.program.num_devices} devices for {len(gpus)} GPUs: let its devices take turns first"
            )
        self._graph, self._gpus = graph, tuple(gpus)
        self._patience = Patience(timeout_s)
        super().__init__(graph.program.num_devices, recorder, timeout_s=timeout_s)

    def home(self, device: int) -> Home:
        """Return a GPU's memory; what others send lies in slots, which are used again."""
        gpu = self._gpus[device]
        return Home(gpu.driver.memory(gpu.device), lends=True)

    def channel(self, task: int, name: str) -> PeerChannel:
        """Return the port of a transfer."""
        lane = self._graph.lanes[int(self._graph.lane[task])]
        ends = (self._gpus[lane.device], self._gpus[lane.peer])
        return PeerChannel(self.wait_for, name, task=task, ends=ends, recorder=self.recorder)

    def exchange(self, plan: ExchangePlan) -> PeerReduction:
        """Return the ports of a reduction."""
        return PeerReduction(self.wait_for, plan, gpus=self._gpus, recorder=self.recorder)

    @contextmanager
    def surroundings(self, device: int) -> Iterator[None]:
        """Compute on the GPU's compute stream, and differentiate in this very thread, so that both are enqueued in order."""
        gpu = self._gpus[device]
        with gpu.driver.current(gpu.compute), torch.autograd.set_multithreading_enabled(False):
            yield

    def peaks(self) -> list[dict[str, int]]:
        """Return the most bytes of every GPU that were allocated and reserved in the last pass."""
        found = (gpu.driver.peaks(gpu.device) for gpu in self._gpus)
        return [{"allocated_bytes": allocated, "reserved_bytes": reserved} for allocated, reserved in found]

    def run(self, work: Sequence[Callable[[], None]]) -> None:
        """Enqueue one callable per GPU, then wait for all GPUs; raise the first error, or RunError naming who did not end."""
        for gpu in self._gpus:
            gpu.driver.reset_peaks(gpu.device)
            self._patience.await_event(gpu.driver.default_stream(gpu.device).record_event(), f"the default stream of {gpu}")
        self.recorder.mark_first(self._patience)
        super().run(work)
        for gpu in self._gpus:
            for stream, name in ((gpu.compute, "compute"), (gpu.send, "send"), (gpu.receive, "receive")):
                self._patience.await_event(stream.record_event(), f"the {name} stream of {gpu}")
            gpu.let_go()
        self.recorder.mark_last(self._patience)

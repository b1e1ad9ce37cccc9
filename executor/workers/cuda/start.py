"""Which GPUs run a graph: one per device; fewer, whose devices take turns; or shares of one GPU's multiprocessors."""

from __future__ import annotations

from executor.plan.steps import steps_of
from executor.workers.cuda.driver import TorchDriver, visible_gpus
from executor.workers.cuda.gpu import Gpu
from executor.workers.cuda.partitions import split_sms
from schedir.compiler import compile_with
from schedir.ir.graph import TaskGraph
from schedir.lowering.sharing import share_devices


def graph_for(graph: TaskGraph, kind: str, *, stepwise: bool = False) -> TaskGraph:
    """Return the graph that workers of one kind can run on this machine; raise RefusedError where there is no GPU."""
    num_gpus = len(visible_gpus(kind, graph.program.num_devices))
    return on_fewer(graph, num_gpus, stepwise=stepwise) if kind == "cuda" else graph


def gpus_for(graph: TaskGraph, kind: str) -> list[Gpu]:
    """Return the GPU of each device of a graph that can run on this machine.

    Raises RefusedError where there is no GPU, or it cannot be divided.
    """
    num_devices = graph.program.num_devices
    devices = visible_gpus(kind, num_devices)
    if kind == "cuda-partitions":
        shares = split_sms(devices[0], num_devices)
        try:
            return [Gpu(devices[0], share) for share in shares]
        except BaseException:
            # torch ends no share that it did not make
            for share in shares:
                share.close()
            raise
    driver = TorchDriver()
    return [Gpu(device, driver) for device in devices[:num_devices]]


def on_fewer(graph: TaskGraph, num_gpus: int, *, stepwise: bool = False) -> TaskGraph:
    """Return the graph for at most so many GPUs: devices that share one take turns, as `share_devices` says.

    `stepwise`: nothing that needs a mini-batch comes before what the mini-batches before it are enough for.
    """
    if num_gpus >= graph.program.num_devices:
        return graph
    # another program, so everything that was lowered from the old one (transfers, who stands where) is made anew
    return compile_with(share_devices(graph, num_gpus, first=steps_of(graph) if stepwise else None), graph.options)

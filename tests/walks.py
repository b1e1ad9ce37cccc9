"""Plain walks over the lanes of a graph, one task after the other: what the passes' arrays are held against."""

from dataclasses import replace

from schedir.ir.action import Direction, Kind
from schedir.ir.graph import Task, TaskGraph


def lane(graph: TaskGraph, device: int) -> list[Task]:
    """Return the tasks of a device in order."""
    return [graph.task(index) for index in graph.lane_range(device)]


def lanes(graph: TaskGraph) -> list[list[Task]]:
    return [lane(graph, device) for device in range(graph.program.num_devices)]


def halves(graph: TaskGraph, device: int) -> list[Task]:
    """Return the tasks of a device with overlapped pairs taken apart: a forward, then a backward, of the same number."""
    backward = {task: k for k, task in enumerate(graph.pairs.task.tolist())}
    found = []
    for task in lane(graph, device):
        if task.kind is not Kind.OVERLAPPED:
            found.append(task)
            continue
        k, pairs = backward[task.index], graph.pairs
        j = int(pairs.micro_batch[k])
        found.append(replace(task, kind=Kind.FORWARD))
        found.append(
            replace(
                task,
                kind=Kind(pairs.kind[k]),
                stage=int(pairs.stage[k]),
                micro_batch=j,
                mini_batch=j // graph.program.num_micro_batches,
                version=int(pairs.version[k]),
                horizon=int(pairs.horizon[k]),
                direction=Direction.BACKWARD,
                predicted_by=int(pairs.predicted_by[k]),
            )
        )
    return found

"""The programs that profiling runs: a schedule whose every stage is taken apart into the parts that are to be timed.

    1f1b, device 1 with stage 1 of parts 2 and 3            the same, taken apart
    1F0 1B0 1F1 1B1                                          2F0 3F0 3B0 2B0 2F1 3F1 3B1 2B1

    1f1b of 4 stages, one per device                         the same on 2 devices, stages 0 and 2 on device 0
    0F0 0F1 0F2 0F3 0B0 …                                    0F0 0F1 0F2 2F0 0F3 2F1 …
    2F0 2F1 2B0 …

The executor then runs and times them as it does in training: the same calls on the same threads, all devices at once, so
that what they do to each other's caches and cores is in the durations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import thread_time_ns

import numpy as np

from executor.model.pipeline import Pipeline
from executor.profiling.gaps import dispatch_gap
from executor.profiling.options import ProfileOptions
from executor.profiling.samples import Rehearsal
from executor.recipe.recipe import MiniBatch
from executor.run.clock import Recorder
from executor.training import Session
from executor.workers.choice import WorkersKind, fitted, make_team
from schedir.compiler import compile_program
from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.program import Program
from schedir.lowering.sharing import merge_devices


class CpuRecorder(Recorder):
    """Also records how long the thread computed in each task, to tell which were preempted."""

    def __init__(self, num_tasks: int) -> None:
        super().__init__(num_tasks)
        self._cpu = [0] * num_tasks

    def begin(self, task: int) -> None:
        """Record that a task starts now."""
        self._cpu[task] = thread_time_ns()
        super().begin(task)

    def finish(self, task: int) -> None:
        """Record that a task ends now."""
        super().finish(task)
        self._cpu[task] = thread_time_ns() - self._cpu[task]

    def cpu_seconds(self) -> np.typing.NDArray[np.float64]:
        """Return the CPU seconds of all tasks that one thread began and finished."""
        return np.array(self._cpu, np.float64) * 1e-9


def rehearse(
    program: Program,
    pipeline: Pipeline,
    mini_batches: Sequence[MiniBatch],
    *,
    recompute: Sequence[str],
    options: ProfileOptions,
) -> Rehearsal:
    """Train the pipeline as the program says, and return how long every task took.

    `options` say what trains it, and how long a device is waited for. On GPUs nobody takes time away from a task, so its CPU
    seconds are its wall time.
    """
    kind = WorkersKind(options.workers)
    own = fitted(compile_program(program, recompute=recompute, skips=pipeline.skips, ties=pipeline.ties), kind)
    recorder = CpuRecorder(own.num_tasks) if kind is WorkersKind.THREADS else None
    team = make_team(kind, own, pipeline, seed=0, timeout_s=options.timeout)
    try:
        session = Session(own, pipeline, seed=0, team=team, recorder=recorder)
    except BaseException as error:
        team.failed(error)
        raise
    try:
        timeline = session.train(mini_batches).timeline
    finally:
        session.close()
    compute = slice(0, own.num_compute_tasks)
    wall = timeline.end[compute] - timeline.start[compute]
    return Rehearsal(
        graph=own,
        wall=wall,
        cpu=wall if recorder is None else recorder.cpu_seconds()[compute],
        warm_up=options.warm_up,
        dispatch_gap_s=dispatch_gap(timeline, options.warm_up),
    )


def first_hosts(program: Program) -> tuple[int, ...]:
    """Return for every stage the device that its lowest micro-batch runs on, devices without such a stage left out of the count.

    Stages with several copies (replicas, two directions) are rehearsed on the first of them.
    """
    forward = np.flatnonzero(np.isin(program.kind, (Kind.FORWARD, Kind.OVERLAPPED)))
    in_order = forward[np.lexsort((program.micro_batch[forward], program.stage[forward]))]
    lowest = in_order[np.searchsorted(program.stage[in_order], np.arange(program.num_stages))]
    return tuple(np.unique(program.device_of_entry()[lowest], return_inverse=True)[1].tolist())


def placed(program: Program, devices: Sequence[int]) -> Program:
    """Return a program of one stage per device with stage s on `devices[s]`, so that as many threads run as there are devices."""
    if len(set(devices)) == len(devices):
        return program
    return merge_devices(compile_program(program), devices)


def take_apart(program: Program, parts_per_stage: Sequence[int]) -> Program:
    """Return the program with stage s replaced by `parts_per_stage[s]` stages on the same device, one behind the other."""
    first = [sum(parts_per_stage[:stage]) for stage in range(len(parts_per_stage))]
    parts = [range(low, low + count) for low, count in zip(first, parts_per_stage, strict=True)]
    return Program.from_orders(
        program.name,
        [[one for entry in order for one in _one_by_one(entry, parts)] for order in program.orders()],
        num_stages=sum(parts_per_stage),
        num_micro_batches=program.num_micro_batches,
        num_mini_batches=program.num_mini_batches,
        weights=program.weights,
    )


def split_backwards(program: Program) -> Program:
    """Return the program with every backward replaced by its two halves, one directly behind the other."""
    return Program.from_orders(
        program.name,
        [[half for entry in order for half in _halves(entry)] for order in program.orders()],
        num_stages=program.num_stages,
        num_micro_batches=program.num_micro_batches,
        num_mini_batches=program.num_mini_batches,
        weights=program.weights,
    )


def _one_by_one(entry: Entry, parts: Sequence[range]) -> Iterator[Action]:
    assert isinstance(entry, Action), "rehearsed schedules overlap nothing"
    own = parts[entry.stage]
    for part in own if entry.kind is Kind.FORWARD else reversed(own):
        yield Action(part, entry.kind, entry.micro_batch)


def _halves(entry: Entry) -> Iterator[Entry]:
    if isinstance(entry, Overlapped) or entry.kind is not Kind.BACKWARD:
        yield entry
    else:
        yield Action(entry.stage, Kind.INPUT_GRAD, entry.micro_batch)
        yield Action(entry.stage, Kind.WEIGHT_GRAD, entry.micro_batch)

"""One process per device: they meet, connect, train, put their results together, and end together, in peace or not."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from executor.model.pipeline import Pipeline
from executor.run.clock import Recorder
from executor.workers.base import Workers
from executor.workers.distributed import start
from executor.workers.distributed.causes import cause_of, error_of, same_mistake
from executor.workers.distributed.clocks import SAME_CLOCK, AlignedClock, Offset, estimate
from executor.workers.distributed.environment import place
from executor.workers.distributed.mesh import Mesh
from executor.workers.distributed.results import Whole, own_part, put_together, take_over, tensor_checksum
from executor.workers.distributed.state import give_state, take_state
from executor.workers.distributed.workers import DistributedWorkers
from executor.workers.team import OnHost, Results, computing_with
from executor.workers.threads import ThreadWorkers
from schedir.errors import ArgumentError
from schedir.ir.graph import TaskGraph


class ProcessTeam(OnHost):
    """This process and all others that were started with it; a context, since they must end together."""

    def __init__(self, graph: TaskGraph, pipeline: Pipeline, *, seed: int, timeout_s: float) -> None:
        """Raise ArgumentError if the graph does not fit the number of processes."""
        self._place, self._timeout_s = place(), timeout_s
        devices = graph.program.num_devices
        if devices != self._place.count:
            raise ArgumentError(
                f"the program has {devices} devices, but {self._place.count} processes were started: start one process per device "
                f"(torchrun --nproc-per-node {devices}), or build the program for {self._place.count} devices"
            )
        self._setting = _setting(graph, pipeline, seed)
        self.mesh: Mesh
        """All connections; there once the processes have met."""
        self._before = self._behind = SAME_CLOCK
        self._whole: Whole | None = None

    def __enter__(self) -> Self:
        """Meet the other processes; raise RunError if one does not come, ArgumentError if one would train something else."""
        run = start.own_run()
        members = start.meet(run, self._setting, timeout_s=self._timeout_s)
        self.mesh = Mesh(run, members, timeout_s=self._timeout_s)
        try:
            self.mesh.watch.start()
            _check_settings(members)
            self.mesh.open()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the others must hear of it
            raise self.failed(error) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End in peace, or tell all processes why not and raise the first cause."""
        if error is None:
            try:
                self.mesh.close()
            except BaseException as late:  # noqa: BLE001 - so here
                raise self.failed(late) from None
            return
        shown = self.failed(error)
        if shown is not error:
            raise shown from None

    def workers(self, graph: TaskGraph, recorder: Recorder) -> Workers:
        """Return one thread for this process's device, and lanes to the others."""
        return DistributedWorkers(graph, recorder, mesh=self.mesh, threads=self.threads(recorder))

    def threads(self, recorder: Recorder) -> ThreadWorkers:
        """Return the one thread that computes."""
        enter = computing_with(int(os.environ.get("OMP_NUM_THREADS", "1")))
        return ThreadWorkers(1, recorder, timeout_s=self._timeout_s, enter=enter, first_device=self._place.number)

    def begin_pass(self) -> None:
        """Wait until all processes have their ports, and compare the clocks."""
        control = self.mesh.control
        control.gather("start of a pass", None)
        control.broadcast(None)
        self._before = self.compare_clocks()

    def complete(self, results: Results) -> None:
        """Give every process the times, losses and reads of all."""
        self.mesh.flush()
        self._behind = self.compare_clocks()
        clock = AlignedClock(self._before, self._behind)
        parts = self.mesh.control.gather("end of a pass", own_part(self._place.number, results, clock))
        whole: Whole = self.mesh.control.broadcast(put_together(results.graph, parts) if parts else None)
        take_over(whole, results)
        self._whole, self._before = whole, self._behind

    def finish(self, graph: TaskGraph, pipeline: Pipeline, gradients: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Give every process the newest state of all stages; return all gradients."""
        own = give_state(graph, pipeline, number=self._place.number), dict(gradients)
        parts = self.mesh.control.gather("end of the data", own)
        states, found = self.mesh.control.broadcast(_merged(parts) if parts else None)
        take_state(graph, pipeline, states, number=self._place.number)
        return dict(found)

    def meta(self) -> dict[str, Any]:
        """Return who took part, and how far the clocks can be trusted."""
        assert self._whole is not None
        return self.describe_clocks(self._whole.clocks, self._whole.delays)

    def describe_clocks(self, clocks: Sequence[AlignedClock], delays: Sequence[int] | None) -> dict[str, Any]:
        """Return who took part, and how far the clocks can be trusted."""
        processes = [
            {
                "process": member.number,
                "host": member.host,
                "pid": member.pid,
                "offset_s": clock.offset_s,
                "drift": clock.drift,
                "bound_s": clock.bound_s,
                "delay_s": (delays or [0] * len(clocks))[member.number] * 1e-9,
            }
            for member, clock in zip(self.mesh.members, clocks, strict=True)
        ]
        bound = max(clock.bound_s for clock in clocks)
        return {"workers": "distributed", "clock": bound, "processes": processes, "causal": delays is not None}

    def compare_clocks(self) -> Offset:
        """Return this clock's offset from that of process 0; nothing is measured where both are the same."""
        members = self.mesh.members
        if members[self._place.number].clock == members[0].clock:
            return SAME_CLOCK
        return estimate(self.mesh.control.round_trips())

    def failed(self, error: BaseException) -> BaseException:
        """Agree with the others on the first cause, end all connections, and return what this process raises."""
        mesh, number = self.mesh, self._place.number
        own = cause_of(error, number, str(mesh.members[number]), waited_for=mesh.watch.position.waits_for)
        cause = mesh.watch.cause or mesh.watch.report(own)
        mesh.break_off()
        if cause.process == number and cause.message == own.message:
            if own.waited_for >= 0:
                error.add_note(cause.text)  # it says what the others were at
            return error
        if not isinstance(error, Exception) or same_mistake(error, cause):
            return error
        return error_of(cause)


def _merged(parts: list[tuple[dict[int, Any], dict[str, Tensor]]]) -> tuple[dict[int, Any], dict[str, Tensor]]:
    states = {stage: state for own, _ in parts for stage, state in own.items()}
    return states, {key: gradient for _, gradients in parts for key, gradient in gradients.items()}


def _setting(graph: TaskGraph, pipeline: Pipeline, seed: int) -> str:
    """Return everything that must be the same in all processes."""
    digest = hashlib.sha256()
    for column in (graph.kind, graph.stage, graph.micro_batch, graph.device, graph.version, graph.horizon, graph.edge_source):
        digest.update(column.tobytes())
    found: dict[str, object] = {"a task graph": digest.hexdigest(), "a seed": seed, "a number of stages": len(pipeline.stages)}
    for number, stage in enumerate(pipeline.stages):
        total = 0
        for tensor in stage.state_dict().values():
            total = tensor_checksum(tensor, total)
        found[f"weights of stage {number}"] = total
    return json.dumps(found)


def _check_settings(members: tuple[start.Participant, ...]) -> None:
    first = json.loads(members[0].setting)
    for member in members[1:]:
        own = json.loads(member.setting)
        other = next((name for name in first if own.get(name) != first[name]), None)
        if other is not None:
            raise ArgumentError(
                f"process {member.number} has {other} that process 0 does not have: build the same in every process (weights: call "
                "torch.manual_seed before the model is made, or load one checkpoint)"
            )

"""What the tasks of a graph do when a pipeline is trained: each is a method of the stage that stands on its device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from executor.home import HOST, Home
from executor.model.pipeline import Pipeline
from executor.model.places import Places
from executor.model.skips import stage_skips
from executor.model.stage_copy import StageCopy
from executor.plan.actions import BACKWARDS, PlannedAction
from executor.plan.reductions import PlannedReduction
from executor.run.runner import Body
from executor.run.ties import TiedCopies
from executor.stage.explain import explaining
from executor.stage.feed import Supply
from executor.stage.forward_writes import ForwardWrites, refusals
from executor.stage.gradients import mean_over_members
from executor.stage.probe import probe_stages
from executor.stage.reach import Reach, Trained
from executor.stage.stage import StageRuntime
from executor.stage.weights import StageWeights
from executor.workers.base import Workers
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph

NOWHERE = -1
"""Stands for the device of a stage that another process trains."""


class TrainingCrew:
    """What the tasks of some devices do when a pipeline is trained."""

    def __init__(self, graph: TaskGraph, pipeline: Pipeline, feed: Supply, *, workers: Workers) -> None:
        """Make the stages of the workers' devices, each in its device's memory."""
        self.graph, self.workers = graph, workers
        self._pipeline, self._feed = pipeline, feed
        self._device = graph.device.tolist()
        self._ties = TiedCopies(graph, pipeline, workers.devices)
        self._predicted = set(graph.stage[graph.kind == Kind.PREDICT].tolist())
        # before any stage is made, which puts private parameters in the places of others
        self._trained = Trained(pipeline.stages)
        self._places: dict[StageCopy, Places] = {}
        """Where every copy was before."""
        self._stages = {
            (device, stage): self._make_stage(stage, replica, home=workers.home(device), device=device)
            for stage, hosts in enumerate(graph.stage_devices())
            for replica, device in enumerate(hosts)
            if device in workers.devices
        }
        self._methods: dict[Kind, Callable[[StageRuntime], Body]] = {
            Kind.FORWARD: lambda stage: stage.forward,
            Kind.BACKWARD: lambda stage: stage.backward,
            Kind.INPUT_GRAD: lambda stage: stage.input_grad,
            Kind.WEIGHT_GRAD: lambda stage: stage.weight_grad,
            Kind.RECOMPUTE: lambda stage: stage.recompute,
            Kind.UPDATE: lambda stage: stage.update,
            Kind.PREDICT: lambda stage: stage.predict,
        }

    def _make_stage(self, stage: int, replica: int, *, home: Home, device: int = NOWHERE) -> StageRuntime:
        copy, feed = self._pipeline.copy(stage, replica), self._feed
        self._places.setdefault(copy, Places.of(copy.module))
        copy.train_privately()
        copy.move_to(home)
        self._ties.join(copy, stage, device)  # behind the move, which gives memory that is shared to each its own
        for tensor in (*copy.module.parameters(), *copy.module.buffers()):
            home.claim(tensor)
        predictor = copy.predictor(self._pipeline.adam_prediction if stage in self._predicted else None)
        weights = StageWeights(copy, predictor)
        is_last = stage == len(self._pipeline.stages) - 1
        runtime = StageRuntime(stage, copy, weights=weights, feed=feed, is_last=is_last, split=self._pipeline.split)
        runtime.updates.tied = self._ties.part(stage, device)
        trained, frozen = refusals(
            synchronous=self.graph.program.weights.synchronous,
            replicas=len(self.graph.stage_devices()[stage]),
            tied=any(stage in tie for tie in self._pipeline.ties),
        )
        runtime.writes = ForwardWrites(stage, copy.module, refusal=trained, refusal_of_frozen=frozen)
        self._trained.join(stage, copy)
        runtime.reach = Reach(stage, self._trained, is_last=is_last)
        runtime.skips = stage_skips(self._pipeline.skip_connections, stage)
        return runtime

    def begin(self) -> None:
        """Get all stages ready for the next pass."""
        for stage in self._stages.values():
            stage.begin()

    def probe(self, swapped: frozenset[int]) -> None:
        """Prove that the stages whose backwards read other weights than their forwards can do that."""
        # backwards, so that of several replicas the first one stays
        own = {stage: runtime for (_, stage), runtime in reversed(self._stages.items())}
        probed = swapped & own.keys()
        before = range(max(probed, default=0))
        others = {stage: self._make_stage(stage, 0, home=HOST) for stage in before if stage not in own}  # in other processes
        stages = own | others
        probe_stages([stages[stage] for stage in sorted(stages)], probed, self._feed.inputs(0))
        for runtime in others.values():
            runtime.close()

    def body(self, action: PlannedAction) -> Body:
        """Return the method of the stage that stands on the task's device."""
        return self.body_on(self._device[action.task], action)

    def body_on(self, device: int, action: PlannedAction) -> Body:
        """Return the method of the stage that stands on a device."""
        body = partial(self._methods[action.kind](self.stage_on(device, action.stage)), action)
        return explaining(body, action.stage) if action.kind in BACKWARDS else body

    def stage_on(self, device: int, stage: int) -> StageRuntime:
        """Return the copy of a stage that stands on a device."""
        return self._stages[device, stage]

    def share(self, reduction: PlannedReduction, number: int) -> Callable[[], Any]:
        """Return what takes a member's sum of gradients."""
        return self.share_on(self._device[reduction.members[number]], reduction, number)

    def share_on(self, device: int, reduction: PlannedReduction, number: int) -> Callable[[], Any]:
        """Return what takes the sum of gradients of a member on a device."""
        stage = self.stage_on(device, reduction.member_stages[number])
        # without a flush a replica has whole mini-batches, and statistics of its own
        own = stage.updates.replica_share if self.graph.program.weights.synchronous else stage.updates.sums.take
        return partial(stage.updates.tied_share if reduction.tie else own, reduction.update)

    def total(self, reduction: PlannedReduction) -> Callable[[Sequence[Any]], Any]:
        """Return what adds the members' sums, in their order."""
        return partial(mean_over_members, num_averaged=reduction.num_averaged)

    def last_gradients(self) -> Mapping[str, Tensor]:
        """Return the gradients of every stage's last update, under the keys of the whole model."""
        found: dict[str, Tensor] = {}
        for (_, number), stage in self._stages.items():
            gradients = zip(self._pipeline.keys(number), stage.updates.last_gradients, strict=True)
            found |= {key: gradient for key, gradient in gradients if gradient is not None}
        return found

    def first_not_finite(self, micro_batch: int) -> int | None:
        """Return the first stage whose output for a micro-batch under way is not finite, as far as this process can tell.

        Stages hold what they took until their backward: what is not finite there was given by the stage before.
        """
        # stage 0 took the data, which no stage has given
        taken = sorted(number for (_, number), stage in self._stages.items() if number and not stage.took_finite(micro_batch))
        return taken[0] - 1 if taken else None

    def stages(self) -> Iterator[StageRuntime]:
        """Yield all copies of all stages."""
        yield from self._stages.values()

    def close(self) -> None:
        """Give every module its own parameters back."""
        for stage in self._stages.values():
            stage.close()

    def leave(self) -> None:
        """Move every module back to where it was; the devices have ended."""
        for copy, places in self._places.items():
            places.restore(copy)
        # behind all moves: a private copy goes back into its owner's memory, which must lie where it was
        for copy in self._places:
            copy.drop_private()
        self._places.clear()

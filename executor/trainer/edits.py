"""What the caller changes in his model between two calls of his trainer: carried to every copy of it, or refused.

    at rest       caller changes anything           ── next call: replicas and tied copies take it over
    on the way    caller changes a parameter         ── its stage's next update, or whoever waits next, refuses it
                  a setting, a buffer, a frozen one  ── its stage's next task, or his own next call, refuses it

Under a flush he is always at rest here; without one from a drain to the next step. A model has one of each, a training may have
several (`executor.trainer.kept_alike`). Torch counts changes in place, so nothing is compared, or copied, unless there was one.
Processes tell each other how often each stage was changed, at rest only.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from executor.model.changes import on_the_way
from executor.stage.stage import StageRuntime
from executor.trainer.engine import Engine
from executor.trainer.kept_alike import Alike, Mark, buffers_of, parameters_of, settings_of
from schedir.errors import RefusedError


class CallerEdits:
    """Those of one training's caller."""

    def __init__(self, engine: Engine) -> None:
        """Watch what there is more than one copy of; of several processes, everything."""
        self._engine, self._pipeline = engine, engine.pipeline
        self._own: dict[int, list[StageRuntime]] = {}
        """By stage that is trained here: its copies."""
        for runtime in engine.crew.stages():
            self._own.setdefault(runtime.number, []).append(runtime)
        copies = {stage: [runtime.copy for runtime in own] for stage, own in self._own.items()}
        alone = engine.team.num_processes == 1
        settings = list(settings_of(self._pipeline, copies))
        every: list[Alike] = [*parameters_of(self._pipeline, copies), *buffers_of(self._pipeline, copies), *settings]
        self._watched = [alike for alike in every if not alone or alike.num_copies > 1]
        self._elsewhere = [each for each in settings if not engine.synchronous and self._is_elsewhere(each.stages[0])]
        """Settings of modules that nobody computes with here: what he changes of them another process does not hear."""
        self._settled = [each.marks() for each in self._elsewhere]
        self._lend_memory()
        self._at_rest = True
        self._before: list[list[Mark] | None] = []
        """By what is watched: how it was when the caller left; None if devices may be changing it."""

    def leave(self) -> None:
        """Hear that the caller leaves the trainer."""
        idle, self._at_rest = self._engine.is_idle, self._engine.is_at_rest
        if self._at_rest:
            self._note()
        # on the way devices change what this process trains; the rest of the model nobody does
        self._before = [alike.marks() if idle or self._own.keys().isdisjoint(alike.stages) else None for alike in self._watched]

    def check_left_alone(self) -> None:
        """Raise RefusedError if he has changed the model while mini-batches are on their way; some of that he may undo.

        Waits for the devices, and raises what they do, only if that is so.
        """
        engine = self._engine
        if self._at_rest:
            return
        stages, elsewhere = engine.undisturbed.values(), list(zip(self._elsewhere, self._settled, strict=True))
        if not engine.is_idle:
            if not any(each.is_set_otherwise() for each in stages) and all(each.marks() == was for each, was in elsewhere):
                return
            engine.await_steps()  # a device may have settings of its own for as long as it computes: looked at again below
        for stage in stages:
            stage.check()
        for settings, was in elsewhere:
            settings.check(was)

    def enter(self) -> None:
        """Hear that he is back: carry what he has changed to every copy; raise RefusedError where that cannot be."""
        if self._engine.is_idle and not self._at_rest:
            self._engine.check_untouched()
        counts = [0] * len(self._pipeline.stages)
        for alike, before in zip(self._watched, self._before, strict=True):
            if before is None or (now := alike.marks()) == before:
                continue
            changed = [number for number, pair in enumerate(zip(before, now, strict=True)) if pair[0] != pair[1]]
            with torch.no_grad():
                self._carry(alike, changed)
            for stage in alike.stages:
                counts[stage] += max(1, alike.num_changes(before, now))
        if self._at_rest:
            self._note()
        self._engine.team.note_edits(counts)

    def _note(self) -> None:
        """Take what parameters and settings are now for training's own; a flush lets nobody in while devices compute."""
        self._settled = [each.marks() for each in self._elsewhere]
        if not self._engine.synchronous:
            for runtime in self._engine.crew.stages():
                runtime.weights.note()

    def _carry(self, alike: Alike, changed: Sequence[int]) -> None:
        """Let all copies have what the changed ones have."""
        if not self._at_rest:
            raise on_the_way(f"{alike.label} was changed")
        self._check_known_here(alike)
        versions = {runtime.weights.newest.version for stage in alike.stages for runtime in self._own.get(stage, ())}
        if len(versions) > 1:
            raise RefusedError(
                f"{alike.label} was changed when replicas of its stage have had {sorted(versions)} updates: call drain() first"
            )
        if not all(alike.agree(changed[0], other) for other in changed[1:]):
            raise RefusedError(f"{alike.label} was changed in different ways in two of its places: make the same change in all")
        for other in set(range(alike.num_copies)).difference(changed):
            alike.take_over(changed[0], other)

    def _check_known_here(self, alike: Alike) -> None:
        """Raise RefusedError if the caller cannot have seen its newest values, which another process has."""
        apart = any(self._trains_replicas_only(stage) for stage in alike.stages) and not alike.shows_all()
        # before the first step all processes have the same
        if apart and self._engine.stream.num_given:
            raise RefusedError(
                f"{alike.label} was changed in place, but several processes train replicas of its stage, each with values of its "
                "own: load a checkpoint instead, or close this trainer and make a new one"
            )

    def _is_elsewhere(self, stage: int) -> bool:
        """Tell whether nobody computes here with the caller's own module of a stage."""
        return all(runtime.copy is not self._pipeline.copy(stage, 0) for runtime in self._own.get(stage, ()))

    def _trains_replicas_only(self, stage: int) -> bool:
        """Tell whether a stage is trained here, but the caller's own module of it in another process."""
        return stage in self._own and self._is_elsewhere(stage)

    def _lend_memory(self) -> None:
        """Let the caller's own module have the memory of a replica that is trained here in its stead: so it is always the newest.

        Under a flush only, where updates are made in place.
        """
        for stage, own in self._own.items():
            if not self._engine.synchronous or not self._trains_replicas_only(stage):
                continue
            pairs = zip(self._pipeline.copy(stage, 0).pairs, own[0].copy.pairs, strict=True)
            for (original, _), (trained, _) in pairs:
                if original.device == trained.device:
                    original.data = trained.data

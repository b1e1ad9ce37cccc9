"""Train on as many mini-batches as there are, one `step` after the other: the surface of the executor.

    trainer = Trainer(stages, schedule="xpipe", num_micro_batches=4, loss=…, optimizer=…)
    for inputs, targets in loader:
        step = trainer.step(inputs, targets)
    trainer.drain()

Under a flush a step is whole when it returns. Without one, steps overlap: `step` returns as soon as no more mini-batches are on
their way than the schedule has under way at once, and what it gives is filled in when the devices are so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from executor.checkpoint.checkpoint import Checkpoint, CheckpointMoment, load_checkpoint, save_checkpoint
from executor.model.admission import check_timeout
from executor.model.data import LossReduction, LossWeight, cut
from executor.model.norm_ways import NormWay
from executor.model.pipeline import Loss, Pipeline
from executor.model.predictors import AdamPrediction
from executor.trainer.clipping import Clip
from executor.trainer.engine import Engine
from executor.trainer.evaluation import MetricFunction, evaluate
from executor.trainer.loss_scaling import LossScaling, check_scaling
from executor.trainer.losses import OnNan
from executor.trainer.program_source import ScheduleChoice
from executor.trainer.step_result import Outcome, Step
from executor.trainer.timeline import timeline_of
from executor.trainer.updates import UpdateRules
from executor.workers.choice import choose_workers, fitted
from schedir.errors import ArgumentError, RefusedError, RunError
from schedir.ir.expect import expect, expect_path
from schedir.ir.program import Program
from schedir.timeline.timeline import Timeline

PATIENCE_S = 1.0
"""How long a training that has failed or is interrupted may take to end."""


class Trainer:
    """Trains the stages of one model by one schedule. Use it from one thread; close it, or use it in a `with` block."""

    def __init__(  # noqa: PLR0913 - one keyword for each part of a training
        self,
        stages: nn.Sequential | Sequence[nn.Module],
        *,
        schedule: str | Program = "1f1b",
        num_micro_batches: int | None = None,
        loss: Loss,
        optimizer: Callable[[list[nn.Parameter]], Optimizer],
        num_devices: int | None = None,
        stages_per_device: int | None = None,
        recompute: str = "never",
        recompute_start: str = "early",
        lr_scheduler: Callable[[Optimizer], LRScheduler] | None = None,
        clip: Clip | float | None = None,
        autocast: torch.dtype | None = None,
        loss_scaling: LossScaling | float | str | None = None,
        on_nan: str = OnNan.WARN,
        batch_norm: str = NormWay.PLAIN,
        validation: Iterable[object] | None = None,
        metrics: Mapping[str, MetricFunction] | None = None,
        loss_reduction: str = LossReduction.MEAN,
        loss_weight: LossWeight | None = None,
        adam_prediction: str = AdamPrediction.BIAS_CORRECTED,
        workers: str = "auto",
        seed: int = 0,
        timeout: float = 600.0,
        **options: Any,
    ) -> None:
        """Take a model in stages, and how it is trained.

        `stages`: a list of modules, what `schedir.split` gives, or an nn.Sequential whose layers are the stages. `schedule`: a
        name, a file, a function or a program; `options` are its own (`horizon`, `replicas`, …). `num_devices` follows from the
        stages if not given. `lr_scheduler(optimizer)` is stepped after every update of a stage, so update v is made with the
        rate of step v on all of them. `clip`: a norm over the model, or a `Clip`. `autocast`: a type to compute in, as bfloat16;
        the caller's own autocast is taken over if it is not given. `loss_scaling`: dynamic, a number or LossScaling, for float16;
        an update whose gradients are not finite is left out, on all stages. `on_nan`: warn (once), raise or continue, where a loss
        is not finite. `batch_norm`: plain or deferred, see `Pipeline`. `validation` and `metrics` are for `evaluate`. `seed` is for
        what stages draw. Nobody waits longer than `timeout` seconds for a device. Raises ArgumentError, RefusedError.
        """
        expect(seed, Integral, "seed", remedy="give an integer")
        check_timeout(timeout)
        self._pipeline = Pipeline(
            stages,
            loss=loss,
            optimizer=optimizer,
            scheduler=lr_scheduler,
            loss_reduction=loss_reduction,
            loss_weight=loss_weight,
            adam_prediction=adam_prediction,
            batch_norm=batch_norm,
        )
        kind = choose_workers(workers, self._pipeline.stages)
        self.workers = kind.value
        """Kind of workers: threads, distributed, cuda or cuda-partitions."""
        self.seed = int(seed)
        self._validation, self._metrics = validation, dict(metrics or {})
        reaction = OnNan.of(on_nan)
        rules = UpdateRules(Clip.of(clip), LossScaling.of(loss_scaling))
        endless = ScheduleChoice(
            schedule=schedule,
            num_stages=len(self._pipeline.stages),
            num_micro_batches=num_micro_batches,
            num_devices=num_devices,
            stages_per_device=stages_per_device,
            recompute=recompute,
            recompute_start=recompute_start,
            options=options,
            ties=self._pipeline.ties,
            skips=self._pipeline.skips,
            fit=partial(fitted, kind=kind, stepwise=True),
        ).endless(updates_last=rules.together(synchronous=True))
        self.program = endless.table.graph.program
        """The schedule, with as many mini-batches as were needed to see how it goes on."""
        _check_clip(rules.clip, self.program, self._pipeline.ties)
        check_scaling(rules.scaling, self.program, self._pipeline.stages)
        with torch.inference_mode(mode=False):
            self._engine = Engine(
                endless,
                self._pipeline,
                seed=self.seed,
                autocast=autocast,
                rules=rules,
                kind=kind,
                timeout_s=timeout,
            )
        self._engine.feed.guard.on_nan, self._engine.feed.guard.last_stage = reaction, len(self._pipeline.stages) - 1
        self._on_way: dict[int, Step] = {}
        self._finished: list[int] = []
        self._samples = 0
        self._drained = False
        self._open = True

    @property
    def mini_batch(self) -> int:
        """Number of the next mini-batch: how many were trained on."""
        return self._engine.mini_batch

    @property
    def synchronous(self) -> bool:
        """The schedule flushes: every mini-batch is trained on the weights that sequential training would have."""
        return self._engine.synchronous

    @property
    def num_overlapping(self) -> int:
        """How many mini-batches may still be on their way when `step` returns; 0 under a flush."""
        return self._engine.depth

    @property
    def loss_scale(self) -> float | None:
        """What the loss of the next mini-batch is multiplied with before its backwards; None without loss scaling."""
        return self._engine.updates.loss_scale

    @property
    def skipped_updates(self) -> tuple[int, ...]:
        """Mini-batches whose update was left out, since gradients were not finite.

        Without a flush stages decide one by one, and a process knows of its own.
        """
        return self._engine.updates.skipped

    def step(self, inputs: object, targets: object) -> Step:
        """Train on one mini-batch, of any size from one sample per micro-batch on; raise the first error of any device.

        Without a flush the mini-batch may still be on its way afterwards; see `Step`.
        """
        engine = self._engine
        self._check_open()
        parts = cut((inputs, targets), self.program.num_micro_batches, self._pipeline.loss_scales)
        with self._closed_on_error():
            step = self._on_way[self.mini_batch] = Step(self.mini_batch, self._await)
            self._drained = False
            engine.step(parts)
            self._samples = sum(part.samples for part in parts)
            engine.await_steps(but=engine.depth)
            self._settle()
        return step

    def drain(self) -> tuple[int, ...]:
        """Make the updates that are not made yet; return the mini-batches that they are of.

        Afterwards all stages have had all updates and the modules their newest weights; the next step starts an empty pipeline.
        Under a flush there is nothing to do.
        """
        self._check_open()
        with self._closed_on_error():
            self._engine.await_steps()
            self._settle()
            self._finished.clear()
            if self._engine.num_steps:
                self._engine.drain()
                self._engine.await_steps()
                self._settle()
                self._engine.end_stretch()
                self._drained = True
        finished, self._finished = tuple(self._finished), []
        return finished

    def evaluate(self, data: Iterable[object] | None = None) -> dict[str, float]:
        """Return the mean loss, and the metrics, over pairs (input, target); without an argument over `validation`.

        Every stage computes with its newest true weights, in eval mode, without gradients. Training goes on as if nothing had been:
        random numbers, buffers, modes and what is on its way stay. Without a flush the last stages are some updates ahead of the
        first, as the schedule has it: drain before if all should have had the same.
        """
        self._check_open()
        data = self._validation if data is None else data
        if data is None:
            raise ArgumentError("there is nothing to evaluate on: give evaluate data, or the trainer validation=")
        with self._closed_on_error(but=(ArgumentError, RefusedError)):
            self._engine.await_steps()
            self._settle()
            return evaluate(self._engine, data, self._metrics)

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of the newest true weights, and of the buffers, under the keys of the model that was not cut."""
        if self._open:
            with self._closed_on_error():
                self._engine.await_steps()
                self._settle()
                self._engine.show_newest()
                self._engine.team.share_state()
        return {key: value.detach().clone() for key, value in self._pipeline.state_dict().items()}

    def save(self, folder: str | Path, *, data: Mapping[str, Any] | None = None, plan: str | None = None) -> Path:
        """Drain, and write a checkpoint into `folder`; return its own folder, `mini-batch-000300` behind 300 mini-batches.

        `data` is given back by `load`: plain values that say where in the data training stands; `plan` is the plan file that it
        follows, noted only. Raises RunError where it cannot be written; checkpoints before it stay, and training may go on.
        Of several processes the first writes, and all return when it has.
        """
        expect_path(folder, "folder", "give a folder for checkpoints")
        self.drain()
        moment = CheckpointMoment(self.program, self.mini_batch, self.seed, plan, data or {}, self._engine.updates.plain())
        with self._closed_on_error(but=(RunError,)):
            self._engine.team.share_state()
            return self._engine.team.by_first("checkpoint", lambda: save_checkpoint(Path(folder), self._pipeline, moment))

    def load(self, path: str | Path) -> Checkpoint:
        """Go on from a checkpoint, or from the newest complete one in a folder, be it of another cut and schedule.

        Mini-batches are counted on from there, stages draw by its seed, and the process has its random numbers: the same data make
        the training that was saved, bit for bit on the CPU. Raises FormatError in one line, with nothing changed, for what is no
        checkpoint of this model and optimizer.
        """
        expect_path(path, "path", "give a checkpoint, or a folder of them")
        self.drain()
        with torch.inference_mode(mode=False):
            found = load_checkpoint(Path(path), self._pipeline)
            self._engine.go_on_from(found.mini_batch, found.seed)
            self._engine.updates.load(found.loss_scale)
        self._check_same(found.mini_batch)
        self.seed = found.seed
        return found

    @property
    def timeline(self) -> Timeline:
        """Measured spans of the newest mini-batches since the pipeline was empty; see `executor.trainer.timeline`."""
        meta = {"workers": self.workers, "seed": self.seed, "mini_batch_size": self._samples}
        return timeline_of(self._engine, drained=self._drained, meta=meta)

    def close(self) -> None:
        """End the training as it stands: what was begun is done, nothing more; modules have their newest weights."""
        if self._open:
            self._open = False
            self._engine.close(patience_s=self._engine.timeout_s)
            self._engine.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is None:
            self.close()
        elif (shown := self._abandon(error)) is not error:
            raise shown from None

    def _abandon(self, error: BaseException) -> BaseException:
        """Close because of an error; return what is raised: if another process failed first, what that had."""
        if not self._open:
            return error
        self._open = False
        shown = self._engine.team.failed(error)
        self._engine.close(patience_s=PATIENCE_S)
        self._engine.crew.leave()
        return shown

    @contextmanager
    def _closed_on_error(self, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """Close the trainer if anything is raised: nobody knows then what has been trained."""
        try:
            with torch.inference_mode(mode=False):  # whatever the caller is in: nothing made in that mode can be trained
                yield
        except but:
            raise
        except BaseException as error:
            if (shown := self._abandon(error)) is error:
                raise
            raise shown from None

    def _check_same(self, mini_batch: int) -> None:
        """Raise ArgumentError if another process goes on from another mini-batch."""
        with self._closed_on_error():
            loaded = self._engine.team.of_all("load", mini_batch)
            if len(set(loaded)) > 1:
                raise ArgumentError(f"the processes loaded checkpoints behind {loaded} mini-batches: give all of them the same one")

    def _check_open(self) -> None:
        if not self._open:
            raise RunError("this training has ended: make a new Trainer, from a checkpoint if there is one")

    def _await(self, mini_batch: int) -> None:
        """Wait until a step is done."""
        self._check_open()
        with self._closed_on_error():
            self._engine.await_steps(but=self.mini_batch - 1 - mini_batch)
            self._settle()

    def _settle(self) -> None:
        """Fill in the steps that are done."""
        for settled, finished in self._engine.settle():
            self._finished += finished
            if settled is not None:
                self._on_way.pop(settled.mini_batch).settle(Outcome(settled.loss, settled.seconds, tuple(self._finished)))
                self._finished.clear()


def _check_clip(clip: Clip | None, program: Program, ties: tuple[tuple[int, ...], ...]) -> None:
    if clip is not None and not clip.over_model and ties:
        raise RefusedError(
            f"stages {', '.join(map(str, ties[0]))} hold the same weights, which clipping by the norm of each stage would change "
            'differently: give clip=Clip(…, per="model")'
        )
    if clip is not None and clip.over_model and not program.weights.synchronous:
        raise RefusedError(
            f"{program.name} never has the gradients of all stages at one moment, so they have no common norm to clip by: give "
            'clip=Clip(…, per="stage"), or use a schedule that flushes'
        )

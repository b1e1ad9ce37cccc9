"""Train on as many mini-batches as there are, one `step` after the other: the surface of the executor.

    trainer = Trainer(stages, schedule="xpipe", num_micro_batches=4, loss=…, optimizer=…)
    for inputs, targets in loader:
        step = trainer.step(inputs, targets)
    trainer.drain()

Under a flush a step is whole when it returns. Without one, steps overlap: `step` returns as soon as no more mini-batches are on
their way than the schedule has under way at once, and what it gives is filled in when the devices are so far.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from weakref import WeakMethod

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from executor.checkpoint.checkpoint import Checkpoint, CheckpointMoment
from executor.model.admission import check_timeout
from executor.model.data import LossReduction, LossWeight, check_mini_batches, cut
from executor.model.norm_ways import NormWay
from executor.model.pipeline import Loss, Pipeline
from executor.model.predictors import AdamPrediction
from executor.stage.loss_guard import OnNan
from executor.trainer.assembly import assemble
from executor.trainer.conduct import Conduct
from executor.trainer.evaluating.evaluation import evaluate
from executor.trainer.evaluating.judging import MetricFunction, check_metrics
from executor.trainer.lifetime import Lifetime
from executor.trainer.on_way import OnWay
from executor.trainer.program_source import ScheduleChoice
from executor.trainer.saving import check_same, load, save
from executor.trainer.step_result import Step
from executor.trainer.timeline import timeline_of
from executor.trainer.updating.clipping import Clip
from executor.trainer.updating.loss_scaling import LossScaling
from executor.trainer.updating.update_log import UpdateFacts
from executor.trainer.updating.update_rules import UpdateRules
from executor.trainer.window import CallerWindow
from executor.workers.choice import choose_workers
from schedir.errors import ArgumentError, RefusedError, RunError
from schedir.expect import expect, expect_path, shown
from schedir.ir.program import Program
from schedir.ir.shape import is_count
from schedir.timeline.timeline import Timeline


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
        if not given, the one around the first `step` is taken over, and the others must be like it. `loss_scaling`: dynamic, a
        number or LossScaling, for float16; an update whose gradients are not finite is left out, on all stages. `on_nan`: warn
        (once), raise or continue, where a loss is not finite. `batch_norm`: plain or deferred, see `Pipeline`. `validation` and
        `metrics` are for `evaluate`. `seed` is for what stages draw. Nobody waits longer than `timeout` seconds for a
        device. Raises ArgumentError, RefusedError.
        """
        expect(seed, Integral, "seed", remedy="give an integer")
        check_timeout(timeout)
        if validation is not None:
            check_mini_batches(validation, "validation")
        self._validation, self._metrics = validation, check_metrics(metrics)
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
        choice = ScheduleChoice(
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
        )
        conduct = Conduct(
            workers=choose_workers(workers, self._pipeline.stages),
            seed=int(seed),
            autocast=autocast,
            rules=UpdateRules(Clip.of(clip), LossScaling.of(loss_scaling)),
            on_nan=OnNan.of(on_nan),
            timeout_s=timeout,
        )
        self._engine = assemble(self._pipeline, choice, conduct)
        # weakly: modules outlive trainers, and what stands in them must not keep this one alive
        self._life = Lifetime(self._engine, self, CallerWindow(self._pipeline.stages, WeakMethod(self._show_newest)))
        self._on_way = OnWay(self._engine)
        self._sizes: dict[int, int] = {}
        """Samples of the newest mini-batches, by number."""
        self._drained = False
        self.workers = conduct.workers.value
        """Kind of workers: threads, distributed, cuda or cuda-partitions."""
        self.seed = conduct.seed
        self.program = self._engine.graph.program
        """The schedule, with as many mini-batches as were needed to see how it goes on."""

    def __repr__(self) -> str:
        program = self.program
        shape = f"{program.num_stages} stages on {program.num_devices} devices ({self.workers})"
        closed = "" if self._life.is_open else ", closed"
        return f"<Trainer of {program.name}: {shape}, after {self.mini_batch} mini-batches{closed}>"

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
        self._life.check()
        self._life.check_model()
        self._engine.settle_autocast()
        # without a flush they are needed when `step` has returned, and the caller may have filled his tensors anew by then
        own = self._engine.depth > 0
        parts = cut((inputs, targets), self.program.num_micro_batches, self._pipeline.loss_scales, own=own)
        with self._life.guarded():
            step = self._on_way.add(self._await)
            self._drained = False
            self._engine.step(parts)
            self._sizes[self.mini_batch - 1] = sum(part.samples for part in parts)
            self._sizes.pop(self.mini_batch - 1 - self._engine.room.mini_batches, None)
            self._on_way.settle(but=self._engine.depth)
        return step

    def _await(self, mini_batch: int) -> None:
        """Wait until a step is done; raise RunError if the training has ended before."""
        if not self._life.is_open:
            cause = self._life.failure
            why = f"failed ({cause}): that is to be mended" if cause else "ended: call drain() before closing"
            raise RunError(f"mini-batch {mini_batch} was on its way when the training {why}")
        with self._life.guarded():
            self._on_way.settle(but=self.mini_batch - 1 - mini_batch)

    def log_updates(self) -> None:
        """Take down from the next step on what updates are made with, for `take_updates`; it reads all gradients once more."""
        self._engine.updates.begin_log(num_processes=self._engine.team.num_processes)

    def take_updates(self) -> tuple[UpdateFacts, ...]:
        """Return learning rate and gradient norm of the mini-batches whose updates are made since this was last asked, in order.

        Of several processes all must ask, at the same places, and get the same; nothing without `log_updates`.
        """
        self._life.check()
        log = self._engine.updates.log
        if log is None:
            return ()
        with self._life.guarded():
            return tuple(log.merged(self._engine.team.of_all("updates", log.take_own())))

    def drain(self) -> tuple[int, ...]:
        """Make the updates that are not made yet; return the mini-batches that they are of.

        Afterwards all stages have had all updates and the modules their newest weights; the next step starts an empty pipeline.
        Under a flush there is nothing to do.
        """
        self._life.check()
        with self._life.guarded():
            self._on_way.settle()
            self._on_way.take_finished()
            if self._engine.num_steps:
                self._engine.drain()
                self._on_way.settle()
                self._engine.end_stretch()
                self._drained = True
        return self._on_way.take_finished()

    def evaluate(self, data: Iterable[object] | None = None) -> dict[str, float]:
        """Return the mean loss, and the metrics, over pairs (input, target); without an argument over `validation`.

        Every stage computes with its newest true weights, in eval mode, without gradients. Training goes on as if nothing had been:
        random numbers, buffers, modes and what is on its way stay. Without a flush the last stages are some updates ahead of the
        first, as the schedule has it: drain before if all should have had the same. Whatever data, stages, loss or metrics raise
        is raised here, and training may go on; of several processes, where all of them raise it.
        """
        self._life.check()
        data = self._validation if data is None else data
        if data is None:
            raise ArgumentError("there is nothing to evaluate on: give evaluate data, or the trainer validation=")
        check_mini_batches(data, "data")
        # apart: what steps on their way raise ends the training, what the evaluation raises does not
        with self._life.guarded():
            self._on_way.settle()
        with self._life.guarded(but=(Exception,) if self._engine.team.num_processes == 1 else (ArgumentError, RefusedError)):
            return evaluate(self._engine, data, self._metrics)

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies of the newest true weights, and of the buffers, under the keys of the model that was not cut."""
        if not self._life.is_open:
            return self._copies()
        self._show_newest()
        with self._life.guarded():
            self._engine.team.share_state()
            return self._copies()

    def _copies(self) -> dict[str, Tensor]:
        return {key: value.detach().clone() for key, value in self._pipeline.state_dict().items()}

    def _show_newest(self) -> None:
        """Wait for the steps on their way, and let all modules have their newest weights."""
        with self._life.guarded():
            self._on_way.settle()
            self._engine.show_newest()

    def save(
        self,
        folder: str | Path,
        *,
        data: Mapping[str, Any] | None = None,
        plan: str | None = None,
        keep_last: int | None = None,
        staying: Collection[int] = (),
    ) -> Path:
        """Drain, and write a checkpoint into `folder`; return its own folder, `mini-batch-000300` after 300 mini-batches.

        `data` is given back by `load`: plain values that say where in the data training stands; `plan` is the plan file that it
        follows, noted only. `keep_last`: once the new one is whole, remove all but the newest so many; all stay if not given.
        `staying`: the checkpoints after so many mini-batches stay beside them, that of the best model, say.
        Raises RunError where it cannot be written and RefusedError for `data` that are not plain values; checkpoints before it
        stay, and training may go on.
        Of several processes the first writes, and all return when it has.
        """
        expect_path(folder, "folder", "give a folder for checkpoints")
        if keep_last is not None and not is_count(keep_last):
            raise ArgumentError(f"keep_last {shown(keep_last)} must be an integer of at least 1: leave it out to keep all")
        self.drain()
        moment = CheckpointMoment(self.program, self.mini_batch, self.seed, plan, data or {}, self._engine.updates.plain())
        with self._life.guarded(but=(RunError, RefusedError)):
            return save(self._engine, Path(folder), moment, keep_last=keep_last, staying=staying)

    def load(self, path: str | Path) -> Checkpoint:
        """Go on from a checkpoint, or from the newest complete one in a folder, be it of another cut and schedule.

        Mini-batches are counted on from there, stages draw by its seed, and the process has its random numbers: the same data make
        the training that was saved, bit for bit on the CPU. Raises FormatError in one line, with nothing changed, for what is no
        checkpoint of this model and optimizer.
        """
        expect_path(path, "path", "give a checkpoint, or a folder of them")
        self.drain()
        # inside, or what is loaded were a change of the caller's
        with self._life.guarded(but=(Exception,)):
            found = load(self._engine, Path(path))
        with self._life.guarded():
            check_same(self._engine, found)
        self.seed = found.seed
        return found

    def begin_anew(self) -> None:
        """Say before the first step that nothing is loaded; raise ArgumentError if another of several processes loads something.

        Only needed where that may differ: where each host has its own folder of checkpoints, say. All processes call it or `load`.
        """
        with self._life.guarded():
            check_same(self._engine, None)

    @property
    def timeline(self) -> Timeline:
        """Measured spans of the newest mini-batches since the pipeline was empty; see `executor.trainer.timeline`."""
        self._life.check_together()
        meta = {"workers": self.workers, "seed": self.seed}
        return timeline_of(self._engine, drained=self._drained, sizes=self._sizes, meta=meta)

    def close(self) -> None:
        """End the training as it stands: what was begun is done, nothing more; modules have their newest weights.

        Raises the first error of any device in what was begun. A second time nothing happens.
        """
        self._life.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self._life.fail(error)

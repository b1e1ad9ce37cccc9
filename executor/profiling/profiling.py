"""Measure what the stages or layers of a model cost, on this machine, as the executor runs them.

    copies ─▶ parts ──▶ memory passes (hooks on, nothing timed) ──────────────┐
                │                                                            ├─▶ TableCosts, basis measured
                └─────▶ rehearsals (hooks off): 1f1b, recomputing, split, ──┘
                        predicting, each a training run of the copies

Rehearsals run on all devices at once, since stages slow each other down. Nothing of the user's own changes: the parts are copies,
and the generators of random numbers are put back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from executor.global_random import same_random_everywhere
from executor.model.stages import Stages
from executor.profiling.footprint import Footprint, footprints
from executor.profiling.kept_for_weights import kept_for_weights
from executor.profiling.machine import machine_facts
from executor.profiling.options import ProfileOptions
from executor.profiling.parts import Part, copy_stages, part_stages, parts_of
from executor.profiling.rehearsal import placed, rehearse, split_backwards, take_apart
from executor.profiling.rehearsal_data import RehearsalData
from executor.profiling.samples import Rehearsal, noise_floor, preempted_fraction, work_times
from executor.recipe.recipe import Recipe
from executor.recipe.short_passes import left_out, pipeline_of, precision_of
from schedir.costs.model import Basis
from schedir.costs.table.meaning import Granularity, Scaling
from schedir.costs.table.pieces import PieceBytes, PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.work import WorkTime
from schedir.ir.action import Kind
from schedir.ir.program import Program
from schedir.lowering.recompute import parse_modes
from schedir.schedules.registry import build_program

Hear = Callable[[str], None]
"""Takes what is measured next: some seconds of work, which whoever waits for it wants to know of."""


def profile(recipe: Recipe, options: ProfileOptions | None = None, *, hear: Hear = lambda _: None) -> TableCosts:
    """Return the measured costs of a recipe's stages or layers, as `schedir.costs.files.costs_file.save_costs` writes them.

    `hear` is told what is measured, never while anything is timed.
    Parameters, gradients, buffers, flags, hooks and generators of random numbers are as before, also if this raises.
    Raises SchedirError for what cannot be profiled.
    """
    options = options or ProfileOptions()
    with same_random_everywhere():
        costs = Profiler(recipe, options, hear=hear).measure()
        if options.by is Granularity.STAGE:
            return costs
        whole_only = replace(options, by=Granularity.STAGE, recompute=False, predict=False, split_backward=False)
        whole = Profiler(recipe, whole_only, hear=lambda text: hear(f"whole stages: {text}"))
        ratio = seconds_of_all(costs) / seconds_of_all(whole.measure())
        return replace(costs, source={**costs.source, "layers_over_stages": ratio})


def seconds_of_all(costs: TableCosts) -> float:
    """Return the median forward plus backward of all rows together: layers should add up to their stages."""
    return sum(time.median for row in costs.rows for time in (row.forward, row.backward) if isinstance(time, WorkTime))


_OF_BASE = (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD, Kind.RECOMPUTE, Kind.UPDATE, Kind.PREDICT)
"""Kinds that the rehearsed schedule itself may have."""


class Profiler:
    """Copies of a recipe's stages, measured as often as asked: the first time they are cold, later only the rehearsals run."""

    def __init__(self, recipe: Recipe, options: ProfileOptions, *, hear: Hear = lambda _: None) -> None:
        self._recipe, self._options, self._hear = recipe, options, hear
        hear("copying the model and counting its bytes")
        stages = copy_stages(recipe.cut(options.num_stages))
        self._data = RehearsalData(recipe.data(options.seed), options.num_micro_batches, options.micro_batch_size)
        with precision_of(recipe):
            self._parts = parts_of(stages, self._data.micro_batch(), loss=recipe.loss, by=options.by)
            self._footprints = footprints(self._parts, recipe.optimizer)
            self._kept_late = kept_for_weights(self._parts) if options.split_backward else (None,) * len(self._parts)
        skips = stages.skips if isinstance(stages, Stages) else ()
        self._pipeline = pipeline_of(recipe, part_stages(self._parts, skips))
        self._stages = _numbers_by_stage(self._parts)

    def measure(self) -> TableCosts:
        """Rehearse and return the costs; the noise floor is that of this measurement."""
        options = self._options
        self._tell(f"training by {options.schedule}")
        base = self._rehearse(self._base(), options.recompute_mode)
        found = dict.fromkeys(_OF_BASE, base)
        if options.recompute and Kind.RECOMPUTE not in base.kinds:
            self._tell("recomputing")
            found[Kind.RECOMPUTE] = self._rehearse(self._base(), "always")
        if options.predict and Kind.PREDICT not in base.kinds and not self._pipeline.ties:  # which no schedule that predicts takes
            self._tell("predicting weights")
            found[Kind.PREDICT] = self._rehearse(self._program("xpipe", horizon=1))
        if options.split_backward and options.whole_backward:
            self._tell("splitting backwards")
            halves = self._rehearse(split_backwards(self._program(options.schedule)), options.recompute_mode)
            found |= {Kind.INPUT_GRAD: halves, Kind.WEIGHT_GRAD: halves}
        return TableCosts(
            rows=self._rows(found),
            granularity=options.by,
            micro_batch_size=self._data.micro_batch_size,
            scaling=Scaling.LINEAR,
            dispatch_gap_s=base.dispatch_gap_s,
            basis=Basis.MEASURED,
            source=self._source(base),
            layers_per_stage=self._layers_per_stage(),
        )

    def _tell(self, what: str) -> None:
        options = self._options
        self._hear(f"{what}: {options.repeats} mini-batches after {options.warm_up} of warm-up")

    def _base(self) -> Program:
        """Return what most kinds are measured in."""
        program = self._program(self._options.schedule)
        return program if self._options.whole_backward else split_backwards(program)

    def _program(self, schedule: str, **schedule_options: Any) -> Program:
        options = self._options
        program = build_program(
            schedule,
            num_devices=len(self._stages),
            num_micro_batches=options.num_micro_batches,
            num_mini_batches=options.warm_up + options.repeats,
            **schedule_options,
        )
        if options.devices is not None:
            program = placed(program, options.devices)
        return take_apart(program, [len(parts) for parts in self._stages])

    def _rehearse(self, program: Program, recompute: str = "never") -> Rehearsal:
        modes = zip(parse_modes(recompute, len(self._stages)), self._stages, strict=True)
        by_part = [mode for mode, parts in modes for _ in parts]
        data = self._data.mini_batches(program.num_mini_batches)
        with precision_of(self._recipe):
            found = rehearse(program, self._pipeline, data, recompute=by_part, options=self._options)
        return found.on_own_cores() if self._options.own_core else found

    def _rows(self, found: Mapping[Kind, Rehearsal]) -> tuple[PieceCosts, ...]:
        """Return the costs of every part."""
        times: dict[Kind, list[WorkTime | None]] = {
            kind: [time for parts in self._stages for time in work_times(rehearsal, kind, parts)]
            for kind, rehearsal in found.items()
        }
        rows = []
        for number, (part, held, late) in enumerate(zip(self._parts, self._footprints, self._kept_late, strict=True)):
            stated = {kind.word: column[number] for kind, column in times.items()}
            forward = stated.pop("forward")
            assert forward is not None, "every part is rehearsed forward"
            rows.append(PieceCosts(name=part.name, forward=forward, bytes=_bytes(held, late), **stated))
        return tuple(rows)

    def _layers_per_stage(self) -> tuple[int, ...] | None:
        return tuple(map(len, self._stages)) if self._options.by is Granularity.LAYER else None

    def _source(self, base: Rehearsal) -> dict[str, Any]:
        options = self._options
        return {
            "kind": Basis.MEASURED.value,
            "model": self._recipe.name,
            "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "machine": machine_facts(part.module for part in self._parts),
            "schedule": options.schedule,
            "num_micro_batches": options.num_micro_batches,
            "repeats": options.repeats,
            "warm_up": options.warm_up,
            "own_core": options.own_core,
            "workers": options.workers,
            "noise_floor_fraction": noise_floor(base, self._stages),
            "preempted_fraction": preempted_fraction(base, self._stages),
        } | ({"left_out": omitted} if (omitted := left_out(self._recipe)) else {})


def _numbers_by_stage(parts: Sequence[Part]) -> tuple[tuple[int, ...], ...]:
    """Return the numbers of every stage's parts."""
    last = max(part.stage for part in parts)
    return tuple(tuple(number for number, part in enumerate(parts) if part.stage == stage) for stage in range(last + 1))


def _bytes(held: Footprint, late: int | None) -> PieceBytes:
    stated = {name: getattr(held, name) for name in Footprint.__dataclass_fields__} | {"activations_weight_grad": late}
    return PieceBytes(**{name: None if amount is None else float(amount) for name, amount in stated.items()})

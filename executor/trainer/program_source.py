"""From what a trainer's `schedule` names to graphs: a schedule's name, a file, a function or a program, for given stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from executor.plan.endless import Endless, depth_of, period_of
from executor.plan.plan import refuse_selective
from schedir.compiler import compile_program
from schedir.errors import ArgumentError, RefusedError, SchedirError
from schedir.expect import expect
from schedir.interop.program_files import SUFFIXES, load_program, names_program_file
from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.graph import TaskGraph
from schedir.ir.program import Program
from schedir.ir.shape import check_count
from schedir.schedules.registry import build_program, find_schedule

BuildProgram = Callable[[int | None], Program]
"""Number of mini-batches (None: the schedule's own default) -> program."""
Fit = Callable[[TaskGraph], TaskGraph]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleChoice:
    """A schedule with everything that is said about it, for one model."""

    schedule: str | Program
    num_stages: int
    num_micro_batches: int | None
    num_devices: int | None = None
    stages_per_device: int | None = None
    recompute: str = "never"
    recompute_start: str = "early"
    options: Mapping[str, Any] = field(default_factory=dict)
    """The schedule's own."""
    ties: tuple[tuple[int, ...], ...] = ()
    """Stages of the model that hold the same weights."""
    skips: tuple[tuple[int, int], ...] = ()
    """Ends of the model's skip connections."""

    def endless(self, *, fit: Fit, common_update: bool = False) -> Endless:
        """Return the schedule's steps.

        `fit` makes of a graph what this machine can run: on fewer GPUs devices take turns. `common_update` lets all stages decide
        together on their updates under a flush; those that a program places itself move behind all gradients. Raises ArgumentError
        where the schedule does not fit the stages, RefusedError where it cannot be trained.
        """
        build = self._builder()
        # with as many mini-batches as it has by itself: what is asked of it is whether it flushes
        first = build(None)
        if first.weights.synchronous:
            placed = bool((first.kind == Kind.UPDATE).any())
            program = with_updates_last(first) if common_update and placed else first
            return Endless.synchronous(fit(self._compile(program, common_update=common_update)))
        if isinstance(self.schedule, Program) or self.schedule.endswith(SUFFIXES):
            raise RefusedError(
                f"{first.name} is a continuous program of {first.num_mini_batches} mini-batches, which cannot go on: name a "
                "schedule or a function, or train it with schedir.train"
            )
        graph = self._compile(first)
        return Endless.continuous(lambda size: fit(self._compile(build(size))), depth=depth_of(graph), period=period_of(graph))

    def _compile(self, program: Program, *, common_update: bool = False) -> TaskGraph:
        graph = compile_program(
            program,
            recompute=self.recompute,
            recompute_start=self.recompute_start,
            skips=self.skips,
            ties=self.ties,
            common_update=common_update,
        )
        refuse_selective(graph)
        return graph

    def _builder(self) -> BuildProgram:
        source = self.schedule
        expect(source, (str, Program), "schedule", remedy="give a schedule's name, a file, a function or a program")
        if isinstance(source, Program):
            program = source
            return lambda _: self._fitting(program)
        if names_program_file(source):
            return lambda size: self._fitting(self._load(source, size))
        if self.num_micro_batches is None:
            raise ArgumentError(f"schedule {source} needs num_micro_batches: give it")
        return self._named(source)

    def _load(self, source: str, size: int | None) -> Program:
        given: dict[str, Any] = {"num_micro_batches": self.num_micro_batches, "num_mini_batches": size}
        given |= {"num_devices": self.num_devices, "stages_per_device": self.stages_per_device}
        return load_program(source, **given, **self.options)

    def _fitting(self, program: Program) -> Program:
        if program.num_stages != self.num_stages:
            raise ArgumentError(f"{program.name} has {program.num_stages} stages, but the model {self.num_stages}: make both equal")
        if self.num_micro_batches not in {None, program.num_micro_batches}:
            raise ArgumentError(
                f"{program.name} has {program.num_micro_batches} micro-batches, but num_micro_batches is {self.num_micro_batches}: "
                "leave it out"
            )
        return program

    def _named(self, name: str) -> BuildProgram:
        """Return the builder for the number of devices on which the schedule has these stages."""
        refused: SchedirError | None = None
        for devices in self._device_counts(name):
            # as a default, since a closure would see the last number of the loop
            def build(size: int | None, devices: int = devices) -> Program:
                assert self.num_micro_batches is not None
                return build_program(
                    name,
                    num_devices=devices,
                    num_micro_batches=self.num_micro_batches,
                    num_mini_batches=size,
                    stages_per_device=self.stages_per_device,
                    **self.options,
                )

            try:
                if build(None).num_stages == self.num_stages:
                    return build
            except RefusedError as error:
                # the first number tried is the one that the schedule is meant for, so its refusal says most
                refused = refused or error
        if refused is not None:
            raise refused
        raise ArgumentError(self._misfit(name))

    def _device_counts(self, name: str) -> Iterator[int]:
        """Yield the numbers of devices to try: the one that is given, or those that may host these stages."""
        schedule = find_schedule(name)
        per_device = self.stages_per_device or schedule.default_stages(self.options)
        if self.num_devices is not None:
            yield check_count("num_devices", self.num_devices)
            return
        if self.options.get("replicas") is not None:
            yield sum(self.options["replicas"])
            return
        if self.num_stages % per_device == 0:
            yield self.num_stages // per_device
        # of two directions every device hosts two stages, and every stage stands twice: as many stages as devices
        yield self.num_stages

    def _misfit(self, name: str) -> str:
        schedule = find_schedule(name)
        per_device = self.stages_per_device or schedule.default_stages(self.options)
        devices = "" if self.num_devices is None else f"{self.num_devices} devices with "
        return (
            f"schedule {name} wants {devices}{per_device} stages per device, which {self.num_stages} stages do not make: cut the "
            "model into as many stages as it wants, or give num_devices and stages_per_device"
        )


def with_updates_last(program: Program) -> Program:
    """Return a program that flushes, with every device's updates behind all its gradients of a mini-batch.

    What needs the gradients of all stages (a norm over the model, a common skip) can then stand before the first update.
    """
    orders = [list(_updates_last(program, order)) for order in program.orders()]
    return Program.from_orders(
        program.name,
        orders,
        num_stages=program.num_stages,
        num_micro_batches=program.num_micro_batches,
        num_mini_batches=program.num_mini_batches,
        weights=program.weights,
    )


def _updates_last(program: Program, order: tuple[Entry, ...]) -> Iterator[Entry]:
    m = program.num_micro_batches
    work = [entry for entry in order if isinstance(entry, Overlapped) or entry.kind is not Kind.UPDATE]
    # of a pair either half will do: under a flush both are of one mini-batch
    firsts = [entry.forward if isinstance(entry, Overlapped) else entry for entry in work]
    stages = sorted({entry.stage for entry in firsts} | {entry.backward.stage for entry in work if isinstance(entry, Overlapped)})
    for number, (entry, first) in enumerate(zip(work, firsts, strict=True)):
        yield entry
        mini_batch = first.micro_batch // m
        if number + 1 == len(work) or firsts[number + 1].micro_batch // m != mini_batch:
            yield from (Action(stage, Kind.UPDATE, (mini_batch + 1) * m - 1) for stage in stages)

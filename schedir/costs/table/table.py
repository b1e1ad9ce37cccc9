"""Costs from a table, hand-written or measured: one row per stage, or one per layer and a cut of the layers into stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from schedir.costs.checks import check_sizes, non_negative, positive_integer, sizes_of_micro_batches
from schedir.costs.model import Basis, Bytes, UnitBytes, free_reductions
from schedir.costs.stage_seconds import durations, kinds_present, latencies
from schedir.costs.table.cuts import check_cut, layers_of_stages
from schedir.costs.table.gaps import halves_missing, refuse_gaps
from schedir.costs.table.meaning import Granularity, Scaling
from schedir.costs.table.notes import memory_notes, task_notes, transfer_notes
from schedir.costs.table.pieces import PieceCosts, as_stage
from schedir.costs.table.resolved import Resolved, resolve
from schedir.costs.table.sampling import sample_durations
from schedir.costs.table.stage_arrays import unit_bytes_of
from schedir.costs.table.transfer_bytes import transfer_bytes
from schedir.costs.work_times import WorkTimes
from schedir.errors import ArgumentError
from schedir.ir.action import COMPUTE_KINDS
from schedir.ir.arrays import Floats
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes
from schedir.ir.program import Program


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableCosts:
    """Costs row by row. Raises ArgumentError for values that break a rule, or where a row's table has no such size."""

    rows: tuple[PieceCosts, ...] = ()
    """Of stages 0, 1, … or of all layers, for micro-batches of `micro_batch_size` samples."""
    default: PieceCosts | None = None
    """Costs of every stage behind the last row; None: there are as many stages as rows."""
    granularity: Granularity = Granularity.STAGE
    """What a row is."""
    layers_per_stage: tuple[int, ...] | None = None
    """How the layers are cut into stages: see `cut`."""
    micro_batch_size: int = 1
    """Samples of a micro-batch."""
    micro_batch_sizes: tuple[int, ...] | None = None
    """Samples of each micro-batch of a mini-batch where they differ; None: all have `micro_batch_size`."""
    scaling: Scaling = Scaling.LINEAR
    """How the rows change with the size of a micro-batch."""
    transfer: float | None = None
    """Latency in seconds of a hand-over to another device, which occupies nothing; None: not stated."""
    dispatch_gap_s: float = 0.0
    """Idle seconds before every task of a device, between its being ready and its start."""
    basis: Basis = Basis.ASSUMED
    """What the numbers stand on."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """Where they come from, as plain JSON values: command, date, machine, repeats, …"""
    file: str | None = None
    """The file that they were read from."""
    _resolved: dict[object, Resolved] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Arrays that were built before, by what they depend on; `replace` begins with none, since the copy states other costs."""

    def __post_init__(self) -> None:
        if not self.rows and self.default is None:
            raise ArgumentError("no costs: give rows, or a default for every stage")
        if self.default is not None and self.granularity is Granularity.LAYER:
            raise ArgumentError("costs per layer take no default: give a row for every layer")
        if self.scaling is not Scaling.TABLE and any(row.has_tables for row in self._pieces):
            raise ArgumentError(
                f"scaling {self.scaling.value} goes with plain values, but some are tables by size: use scaling table"
            )
        object.__setattr__(self, "micro_batch_size", positive_integer("micro_batch_size", self.micro_batch_size))
        object.__setattr__(self, "dispatch_gap_s", non_negative("dispatch_gap_s", self.dispatch_gap_s))
        if self.transfer is not None:
            object.__setattr__(self, "transfer", non_negative("transfer", self.transfer))
        if self.micro_batch_sizes is not None:
            object.__setattr__(self, "micro_batch_sizes", sizes_of_micro_batches(self.micro_batch_sizes))
        if self.layers_per_stage is not None:
            if self.granularity is Granularity.STAGE:
                raise ArgumentError("layers_per_stage cuts costs per layer, but these are per stage: leave it out")
            object.__setattr__(self, "layers_per_stage", check_cut(self.layers_per_stage, len(self.rows)))

    def cut(self, layers_per_stage: Sequence[int]) -> TableCosts:
        """Return costs per layer with so many consecutive layers in each stage; `even_split` gives equal shares."""
        return replace(self, layers_per_stage=tuple(layers_per_stage))

    def resized(self, micro_batch_size: int) -> TableCosts:
        """Return the costs for micro-batches of another size; raises ArgumentError outside of a table by size."""
        micro_batch_size = positive_integer("micro_batch_size", micro_batch_size)
        if self.scaling is not Scaling.LINEAR:
            return replace(self, micro_batch_size=micro_batch_size, micro_batch_sizes=None)
        factor = micro_batch_size / self.micro_batch_size
        rows = tuple(row.scaled(factor) for row in self.rows)
        default = None if self.default is None else self.default.scaled(factor)
        return replace(self, rows=rows, default=default, micro_batch_size=micro_batch_size, micro_batch_sizes=None)

    def stages(self, num_stages: int) -> tuple[PieceCosts, ...]:
        """Return the costs of every stage, tables by size read; raises ArgumentError if the costs do not fit the number."""
        # tables by size are read first: layers whose tables have other sizes can only be added up at one of them
        rows = tuple(row.at(self.micro_batch_size) for row in self.rows)
        if self.granularity is Granularity.LAYER:
            return tuple(as_stage(rows[layers]) for layers in self._layers(num_stages))
        if len(rows) > num_stages or (self.default is None and len(rows) < num_stages):
            found = f"{len(rows)} stage{'' if len(rows) == 1 else 's'}"
            raise ArgumentError(f"{self._name} has {found}, but the schedule has {num_stages}: give one row per stage")
        if self.default is None:
            return rows
        return rows + (self.default.at(self.micro_batch_size),) * (num_stages - len(rows))

    def stage_layers(self, num_stages: int) -> tuple[tuple[str, ...], ...] | None:
        """Return the names of every stage's layers, or None for costs per stage."""
        if self.granularity is Granularity.STAGE:
            return None
        return tuple(tuple(row.name for row in self.rows[layers]) for layers in self._layers(num_stages))

    @property
    def states_transfers(self) -> bool:
        """Whether `transfer` was given."""
        return self.transfer is not None

    @property
    def has_samples(self) -> bool:
        """Whether single measurements were kept, so that `sample_times` varies."""
        return any(row.at(self.micro_batch_size).has_samples for row in self._pieces)

    def times(self, graph: TaskGraph) -> TaskTimes:
        """Return durations and latencies of all tasks, and the dispatch gap, in seconds.

        Raises ArgumentError if the costs do not fit the graph's stages or a split backward has no halves, RefusedError where
        selective recomputation is not stated.
        """
        found = self._resolve(graph)
        duration = durations(graph, found.seconds)
        if found.has_gaps:
            refuse_gaps(graph, duration, self._name, measured=self.basis is Basis.MEASURED)
        return TaskTimes(duration, latencies(graph, self.transfer), self.dispatch_gap_s)

    def work_times(self, program: Program) -> WorkTimes:
        """Return the times of a program's work before it is compiled; raises ArgumentError as `times` does."""
        # what is recomputed is decided when the program is compiled, after the schedule has chosen its order by these times
        found = self._resolve_for(program, ("never",) * program.num_stages)
        times = WorkTimes(found.seconds, np.broadcast_to(self.transfer or 0.0, program.num_stages), self.dispatch_gap_s)
        if found.has_gaps:
            seconds = times.of((program.kind, program.stage, program.micro_batch), num_micro_batches=program.num_micro_batches)
            unknown = program.stage[np.isnan(seconds)]
            if len(unknown):
                raise halves_missing(program, int(unknown[0]), self._name, measured=self.basis is Basis.MEASURED)
        return times

    def sample_times(self, graph: TaskGraph, rng: np.random.Generator, samples: int) -> Floats:
        """Return durations with every task's own draw from its samples, float64 (num_tasks, samples); see `has_samples`."""
        self.times(graph)  # for its refusals: a draw of what is not stated would be NaN
        found = self._resolve(graph)
        return sample_durations(graph, found, rng, samples=samples)

    def bytes_of_transfers(self, graph: TaskGraph) -> Bytes | None:
        """Return the bytes of every transfer: a stage's output, or going back its gradient; None if no stage states any.

        Raises ArgumentError where a stage does not state what others state.
        """
        return transfer_bytes(graph, self._resolve(graph), self._name)

    def unit_bytes(self, graph: TaskGraph) -> UnitBytes | None:
        """Return bytes per unit of memory, or None if none are stated (or not the part that selective recomputation keeps)."""
        found = self._resolve(graph)
        scale = None if found.row is None else np.array([found.scale[row] for row in found.row])
        return unit_bytes_of(found.bytes[0], np.array(found.selective), scale)

    def micro_batch_samples(self, graph: TaskGraph) -> tuple[int, ...]:
        """Return the samples of each micro-batch of a mini-batch and replica."""
        return self.micro_batch_sizes or (self.micro_batch_size,) * graph.program.num_micro_batches

    def describe(self, graph: TaskGraph) -> Mapping[str, Any]:
        """Return medians by kind and stage and what they stand on, as plain JSON values; null for kinds not in the graph."""
        found, present = self._resolve(graph), kinds_present(graph)
        layers = self.stage_layers(graph.program.num_stages)
        medians = {f"{kind.word}_s": found.medians(kind) if kind in present else None for kind in COMPUTE_KINDS}
        described: dict[str, Any] = {
            "kind": "table",
            "basis": self.basis.value,
            "file": self.file,
            "granularity": self.granularity.value,
            "micro_batch_size": self.micro_batch_size,
            "scaling": self.scaling.value,
            **medians,
            "transfer_s": self.transfer,
            "dispatch_gap_s": self.dispatch_gap_s,
        }
        extras = {"micro_batch_sizes": self.micro_batch_sizes, "layers": layers}
        return described | {key: _plain(value) for key, value in extras.items() if value is not None}

    def notes(self, graph: TaskGraph, *, has_cluster: bool = False) -> tuple[str, ...]:
        """Return what is free or left out only because it was not stated."""
        found = self._resolve(graph)
        lack_of_links = [] if has_cluster or self.states_transfers else transfer_notes(graph, self._name)
        tied_known = not np.isnan(found.bytes[0]["tied"]).all()
        lack_of_links += free_reductions(graph, has_cluster=has_cluster, tied_known=tied_known)
        return (*lack_of_links, *task_notes(graph, found, self._name), *memory_notes(found, self._name))

    @property
    def _pieces(self) -> tuple[PieceCosts, ...]:
        return self.rows if self.default is None else (*self.rows, self.default)

    def __repr__(self) -> str:
        rows = f"{len(self.rows)} {self.granularity}{'' if len(self.rows) == 1 else 's'}"
        default = "" if self.default is None else " and a default for all others"
        return f"<TableCosts {self._name}: {rows}{default}, micro-batches of {self.micro_batch_size}, {self.basis}>"

    @property
    def _name(self) -> str:
        return self.file or "the costs table"

    def _layers(self, num_stages: int) -> list[slice]:
        """Return the layers of every stage."""
        return layers_of_stages(self.layers_per_stage, num_layers=len(self.rows), num_stages=num_stages, name=self._name)

    def _resolve(self, graph: TaskGraph) -> Resolved:
        """Return the arrays for a graph, built once for each number of stages and way of recomputation."""
        return self._resolve_for(graph.program, graph.options.recompute)

    def _resolve_for(self, program: Program, modes: tuple[str, ...]) -> Resolved:
        if self.micro_batch_sizes is not None:
            check_sizes(self.micro_batch_sizes, num_micro_batches=program.num_micro_batches, program=program.name)
        # sweeps ask again and again with graphs of one shape
        key = (program.num_stages, modes)
        found = self._resolved.get(key)
        if found is None:
            found = self._resolved[key] = self._build(program.num_stages, modes)
        return found

    def _build(self, num_stages: int, modes: tuple[str, ...]) -> Resolved:
        selective = tuple(mode == "selective" for mode in modes)
        base = self.stages(num_stages)
        if self.micro_batch_sizes is None:
            return resolve([base], selective)
        #   sizes of micro-batches   8 8 5        row of the arrays   0: the costs' own size, for bytes per unit and samples
        #                            │ │ │                            1: size 5
        #   row                      2 2 1                            2: size 8
        sizes = sorted(set(self.micro_batch_sizes))
        stages = [base, *(self.resized(size).stages(num_stages) for size in sizes)]
        row = [1 + sizes.index(size) for size in self.micro_batch_sizes]
        return resolve(stages, selective, row)


def _plain(value: tuple[Any, ...]) -> list[Any]:
    return [list(entry) if isinstance(entry, tuple) else entry for entry in value]

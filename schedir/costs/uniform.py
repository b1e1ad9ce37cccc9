"""Uniform costs: the papers' figures. A forward takes 1, a backward 2, transfers take their latency and overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from schedir.costs.checks import check_length, check_sizes, per_stage, sizes_of_micro_batches
from schedir.costs.model import Basis, Bytes, UnitBytes, free_reductions
from schedir.costs.stage_seconds import NUM_KINDS, StageSeconds, durations, kinds_present, latencies, with_sizes
from schedir.costs.transfers import transfers
from schedir.costs.work_times import WorkTimes
from schedir.errors import ArgumentError, RefusedError
from schedir.ir.action import Kind
from schedir.ir.arrays import Floats
from schedir.ir.graph import TaskGraph
from schedir.ir.order.in_order import TaskTimes
from schedir.ir.program import Program
from schedir.ir.skips import NO_SKIP, skip_sources

_TIMES = ("forward", "backward", "input_grad", "weight_grad", "recompute", "update", "predict", "transfer", "overlapped")

_BYTES = ("transfer_bytes", "skip_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformCosts:
    """The same costs for every micro-batch; each time in seconds, one value or one per stage.

    Nothing given: forward 1, backward 2, its halves 1 and 1. Raises ArgumentError for anything that is no finite number of
    at least 0.
    """

    forward: float | Sequence[float] = 1.0
    """F."""
    backward: float | Sequence[float] | None = None
    """B; None: the sum of the halves, or 2."""
    input_grad: float | Sequence[float] | None = None
    """I; None: 1 if `backward` is not given either, else programs that split backward are refused."""
    weight_grad: float | Sequence[float] | None = None
    """W; goes with `input_grad`."""
    recompute: float | Sequence[float] | None = None
    """R; None: as long as `forward`."""
    update: float | Sequence[float] = 0.0
    """U."""
    predict: float | Sequence[float] = 0.0
    """P."""
    transfer: float | Sequence[float] | None = None
    """Latency of a hand-over from this stage to another device, which occupies nothing; None: 0, and the notes say so."""
    overlapped: float | Sequence[float] | None = None
    """An overlapped pair, by its forward's stage; None: as long as its two actions."""
    micro_batch_sizes: Sequence[int] | None = None
    """Samples of each micro-batch of a mini-batch; times and bytes are per sample then, except update, predict, transfer."""
    transfer_bytes: float | Sequence[float] | None = None
    """Bytes of one hand-over from this stage, forward or backward, for a cluster's bandwidths."""
    skip_bytes: float | Sequence[float] | None = None
    """Bytes of one hand-over over a skip connection that begins at this stage, and of its gradient; None: as `transfer_bytes`."""

    def __post_init__(self) -> None:
        for name in (*_TIMES, *_BYTES):
            value, unit = getattr(self, name), "bytes" if name in _BYTES else "seconds"
            object.__setattr__(self, name, None if value is None else per_stage(name, value, unit))
        if self.micro_batch_sizes is not None:
            object.__setattr__(self, "micro_batch_sizes", sizes_of_micro_batches(self.micro_batch_sizes))
        if (self.input_grad is None) != (self.weight_grad is None):
            given, missing = ("input_grad", "weight_grad") if self.weight_grad is None else ("weight_grad", "input_grad")
            raise ArgumentError(f"{given} is given without {missing}: give both halves of the backward")

    @property
    def basis(self) -> Basis:
        """Nobody measured or derived these numbers."""
        return Basis.ASSUMED

    @property
    def states_transfers(self) -> bool:
        """Whether `transfer` was given."""
        return self.transfer is not None

    def times(self, graph: TaskGraph) -> TaskTimes:
        """Return durations and latencies of all tasks, in seconds.

        Raises ArgumentError where a sequence does not fit the graph or a split backward has no halves, RefusedError for
        selective recomputation, whose cost cannot be stated here.
        """
        self._check(graph)
        duration = durations(graph, self._table(graph.program.num_stages))
        self._refuse_gaps(graph.program, duration)
        return TaskTimes(duration, latencies(graph, self.transfer))

    def work_times(self, program: Program) -> WorkTimes:
        """Return the times of a program's work before it is compiled; raises ArgumentError as `times` does."""
        self._check_program(program)
        found = WorkTimes(self._table(program.num_stages), np.broadcast_to(self.transfer or 0.0, program.num_stages))
        work = program.kind, program.stage, program.micro_batch
        self._refuse_gaps(program, found.of(work, num_micro_batches=program.num_micro_batches))
        return found

    def bytes_of_transfers(self, graph: TaskGraph) -> Bytes | None:
        """Return `transfer_bytes` for every transfer, or None if it was not given."""
        if self.transfer_bytes is None:
            return None
        self._check(graph)
        chosen = transfers(graph)
        size = np.broadcast_to(self.transfer_bytes, graph.program.num_stages).take(graph.stage[chosen]).astype(np.float64)
        if graph.options.skips:
            # a transfer's stage is its sender; over a skip connection the gradient is as large as what the first stage sent
            own = np.broadcast_to(self.transfer_bytes if self.skip_bytes is None else self.skip_bytes, graph.program.num_stages)
            source = skip_sources(graph)
            size = np.where(source == NO_SKIP, size, own[source])
        if self.micro_batch_sizes is not None:
            size *= np.array(self.micro_batch_sizes)[graph.micro_batch[chosen] % graph.program.num_micro_batches]
        return size

    def unit_bytes(self, graph: TaskGraph) -> UnitBytes | None:  # noqa: ARG002 - the protocol's parameter
        """Return None: uniform costs carry no bytes of memory."""
        return None

    def micro_batch_samples(self, graph: TaskGraph) -> tuple[int, ...] | None:
        """Return `micro_batch_sizes`."""
        self._check(graph)
        return None if self.micro_batch_sizes is None else tuple(self.micro_batch_sizes)

    def describe(self, graph: TaskGraph) -> Mapping[str, Any]:
        """Return all times as plain JSON values; those of a micro-batch's work as one value per stage."""
        num_stages, present = graph.program.num_stages, kinds_present(graph)
        rows = self._seconds(num_stages)

        # null for what the program never does: a reader must not think that it was free
        def row(kind: Kind) -> list[float] | None:
            return rows[kind].tolist() if kind in present else None

        described: dict[str, Any] = {
            "kind": "uniform",
            "basis": self.basis.value,
            "file": None,
            "forward_s": rows[Kind.FORWARD].tolist(),
            "backward_s": row(Kind.BACKWARD),
            "input_grad_s": row(Kind.INPUT_GRAD),
            "weight_grad_s": row(Kind.WEIGHT_GRAD),
            "overlapped_s": None if self.overlapped is None else row(Kind.OVERLAPPED),
            "recompute_s": row(Kind.RECOMPUTE),
            "update_s": _plain(self.update),
            "predict_s": _plain(self.predict) if Kind.PREDICT in present else None,
            "transfer_s": _plain(self.transfer or 0.0),
        }
        extras = {name: _plain(getattr(self, name)) for name in _BYTES} | {"micro_batch_sizes": _plain(self.micro_batch_sizes)}
        return described | {key: value for key, value in extras.items() if value is not None}

    def notes(self, graph: TaskGraph, *, has_cluster: bool = False) -> tuple[str, ...]:
        """Return what is free or left out only because it was not given."""
        found = []
        present = kinds_present(graph)
        if Kind.TRANSFER in present and not has_cluster and self.transfer is None:
            found.append("transfers are free: neither --transfer nor --cluster was given")
        found += free_reductions(graph, has_cluster=has_cluster)
        found.append("memory is not computed: uniform costs carry no bytes")
        return tuple(found)

    @property
    def _halves_missing(self) -> bool:
        return self.backward is not None and self.input_grad is None

    def _table(self, num_stages: int) -> StageSeconds:
        seconds = self._seconds(num_stages)
        return StageSeconds(seconds[None]) if self.micro_batch_sizes is None else with_sizes(seconds, tuple(self.micro_batch_sizes))

    def _refuse_gaps(self, program: Program, duration: Floats) -> None:
        # only a split backward without halves leaves NaN, and only where the program asks for it
        if self._halves_missing and np.isnan(duration).any():
            raise ArgumentError(
                f"{program.name} splits backward: give --input-grad and --weight-grad instead of --backward {_text(self.backward)}"
            )

    def _check(self, graph: TaskGraph) -> None:
        self._check_program(graph.program)
        if "selective" in graph.options.recompute:
            raise RefusedError(
                "recompute selective makes only part of a forward again, and uniform costs do not state that part: "
                "give --costs with recompute_selective, or use recompute always"
            )

    def _check_program(self, program: Program) -> None:
        for name in (*_TIMES, *_BYTES):
            value = getattr(self, name)
            if isinstance(value, tuple):
                check_length(name, value, num_stages=program.num_stages, program=program.name)
        if self.micro_batch_sizes is not None:
            check_sizes(tuple(self.micro_batch_sizes), num_micro_batches=program.num_micro_batches, program=program.name)

    def _seconds(self, num_stages: int) -> Floats:
        seconds = np.zeros((NUM_KINDS, num_stages))
        seconds[Kind.FORWARD] = self.forward
        # how a backward that is stated as a whole splits nobody knows: NaN, refused where a program splits it
        if self._halves_missing:
            seconds[Kind.INPUT_GRAD] = seconds[Kind.WEIGHT_GRAD] = np.nan
        else:
            seconds[Kind.INPUT_GRAD] = 1.0 if self.input_grad is None else self.input_grad
            seconds[Kind.WEIGHT_GRAD] = 1.0 if self.weight_grad is None else self.weight_grad
        halves = seconds[Kind.INPUT_GRAD] + seconds[Kind.WEIGHT_GRAD]
        seconds[Kind.BACKWARD] = halves if self.backward is None else self.backward
        seconds[Kind.OVERLAPPED] = np.nan if self.overlapped is None else self.overlapped
        seconds[Kind.RECOMPUTE] = self.forward if self.recompute is None else self.recompute
        seconds[Kind.UPDATE] = self.update
        seconds[Kind.PREDICT] = self.predict
        return seconds


def _plain(value: float | Sequence[float] | None) -> float | list[float] | None:
    """Return the value as JSON holds it."""
    return list(value) if isinstance(value, Sequence) else value


def _text(value: float | Sequence[float] | None) -> str:
    """Return the value as it stands on a command line."""
    return ",".join(f"{number:g}" for number in value) if isinstance(value, Sequence) else f"{value:g}"

"""What a graph proves, whatever the costs: versions kept, staleness, horizons, drift, live activations.

A device runs one task at a time, so what is alive on it at once follows from the order of its tasks alone. Times of a set of
weights or of an activation are numbers of compute tasks: during task i = from the end of task i - 1 to its own end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.ir.action import Direction, Kind
from schedir.ir.arrays import Ints
from schedir.ir.graph import TaskGraph
from schedir.ir.weights import Rule


@dataclass(frozen=True, slots=True)
class Facts:
    """Maxima over the compiled run: by stage over all its replicas, by device where said."""

    weight_versions: tuple[int, ...]
    """By stage: most distinct parameter sets (true or predicted) alive at once on one device, each from the end of the task
    that makes it to the end of its last reader; the current one always."""
    true_versions: tuple[int, ...]
    """By stage: the same for true sets only."""
    staleness: tuple[int, ...]
    """By stage: most updates that a read lacks, compared with sequential training; under predict counted from the true
    version that is predicted from."""
    drift: tuple[int, ...]
    """By stage: most updates between what a micro-batch's forward and its backward read (predicted updates count)."""
    horizon_forward: tuple[int, ...] | None
    """By stage: most updates that forwards are predicted over; None where nothing is predicted."""
    horizon_backward: tuple[int, ...] | None
    """By stage: the same for backwards."""
    counted_forward: tuple[int, ...] | None
    """By stage: what the policy `exact` would predict forwards over: most updates between the version read and the
    mini-batch's own update; None where nothing is predicted."""
    counted_backward: tuple[int, ...] | None
    """By stage: the same for backwards."""
    peak_live_activations: tuple[int, ...]
    """By device: most (stage, micro-batch) pairs alive at once, from the start of F to the end of B (of W where split)."""

    @property
    def consistent(self) -> bool:
        """Every backward uses weights as new as its forward's."""
        return not any(self.drift)


def facts(graph: TaskGraph) -> Facts:
    """Count a graph's facts in array operations."""
    reads = _reads(graph)
    predicts = graph.program.weights.rule is Rule.PREDICT
    forward, backward = reads.direction == Direction.FORWARD, reads.direction == Direction.BACKWARD
    stages = graph.program.num_stages
    held = _true_sets(graph, reads)
    true_versions = _most_alive(graph, held)
    return Facts(
        weight_versions=_most_alive(graph, held, _predicted_sets(graph, reads)) if predicts else true_versions,
        true_versions=true_versions,
        staleness=_most(reads.lag, reads.stage, stages),
        drift=_drift(graph, reads),
        horizon_forward=_most(reads.horizon[forward], reads.stage[forward], stages) if predicts else None,
        horizon_backward=_most(reads.horizon[backward], reads.stage[backward], stages) if predicts else None,
        counted_forward=_most(reads.lag[forward], reads.stage[forward], stages) if predicts else None,
        counted_backward=_most(reads.lag[backward], reads.stage[backward], stages) if predicts else None,
        peak_live_activations=_peak_live_activations(graph),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Reads:
    """All reads of weights, those of the backward halves of overlapped pairs behind the others.

    A prediction reads what its bellwether is said to read: it stands right before it.
    """

    task: Ints
    stage: Ints
    micro_batch: Ints
    direction: Ints
    version: Ints
    horizon: Ints
    predicted_by: Ints
    lag: Ints
    """Updates missing, compared with sequential training."""


def _reads(graph: TaskGraph) -> _Reads:
    pairs = graph.pairs
    # the columns of an overlapped task are its forward half's; the backward halves follow from the graph's own table
    kind = graph.kind[: graph.num_compute_tasks]
    # what computes with weights is numbered before the update; a prediction reads those that it predicts from
    reader = np.flatnonzero((kind < Kind.UPDATE) | (kind == Kind.PREDICT))
    stage, micro_batch, version, horizon, predicted_by = (
        np.concatenate((column[reader], halves))
        for column, halves in (
            (graph.stage, pairs.stage),
            (graph.micro_batch, pairs.micro_batch),
            (graph.version, pairs.version),
            (graph.horizon, pairs.horizon),
            (graph.predicted_by, pairs.predicted_by),
        )
    )
    per_update = graph.round_size * np.int32(graph.program.num_micro_batches)
    return _Reads(
        task=np.concatenate((reader, pairs.task)),
        stage=stage,
        micro_batch=micro_batch,
        direction=np.concatenate((graph.direction[reader], np.full(len(pairs), Direction.BACKWARD, np.int8))),
        version=version,
        horizon=horizon,
        predicted_by=predicted_by,
        # sequential training has made one update for every earlier round; round_size mini-batches are one (C11)
        lag=micro_batch // (per_update[0] if (per_update == per_update[0]).all() else per_update[stage]) - version,
    )


def _most(values: Ints, stage: Ints, num_stages: int) -> tuple[int, ...]:
    """Return the largest value by stage, 0 where there is none."""
    most = np.zeros(num_stages, np.int64)
    if values.max(initial=0) > 0:  # not most[stage] = ...: that keeps the last value of a stage, this the largest
        np.maximum.at(most, stage, values)
    return tuple(most.tolist())


def _drift(graph: TaskGraph, reads: _Reads) -> tuple[int, ...]:
    """Compare the forward's version plus horizon with that of everything behind it, by (stage, micro-batch)."""
    program = graph.program
    key = reads.stage.astype(np.int64) * program.total_micro_batches + reads.micro_batch
    meant = reads.version + reads.horizon
    # what F is meant to read, tabled by key; then every read, F's own too, is compared with its key's
    forward = np.flatnonzero(reads.direction == Direction.FORWARD)
    by_forward = np.zeros(program.num_stages * program.total_micro_batches, np.int32)
    by_forward[key[forward]] = meant[forward]
    return _most(np.abs(meant - by_forward[key]), reads.stage, program.num_stages)


def _peak_live_activations(graph: TaskGraph) -> tuple[int, ...]:
    num_compute = graph.num_compute_tasks
    kind = graph.kind[:num_compute]
    # F and B of a key run on one device, so every lane ends at 0 and one running sum serves all lanes
    born = ((kind == Kind.FORWARD) | (kind == Kind.OVERLAPPED)).view(np.int8)
    freed = ((kind == Kind.BACKWARD) | (kind == Kind.WEIGHT_GRAD)).view(np.int8)
    freed[graph.pairs.task[graph.pairs.kind == Kind.BACKWARD]] += 1
    alive = np.cumsum(born - freed, dtype=np.int32) + freed  # freed at the end of a task: alive during it
    return tuple(np.maximum.reduceat(alive, graph.lane_start[: graph.program.num_devices]).tolist())


_Sets = tuple[Ints, Ints, Ints]
"""Home (stage x devices + device), first and last task of every set of weights."""


def _most_alive(graph: TaskGraph, *sets: _Sets) -> tuple[int, ...]:
    """Return by stage the most sets alive during one task, over the devices that host it.

    A set is alive during the tasks first … last: first = the task behind the one that makes it, last = its last reader or,
    of a true version, the update that makes the next one, whichever comes later.
    """
    home, first, last = (np.concatenate(column) for column in zip(*sets, strict=True))
    at = np.concatenate((first, last + 1))
    change = np.concatenate((np.ones(len(first), np.int64), np.full(len(last), -1)))
    where = np.concatenate((home, home))
    order = np.lexsort((change, at, where))  # at one task those that end before those that begin
    alive = np.cumsum(change[order])  # back at 0 at the end of every home
    homes = where[order]
    starts = np.flatnonzero(np.concatenate(([True], homes[1:] != homes[:-1])))
    return _most(np.maximum.reduceat(alive, starts), homes[starts] // graph.program.num_devices, graph.program.num_stages)


def _true_sets(graph: TaskGraph, reads: _Reads) -> _Sets:
    """Return every true version that a device holds."""
    #   home      (0,0)           (0,1)       (1,2)        (stage, device); a row for every version that a device has,
    #   version   0   1   2   3   0   1   2   0   1        sorted: the next row of a home replaces this one
    devices, stop = graph.program.num_devices, graph.lane_start[1 : graph.program.num_devices + 1]
    update = np.flatnonzero(graph.kind[: graph.num_compute_tasks] == Kind.UPDATE)
    reader_home = reads.stage * np.int64(devices) + graph.device[reads.task]
    hosted = np.flatnonzero(np.bincount(reader_home))
    home = np.concatenate((hosted, graph.stage[update].astype(np.int64) * devices + graph.device[update]))
    version = np.concatenate((np.zeros(len(hosted), np.int64), graph.version[update]))
    first = np.concatenate((graph.lane_start[hosted % devices], update + 1))
    order = np.lexsort((version, home))
    home, version, first = home[order], version[order], first[order]
    replaced = np.append(first[1:] - 1, 0)  # the update that makes the next version
    newest = np.append(home[1:] != home[:-1], True)
    replaced[newest] = stop[home[newest] % devices]  # current to the end, and a task longer if an update is the last
    true = slice(None) if graph.program.weights.rule is not Rule.PREDICT else np.flatnonzero(reads.predicted_by < 0)
    # the versions of a home stand one behind the other from 0 on
    of_home = np.zeros(graph.program.num_stages * devices, np.int64)
    of_home[hosted] = np.searchsorted(home, hosted)
    last = replaced.copy()
    np.maximum.at(last, of_home[reader_home[true]] + reads.version[true], reads.task[true])
    return home, first, last


def _predicted_sets(graph: TaskGraph, reads: _Reads) -> _Sets:
    """Return every predicted set."""
    prediction = np.flatnonzero(graph.kind == Kind.PREDICT)
    read = reads.predicted_by >= 0
    # a prediction that nobody reads ends where it is made
    last = prediction.copy()
    np.maximum.at(last, np.searchsorted(prediction, reads.predicted_by[read]), reads.task[read])
    return graph.stage[prediction].astype(np.int64) * graph.program.num_devices + graph.device[prediction], prediction + 1, last

"""Turn the weight rule into numbers: the version that every action reads, counted from the updates before it.

All columns are by key (stage, micro-batch). Staleness, versions alive and horizons are facts of these numbers for any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedir.errors import RefusedError
from schedir.ir.action import Direction
from schedir.ir.arrays import Ints
from schedir.ir.checks.action_table import ActionTable
from schedir.ir.checks.verify import fault, name_action
from schedir.ir.horizons import check_policy, constant_horizons
from schedir.ir.weights import BackwardWeights, Rule
from schedir.lowering.updates import Updates


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Tasks to insert: one per stage, direction and mini-batch with a horizon above 0."""

    direction: Ints
    stage: Ints
    micro_batch: Ints
    """The bellwether."""
    version: Ints
    horizon: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """What actions read, by key. A horizon above 0 means the bellwether's prediction."""

    forward_version: Ints
    backward_version: Ints
    """One for R, B, I and W: the gradient of a micro-batch is taken at one point of a stage's weights."""
    forward_horizon: Ints
    backward_horizon: Ints
    backward_on_stash: bool
    """Backwards read the very prediction that their forward read."""
    predictions: Predictions | None


def read_versions(table: ActionTable, updates: Updates) -> Reads:
    """Apply the program's weight rule; raise ProgramError where the order breaks it."""
    program = table.program
    forward = _count(table, updates, table.forward_row)
    rule = program.weights.rule
    if rule is Rule.PREDICT:
        return _predicted(table, updates, forward)
    if rule in (Rule.LATEST, Rule.CURRENT):
        # current is what stands where the backward begins: an update between R and B, or I and W, changes no gradient half-way
        backward = _count(table, updates, table.backward_row)
        if rule is Rule.LATEST:  # what is read is what sequential training would read, or an error
            own = own_update(table, updates.round_size)
            _check_flush(table, own, forward=forward, backward=backward)
            forward = backward = own
    else:
        forward = _ruled(table, forward)
        # one array for both, since both read one version; by whose identity assembly.py knows that there is nothing to choose
        backward = forward
    zeros = np.zeros(table.num_keys, np.int16)
    return Reads(forward, backward, zeros, zeros, backward_on_stash=False, predictions=None)


def own_update(table: ActionTable, round_size: Ints) -> Ints:
    """Return by key the version that sequential training would read, int32: updates before the micro-batch's own."""
    program = table.program
    per_update = round_size.astype(np.int32) * program.num_micro_batches
    return (np.arange(program.total_micro_batches, dtype=np.int32)[None, :] // per_update[:, None]).reshape(-1)


def _count(table: ActionTable, updates: Updates, row: Ints) -> Ints:
    """Count by key the updates of its stage that stand before a row."""
    if updates.one_each:
        return (table.by_stage(row) > updates.row[:, None]).reshape(-1).astype(np.int32)
    stage = np.repeat(np.arange(table.program.num_stages), table.program.total_micro_batches)
    return updates.before(stage, row, table.program.device_start[table.device[row]])


def _ruled(table: ActionTable, current: Ints) -> Ints:
    """Versions under stash, vertical sync and double buffering, checked to exist when they are read."""
    program = table.program
    # F reads what is there, and B the same set again: it cannot be missing
    if program.weights.rule is Rule.STASH:
        return current
    micro_batch = np.arange(program.total_micro_batches)
    if program.weights.rule is Rule.VERTICAL_SYNC:
        homes = table.by_stage(table.device[table.forward_row])
        if (homes != homes[:, :1]).any():
            raise RefusedError("vertical sync is not defined for replicated stages: use replicas of 1, or weights 'stash'")
        # the version that the input stage read for the mini-batch's first micro-batch, on every stage
        first = micro_batch // program.num_micro_batches * program.num_micro_batches
        wanted = table.by_stage(current)[0][first]
    else:
        # PipeDream-2BW with j from 0: one update behind, so that two sets of weights are enough
        wanted = np.maximum(micro_batch // program.num_micro_batches - 1, 0)
    wanted = np.broadcast_to(wanted, (program.num_stages, program.total_micro_batches)).reshape(-1)
    # an old version can be kept, one that is not yet made cannot be read
    early = np.flatnonzero(wanted > current)
    if len(early):
        stage, j = divmod(int(early[0]), program.total_micro_batches)
        raise fault(
            program,
            f"{stage}F{j} must read version {wanted[early[0]]} of stage {stage} under {program.weights}, "
            f"but only {current[early[0]]} updates stand before it: more micro-batches per mini-batch, or another order",
            int(table.forward_row[early[0]]),
        )
    return wanted


def _check_flush(table: ActionTable, own: Ints, *, forward: Ints, backward: Ints) -> None:
    program = table.program
    # a W behind such a backward needs no look: no update but its own comes next, and that stands behind W
    drifts = (forward != own) | (backward != own)
    if drifts.any():
        key = int(np.flatnonzero(drifts)[0])
        stage, j = divmod(key, program.total_micro_batches)
        raise fault(
            program,
            f"weights 'latest' need a flush, but stage {stage} runs micro-batch {j} of mini-batch {j // program.num_micro_batches} "
            f"forward on version {forward[key]} and backward on version {backward[key]} instead of {own[key]}: finish every "
            "mini-batch before the next starts, or use weights 'stash' or 'current'",
            int((table.forward_row if forward[key] != own[key] else table.last_row)[key]),
        )


def _predicted(table: ActionTable, updates: Updates, current: Ints) -> Reads:
    """All micro-batches of a mini-batch read what its bellwether found, predicted or (horizon 0) true."""
    program = table.program
    p, m, n = program.num_stages, program.num_micro_batches, program.num_mini_batches
    shape = (p, n, m)
    policy = check_policy(program.weights.horizon if program.weights.horizon is not None else "xpipe-paper")
    on_stash = program.weights.backward is BackwardWeights.STASH
    _check_bellwethers(table, on_stash=on_stash)
    # (stage, mini-batch): the version that the bellwether finds at its F and where its backward begins (C7)
    forward = current.reshape(shape)[:, :, 0]
    backward = _count(table, updates, table.backward_row).reshape(shape)[:, :, 0]
    if policy == "exact":
        # exact (C8): F predicts the version that its mini-batch's own update is applied to; B reads what is there
        own = own_update(table, updates.round_size).reshape(shape)[:, :, 0]
        forward_horizon, backward_horizon = own - forward, np.zeros_like(own)
    else:
        by_stage = constant_horizons(policy, p, m)
        # constants of the stage: the same in start-up and drain (C8)
        forward_horizon, backward_horizon = (np.broadcast_to(np.array(column)[:, None], (p, n)) for column in by_stage)
    if on_stash:
        # no prediction of their own: they read F's
        backward, backward_horizon = forward, forward_horizon
    wanted = [(Direction.FORWARD, forward, forward_horizon)]
    if not on_stash:
        wanted.append((Direction.BACKWARD, backward, backward_horizon))
    return Reads(
        forward_version=_spread(forward, m),
        backward_version=_spread(backward, m),
        forward_horizon=_spread(forward_horizon, m),
        backward_horizon=_spread(backward_horizon, m),
        backward_on_stash=on_stash,
        predictions=_predictions(wanted, m),
    )


def _check_bellwethers(table: ActionTable, *, on_stash: bool) -> None:
    """On every stage a mini-batch's first micro-batch must run first, on the device of the others: they read what it predicts."""
    program = table.program
    shape = (program.num_stages, program.num_mini_batches, program.num_micro_batches)
    readers = [table.forward_row] if on_stash else [table.forward_row, table.backward_row]
    for rows in readers:
        by_mini_batch = rows.reshape(shape)
        away = table.device[by_mini_batch] != table.device[by_mini_batch[:, :, :1]]
        wrong = np.flatnonzero((by_mini_batch < by_mini_batch[:, :, :1]) | away)
        if len(wrong):
            stage, j = divmod(int(wrong[0]), program.total_micro_batches)
            first = j - j % program.num_micro_batches
            where = "on another device" if away.reshape(-1)[wrong[0]] else "behind it"
            name = name_action(program, int(rows[wrong[0]]), int(wrong[0]))
            raise fault(
                program,
                f"{name} reads what micro-batch {first} predicts for its mini-batch on stage {stage}, which stands {where}: under "
                "weights 'predict' a mini-batch's first micro-batch runs first, on one device",
                int(rows[wrong[0]]),
            )


def _spread(by_mini_batch: Ints, num_micro_batches: int) -> Ints:
    return np.repeat(by_mini_batch, num_micro_batches, axis=1).reshape(-1)


def _predictions(wanted: list[tuple[Direction, Ints, Ints]], num_micro_batches: int) -> Predictions:
    columns: list[tuple[Ints, ...]] = []
    for direction, version, horizon in wanted:
        # over no updates nothing is predicted: true weights are read
        stage, mini_batch = np.nonzero(horizon > 0)
        columns.append(
            (
                np.full(len(stage), direction),
                stage,
                mini_batch * num_micro_batches,
                version[stage, mini_batch],
                horizon[stage, mini_batch],
            )
        )
    return Predictions(*(np.concatenate(parts) for parts in zip(*columns, strict=True)))

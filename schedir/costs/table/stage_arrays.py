"""From the costs of stages, piece by piece, to arrays by kind and stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from schedir.costs.model import UnitBytes
from schedir.costs.stage_seconds import NUM_KINDS
from schedir.costs.table.pieces import PieceBytes, PieceCosts
from schedir.costs.work import WorkTime
from schedir.ir.action import COMPUTE_KINDS, Kind
from schedir.ir.arrays import Floats, Ints

BYTES = tuple(field.name for field in fields(PieceBytes))
"""Names of all bytes of a piece."""

_OPTIONAL = ("activations_selective", "activations_weight_grad", "skip", "tied", "predictor")
"""Bytes that need not be stated."""

MEMORY_BYTES = ("weights", "gradients", "optimizer", "activations")
"""Without any of these, memory is not computed."""


def times_of(stages: Sequence[PieceCosts], selective: Sequence[bool]) -> list[dict[Kind, WorkTime | None]]:
    """Return the time of every kind of compute work on every stage; `selective` says which stages recompute in part."""
    return [
        {kind: stage.time_of(kind, selective=chosen) for kind in COMPUTE_KINDS}
        for stage, chosen in zip(stages, selective, strict=True)
    ]


def seconds_of(times: Sequence[dict[Kind, WorkTime | None]]) -> Floats:
    """Return medians and times of firsts, float64 (2, len(Kind), num_stages); NaN where not stated."""
    seconds = np.zeros((2, NUM_KINDS, len(times)))
    for stage, row in enumerate(times):
        for kind, time in row.items():
            seconds[0, kind, stage] = np.nan if time is None else time.median
            seconds[1, kind, stage] = seconds[0, kind, stage] if time is None or time.first is None else time.first
    return seconds


def bytes_of(stages: Sequence[PieceCosts]) -> dict[str, Floats]:
    """Return bytes by name, each float64 (num_stages), NaN where not stated.

    A stage's input is as large as the output of the stage before it. The reverse is taken for transfers only
    (`handed_over`): memory counts buffers of outputs where their bytes are stated.
    """
    amounts = {name: np.array([_number(getattr(stage.bytes, name)) for stage in stages]) for name in BYTES}
    boundary, output = amounts["boundary"], amounts["output"]
    # stage 0 has no stage before it: what arrives there is data, whose bytes only the table can state
    amounts["boundary"] = np.where(np.isnan(boundary), np.concatenate(([np.nan], output[:-1])), boundary)
    return amounts


def skipped(amounts: dict[str, Floats]) -> Floats:
    """Return the bytes of a skip connection that begins at each stage, float64 (num_stages)."""
    return np.where(np.isnan(amounts["skip"]), handed_over(amounts), amounts["skip"])


def handed_over(amounts: dict[str, Floats]) -> Floats:
    """Return the bytes of the hand-over behind each stage, forward and (as a gradient) backward, float64 (num_stages)."""
    output, boundary = amounts["output"], amounts["boundary"]
    # the last stage hands nothing over; its NaN is never read, and `missing_bytes` does not ask for it
    return np.where(np.isnan(output), np.concatenate((boundary[1:], [np.nan])), output)


def _number(amount: object) -> float:
    return np.nan if amount is None else float(amount)  # type: ignore[arg-type]  # tables have been read


def unit_bytes_of(amounts: dict[str, Floats], selective: Ints, scale: Floats | None) -> UnitBytes | None:
    """Return the bytes of all units of memory, or None where none of MEMORY_BYTES, or no selective part, is stated.

    `selective` is bool (num_stages). What is not stated counts as 0; `missing_bytes` names it.
    """
    if all(np.isnan(amounts[name]).all() for name in MEMORY_BYTES) or np.isnan(amounts["activations_selective"][selective]).any():
        return None
    #   activations of a stage       never             [ all that F saved                    ]
    #                                always            [ boundary ] + R: [ recomputed        ]    all of it again, the input too
    #                                selective         [ boundary           ] + R: [ dropped ]    only what was thrown away
    known = {name: np.nan_to_num(values) for name, values in amounts.items()}
    dropped = np.maximum(known["activations"] - known["activations_selective"], 0.0)
    boundary = np.where(selective, known["activations_selective"], known["boundary"])
    recomputed = np.where(selective, dropped, known["activations"])
    # W still needs `late`: of the boundary first, the rest of what was made again. Where it is not stated, NaN runs through the
    # differences and ends as 0: nothing is given back before W
    late = amounts["activations_weight_grad"]
    tied = amounts["tied"]
    # an optimizer's state grows with its parameters, so the tied ones have their share of it
    of_all = np.divide(known["tied"], known["weights"], out=np.zeros_like(known["tied"]), where=known["weights"] > 0)
    return UnitBytes(
        weights=known["weights"],
        gradients=known["gradients"],
        optimizer=known["optimizer"],
        activations=known["activations"],
        boundary=boundary,
        recomputed=recomputed,
        output=known["output"],
        input_gradient=np.concatenate(([0.0], known["output"][:-1])),
        workspace=known["workspace"],
        freed_activations=np.nan_to_num(known["activations"] - late),
        freed_boundary=np.nan_to_num(boundary - np.fmin(boundary, late)),
        freed_recomputed=np.nan_to_num(recomputed - np.maximum(late - boundary, 0.0)),
        skip=np.nan_to_num(skipped(amounts)),
        tied_weights=None if np.isnan(tied).all() else known["tied"],
        tied_optimizer=None if np.isnan(tied).all() else known["optimizer"] * of_all,
        predictor=known["predictor"],
        micro_batch_scale=scale,
    )


def missing_bytes(amounts: dict[str, Floats]) -> list[str]:
    """Return the names of bytes that some stage does not state; the last stage's output is sent nowhere."""
    needed = amounts | {"output": amounts["output"][:-1]}
    return [name for name, values in needed.items() if name not in _OPTIONAL and np.isnan(values).any()]

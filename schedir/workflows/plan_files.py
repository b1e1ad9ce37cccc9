"""Read a plan: which schedule, how many of everything, and where the model is cut. `schedir plan` writes it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schedir.errors import ArgumentError, FormatError, RefusedError
from schedir.ir.notation.header import did_you_mean
from schedir.ir.shape import is_count

SCHEMA = "schedir.plan/1"
COUNTS = ("num_devices", "num_micro_batches", "stages_per_device", "micro_batch_size", "tensor_parallel", "data_parallel")
TEXTS = ("model", "schedule", "recompute", "recompute_start")
TIMEOUT = "timeout"
STAGE_KEYS = ("stage", "devices", "layers")
"""Keys of a plan beside its schema, its stages and what it predicts, and those of a stage: docs/plan_files.md explains each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTraining:
    """What a plan says about a training."""

    schedule: str
    num_devices: int
    num_micro_batches: int
    stages_per_device: int | None
    micro_batch_size: int | None
    recompute: str
    recompute_start: str
    timeout: float | None
    """Seconds that anybody waits for a device; None if the plan does not say."""
    cuts: tuple[str, ...] | None
    """Names of the modules that stages but the first begin with; None if the plan lists no stages."""


def read_plan(path: Path) -> PlannedTraining:
    """Return the plan of a file; raise FormatError naming key, value, rule and remedy, RefusedError for what cannot be trained."""
    content = _read(path)
    _check_keys(path, content, ("schema", "stages", "predicted", TIMEOUT, *COUNTS, *TEXTS))
    for key in ("schedule", "num_devices", "num_micro_batches"):
        if key not in content:
            raise FormatError(f"{path}: {key} is missing: every plan has one")
    _check_values(path, content)
    _refuse_parallel(path, content)
    return PlannedTraining(
        schedule=content["schedule"],
        num_devices=content["num_devices"],
        num_micro_batches=content["num_micro_batches"],
        stages_per_device=content.get("stages_per_device"),
        micro_batch_size=content.get("micro_batch_size"),
        recompute=content.get("recompute", "never"),
        recompute_start=content.get("recompute_start", "early"),
        timeout=_timeout(path, content),
        cuts=_cuts(path, content.get("stages", []), content["num_devices"]),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is no TOML file: {' '.join(str(error).split())}") from None
    if content.get("schema") != SCHEMA:
        raise FormatError(f'{path}: schema is {content.get("schema")!r}, but a plan has "{SCHEMA}": give another file')
    return content


def _check_values(path: Path, content: Mapping[str, Any]) -> None:
    for key, value in content.items():
        if key in COUNTS and not is_count(value):
            raise FormatError(f"{path}: {key} {value!r} must be an integer of at least 1")
        if key in TEXTS and not isinstance(value, str):
            raise FormatError(f"{path}: {key} {value!r} must be a text")


def _timeout(path: Path, content: Mapping[str, Any]) -> float | None:
    """Return the plan's timeout; the rule is that of the trainer that gets it."""
    if TIMEOUT not in content:
        return None
    from executor.model.admission import check_timeout

    try:
        check_timeout(content[TIMEOUT])
    except ArgumentError as error:
        raise FormatError(f"{path}: {error}") from None
    return float(content[TIMEOUT])


def _check_keys(path: Path, content: Mapping[str, Any], known: tuple[str, ...]) -> None:
    unknown = next((key for key in content if key not in known), None)
    if unknown is not None:
        raise FormatError(f"{path}: {did_you_mean(unknown, known)}")


def _refuse_parallel(path: Path, content: Mapping[str, Any]) -> None:
    for key in ("tensor_parallel", "data_parallel"):
        if content.get(key, 1) != 1:
            raise RefusedError(
                f"{path}: {key} is {content[key]}, but training has one device for every device of the pipeline: plan with 1"
            )


def _cuts(path: Path, stages: Any, num_devices: int) -> tuple[str, ...] | None:
    """Return the first layer of every stage but the first; all stages must be there, in order."""
    if not isinstance(stages, list) or not all(isinstance(stage, dict) for stage in stages):
        raise FormatError(f"{path}: stages must be tables: write [[stages]] before each")
    for number, stage in enumerate(stages):
        _check_keys(path, stage, STAGE_KEYS)
        if stage.get("stage", number) != number:
            raise FormatError(f"{path}: stage {stage['stage']} stands where stage {number} should: list all stages in order")
        _check_devices(path, number, stage.get("devices", []), num_devices=num_devices)
        layers = stage.get("layers")
        if not isinstance(layers, list) or not layers or not all(isinstance(layer, str) for layer in layers):
            raise FormatError(f'{path}: stages.{number}.layers {layers!r:.60} must be names of layers, as ["layers.0"]')
    return tuple(stage["layers"][0] for stage in stages[1:]) if stages else None


def _check_devices(path: Path, stage: int, devices: Any, *, num_devices: int) -> None:
    """Raise FormatError for what are no devices of the pipeline; which of them host a stage follows from the schedule."""
    known = range(num_devices)
    if not isinstance(devices, list) or any(type(each) is not int or each not in known for each in devices):
        raise FormatError(f"{path}: stages.{stage}.devices {devices!r:.60} must be a list of numbers from 0 to {known[-1]}, as [0]")

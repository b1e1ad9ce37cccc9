"""Read and write costs files: one format, schedir.costs/1, for hand-written and measured costs, in TOML or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from schedir.costs.files import toml
from schedir.costs.files.border import validated
from schedir.costs.files.documents import read_document
from schedir.costs.files.model import SCHEMA, SECONDS, CostsFile
from schedir.costs.files.rows import basis_of, default_of, layers_of, stages_of
from schedir.costs.model import Basis
from schedir.costs.table.meaning import Granularity, Scaling
from schedir.costs.table.pieces import TIMES, PieceBytes, PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.work import BySize, WorkTime
from schedir.errors import FormatError
from schedir.expect import expect_path
from schedir.files import replaced_whole, unwritten


def load_costs(path: str | Path, *, layers_per_stage: Sequence[int] | None = None) -> TableCosts:
    """Read a costs file; `layers_per_stage` cuts costs per layer into stages (`TableCosts.cut` does so later).

    Raises FormatError, one line with file, line, key, value, rule and remedy, for a file that breaks a rule, ArgumentError
    for a cut that does not fit.
    """
    expect_path(path, "path", "give the path of a costs file, .toml or .json")
    document = read_document(path, SCHEMA)
    # before the file is validated, since its times are read in it; a wrong one is refused there
    unit = document.data.get("time_unit", "s")
    file = validated(document, CostsFile, {"unit": SECONDS.get(str(unit), SECONDS["s"])})
    rows = layers_of(document, file) if file.granularity == "layer" else stages_of(document, file)
    costs = TableCosts(
        rows=rows,
        default=default_of(document, file),
        granularity=Granularity(file.granularity),
        micro_batch_size=file.micro_batch_size,
        scaling=Scaling(file.scaling),
        transfer=None if file.transfer is None else file.transfer.latency,
        dispatch_gap_s=file.dispatch_gap_s,
        basis=basis_of(document, file),
        source=file.source,
        file=str(path),
    )
    return costs if layers_per_stage is None else costs.cut(layers_per_stage)


def save_costs(costs: TableCosts, path: str | Path) -> None:
    """Write a costs file, TOML or JSON by its name, in seconds and bytes: beside its place first, then renamed.

    What belongs to a run (the cut of layers, micro_batch_sizes) is not written. Raises FormatError where the name has another
    ending, or a TOML file would have to say that a stage does not state what the default does; ArgumentError for a place that
    cannot be written to.
    """
    path = Path(path)
    match path.suffix.lower():
        case ".toml":
            text = toml.dumps(_plain_costs(costs))
        case ".json":
            text = json.dumps(_plain_costs(costs), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        case suffix:
            raise FormatError(f"{path}: costs files end in .toml or .json, not in {suffix!r}: choose one of these")
    try:
        with replaced_whole(path) as beside:
            beside.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritten(path, error, "name a place you may write to") from None


def _plain_costs(costs: TableCosts) -> dict[str, Any]:
    """Return the file's tables; nothing that is None stands in them."""
    source = dict(costs.source)
    if source or costs.basis is not Basis.ASSUMED:
        # kind stands first, with the value of the last
        source = {"kind": ""} | source | {"kind": costs.basis.value}
    kind = costs.granularity.value
    # a file's rows stand on top of its default, a table's do not: what a row lacks must be taken away again
    below = {} if costs.default is None else _plain_piece(costs.default)
    rows = [{kind: number} | _on_top_of(below, _plain_piece(row)) for number, row in enumerate(costs.rows)]
    return {
        "schema": SCHEMA,
        "granularity": kind,
        "time_unit": "s",
        "micro_batch_size": costs.micro_batch_size,
        "scaling": costs.scaling.value,
        **({"source": source} if source else {}),
        **({"dispatch_gap_s": costs.dispatch_gap_s} if costs.dispatch_gap_s else {}),
        **({"default": below} if below else {}),
        **({f"{kind}s": rows} if rows else {}),
        **({} if costs.transfer is None else {"transfer": {"latency": costs.transfer}}),
    }


def _on_top_of(below: Mapping[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with null where it does not state what the default below it states, but for a backward that halves replace."""
    halves = row.keys() & {"input_grad", "weight_grad"}
    missing: dict[str, Any] = {name: None for name in below if name not in row and not (name == "backward" and halves)}
    if "bytes" in below:
        amounts = row.get("bytes", {})
        missing["bytes"] = {name: None for name in below["bytes"] if name not in amounts} | amounts
    return row | missing


def _plain_piece(piece: PieceCosts) -> dict[str, Any]:
    times = {name: _plain(getattr(piece, name)) for name in TIMES}
    amounts = {field.name: _plain(getattr(piece.bytes, field.name)) for field in fields(PieceBytes)}
    stated = {name: amount for name, amount in amounts.items() if amount is not None}
    row: dict[str, Any] = {"name": piece.name} if piece.name else {}
    row |= {name: time for name, time in times.items() if time is not None}
    return row | ({"bytes": stated} if stated else {})


def _plain(value: object) -> object:
    match value:
        case BySize():
            return {str(size): _plain(entry) for size, entry in zip(value.sizes, value.values, strict=True)}
        case WorkTime(first=None, samples=()):
            return value.median
        case WorkTime():
            first: Mapping[str, Any] = {} if value.first is None else {"first": value.first}
            lists = {name: list(getattr(value, name)) for name in ("samples", "repeats") if getattr(value, name)}
            return {"median": value.median, **first, **lists}
        case float() if value.is_integer():
            return int(value)  # bytes
        case _:
            return value

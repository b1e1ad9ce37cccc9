"""From the rows of a costs file to the costs of stages and layers; every refusal points at the row's line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from schedir.costs.files.documents import Document
from schedir.costs.files.lines import Location
from schedir.costs.files.model import CostsFile, CostsRow, LayerCostsRow, StageCostsRow
from schedir.costs.model import Basis
from schedir.costs.table.pieces import TIMES, PieceBytes, PieceCosts
from schedir.costs.work import BySize
from schedir.errors import ArgumentError

Numbered = TypeVar("Numbered", StageCostsRow, LayerCostsRow)


def layers_of(document: Document, file: CostsFile) -> tuple[PieceCosts, ...]:
    """Return the costs of all layers in their order."""
    for name in ("default", "stages"):
        if name in document.data:
            raise document.error((name,), 'goes with granularity = "stage": leave it out, or give [[layers]] as [[stages]]')
    rows = _in_order(document, "layer", file.layers)
    _check_complete(document, "layer", rows)
    return tuple(_piece(document, file, ("layers", place), rows=[row]) for place, row in rows.values())


def stages_of(document: Document, file: CostsFile) -> tuple[PieceCosts, ...]:
    """Return the costs of stages 0 … the last that is named, each on top of the default."""
    if file.layers:
        raise document.error(("layers",), 'goes with granularity = "layer": change one of the two')
    rows = _in_order(document, "stage", file.stages)
    count = max(rows, default=-1) + 1
    if file.default is None:
        _check_complete(document, "stage", rows)
    below = [] if file.default is None else [file.default]
    default = default_of(document, file)
    pieces = []
    # stages behind the last row are the table's default, however many the schedule has; those between rows need a piece here
    for stage in range(count):
        if stage in rows:
            place, row = rows[stage]
            pieces.append(_piece(document, file, ("stages", place), rows=[*below, row]))
        elif default is not None:
            pieces.append(default)
    return tuple(pieces)


def default_of(document: Document, file: CostsFile) -> PieceCosts | None:
    """Return the costs of every stage that is not named."""
    return None if file.default is None else _piece(document, file, ("default",), rows=[file.default])


def basis_of(document: Document, file: CostsFile) -> Basis:
    """Return what the numbers stand on: `source.kind`, or assumed."""
    kind = file.source.get("kind", Basis.ASSUMED.value)
    if kind not in set(Basis):
        raise document.error(("source", "kind"), f"{kind!r} is unknown: use {', '.join(Basis)}")
    return Basis(kind)


def _in_order(document: Document, kind: str, rows: Sequence[Numbered]) -> dict[int, tuple[int, Numbered]]:
    """Return (place in the file, row) by number."""
    found: dict[int, tuple[int, Numbered]] = {}
    for place, row in enumerate(rows):
        number = getattr(row, kind)
        if number in found:
            raise document.error((f"{kind}s", place, kind), f"{kind} {number} stands twice: leave one of them out")
        found[number] = (place, row)
    return dict(sorted(found.items()))


def _check_complete(document: Document, kind: str, rows: dict[int, Any]) -> None:
    if not rows:
        raise document.error((f"{kind}s",), f"no {kind} is there: give one [[{kind}s]] for each")
    missing = next((number for number in range(max(rows)) if number not in rows), None)
    if missing is not None:
        raise document.error((f"{kind}s",), f"{kind} {missing} of 0..{max(rows)} is missing: give one row for each {kind}")


def _piece(document: Document, file: CostsFile, location: Location, *, rows: Sequence[CostsRow]) -> PieceCosts:
    """Return the costs that the rows state, later ones on top of earlier ones."""
    times: dict[str, Any] = {}
    amounts: dict[str, Any] = {}
    for row in rows:
        times |= _stated_times(row)
        # fields that were set: one that says null takes away what a row below states
        amounts |= {} if row.bytes is None else {name: getattr(row.bytes, name) for name in row.bytes.model_fields_set}
    if "forward" not in times:
        raise document.error((*location, "forward"), "the key is missing: give it")
    if file.scaling != "table":
        _refuse_tables(document, location, {**times, **{f"bytes.{name}": amount for name, amount in amounts.items()}})
    try:
        return PieceCosts(name=getattr(rows[-1], "name", ""), **times, bytes=PieceBytes(**amounts))
    except ArgumentError as error:
        raise document.error(location, str(error)) from None


def _stated_times(row: CostsRow) -> dict[str, Any]:
    """Return the times of a row; halves without a full backward make one of the rows below void."""
    stated = {name: getattr(row, name) for name in TIMES if name in row.model_fields_set}
    if stated.keys() & {"input_grad", "weight_grad"} and "backward" not in stated:
        stated["backward"] = None
    return stated


def _refuse_tables(document: Document, location: Location, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, BySize):
            raise document.error(
                (*location, *name.split(".")), 'a table by micro-batch size goes with scaling = "table": change one of the two'
            )

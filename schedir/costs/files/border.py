"""Where files become typed values: strict pydantic models, and their errors as one line with file, line, key and remedy."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from schedir.costs.files.documents import Document
from schedir.costs.files.units import BANDWIDTH, FLOPS, LATENCY, MEMORY, TIME, Dimension, parse_quantity
from schedir.errors import FormatError
from schedir.expect import shown


class Strict(BaseModel):
    """A table of a file: unknown keys are refused, no value is turned into another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


def _quantity(dimension: Dimension) -> BeforeValidator:
    return BeforeValidator(lambda value: parse_quantity(value, dimension))


MemoryValue = Annotated[float, _quantity(MEMORY)]
BandwidthValue = Annotated[float, _quantity(BANDWIDTH)]
TimeValue = Annotated[float, _quantity(TIME)]
LatencyValue = Annotated[float, _quantity(LATENCY)]
FlopsValue = Annotated[float, _quantity(FLOPS)]

Model = TypeVar("Model", bound=Strict)


def validated(document: Document, model: type[Model], context: dict[str, Any] | None = None) -> Model:
    """Return a document's data as a model; raise FormatError for an unknown key, or else the first value that breaks a rule.

    Unknown keys come first, since a key that is written wrongly is often one that is missing elsewhere.
    """
    try:
        return model.model_validate(document.data, context=context)
    except ValidationError as error:
        found = error.errors(include_url=False)
        # in pydantic's list an unknown key comes behind the key that is missing because of it
        first = next((fault for fault in found if fault["type"] == "extra_forbidden"), found[0])
        raise _as_line(document, model, first) from None


def _as_line(document: Document, model: type[Strict], error: Any) -> FormatError:
    # pydantic's own words speak of inputs and types; a user's line names value, rule and remedy
    location = tuple(error["loc"])
    value = shown(error["input"])
    match error["type"]:
        case "extra_forbidden":
            known = _keys(model, location[:-1])
            use = f": use {', '.join(known)}"
            message = f"the key is unknown{nearest(str(location[-1]), known) or use}"
        case "missing":
            message = "the key is missing: give it"
        case "value_error":
            message = str(error["ctx"]["error"])
        case "literal_error":
            message = f"{value} is unknown: use {error['ctx']['expected']}"
        case _:
            message = f"{value} does not fit: {error['msg'][0].lower()}{error['msg'][1:]}".replace("input", "it", 1)
    return document.error(location, message)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `, did you mean …?` for a name that is unknown; nothing where no known one is near."""
    close = get_close_matches(name, list(known), n=1)
    return f", did you mean {close[0]}?" if close else ""


def _keys(model: type[Strict], location: tuple[str | int, ...]) -> list[str]:
    """Return the keys of the table at a location."""
    for part in location:
        # an index leads to an entry of a list, all of which have one model
        if isinstance(part, str):
            field = next(field for name, field in model.model_fields.items() if part in {name, field.alias})
            model = next(_models(field.annotation))
    return [field.alias or name for name, field in model.model_fields.items()]


def _models(annotation: Any) -> Any:
    """Yield the models that an annotation such as `list[Row] | None` names."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)

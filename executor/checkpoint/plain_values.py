"""Values of a checkpoint as JSON: what schedulers and random generators keep, and nothing that could run code.

Numbers, texts, booleans and None are themselves; what JSON has no form for is an object with one key that names it:

    tuple {"tuple": […]}    a dict whose keys are not all texts {"pairs": [[key, value], …]}    Counter {"counter": […]}
    bytes {"bytes": base64}    inf and nan {"float": "inf"}    a dict of texts {"dict": {…}}
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from schedir.errors import RefusedError
from schedir.expect import kind_of

Json = Any
"""A value that json.dumps takes with allow_nan=False."""


def to_json(value: Any, owner: str) -> Json:
    """Return a value as JSON; raise RefusedError naming the owner for one that has no plain form."""
    for kinds, encode in _ENCODERS:
        if isinstance(value, kinds):
            return encode(value, owner)
    raise RefusedError(f"{owner} keeps {kind_of(value)}, which a checkpoint cannot hold: plain values and tensors only")


def from_json(value: Json) -> Any:
    """Return what `to_json` was given."""
    if isinstance(value, list):
        return [from_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    ((name, content),) = value.items()
    return _DECODERS[name](content)


def _from_float(value: float, owner: str) -> Json:  # noqa: ARG001 - one signature for all
    return value if math.isfinite(value) else {"float": str(value)}


def _from_dict(value: dict[Any, Any], owner: str) -> Json:
    if all(isinstance(key, str) for key in value):
        return {"dict": {key: to_json(each, owner) for key, each in value.items()}}
    return {"pairs": [[to_json(key, owner), to_json(each, owner)] for key, each in value.items()]}


def _pairs(content: list[list[Json]]) -> dict[Any, Any]:
    return {from_json(key): from_json(each) for key, each in content}


_ENCODERS: tuple[tuple[Any, Callable[[Any, str], Json]], ...] = (
    ((bool, str, int, type(None)), lambda value, _: value),
    (float, _from_float),
    (bytes, lambda value, _: {"bytes": base64.b64encode(value).decode()}),
    (tuple, lambda value, owner: {"tuple": [to_json(each, owner) for each in value]}),
    (list, lambda value, owner: [to_json(each, owner) for each in value]),
    (Counter, lambda value, owner: {"counter": [[to_json(key, owner), number] for key, number in value.items()]}),
    (dict, _from_dict),
)
_DECODERS: dict[str, Callable[[Json], Any]] = {
    "float": float,
    "bytes": base64.b64decode,
    "tuple": lambda content: tuple(from_json(each) for each in content),
    "counter": lambda content: Counter(_pairs(content)),
    "dict": lambda content: {key: from_json(each) for key, each in content.items()},
    "pairs": _pairs,
}

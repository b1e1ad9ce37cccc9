"""What schedulers, optimizers and random generators keep comes back from JSON as what it was."""

import json
import math
from collections import Counter
from typing import Any

import pytest

from executor.checkpoint.plain_values import from_json, to_json
from schedir.errors import RefusedError


def there_and_back(value: Any) -> Any:
    """Through the text of a file that has no NaN and no Infinity."""
    return from_json(json.loads(json.dumps(to_json(value, "a scheduler"), allow_nan=False)))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        0.1,
        math.inf,
        -math.inf,
        "a",
        b"\x00\xff",
        [1, (2, [3, (4,)])],
        (1, [2.5, None]),
        (),
        {"a": (1, 2), "b": {"c": [b"d"]}},
        {1: "a", (2, "b"): [(3,)], "c": 4},
        {"tuple": [1], "dict": {"float": "inf"}},
        Counter({5: 2, (7, 8): 1}),
        {},
    ],
    ids=repr,
)
def test_a_value_comes_back_with_its_types(value: Any) -> None:
    found = there_and_back(value)

    assert (found, repr(found)) == (value, repr(value))  # 1 == 1.0 == True, and a Counter is a dict; their texts differ


def test_a_number_that_is_none_comes_back() -> None:
    (found,) = there_and_back((math.nan,))

    assert isinstance(found, float)
    assert math.isnan(found)


@pytest.mark.parametrize("wrap", [list, tuple, lambda one: {"a": one[0]}, lambda one: {1: one[0]}, lambda one: {one[0]: 1}])
def test_what_has_no_plain_form_is_refused_wherever_it_lies(wrap: Any) -> None:
    with pytest.raises(RefusedError, match=r"a scheduler keeps .*, which a checkpoint cannot hold: plain values and tensors only"):
        to_json(wrap([frozenset()]), "a scheduler")

"""Values are taken apart into their tensors and put together again as they were."""

from collections import OrderedDict, UserDict, defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from executor.structure import TENSOR, put_together, take_apart, tensors_in, with_tensors
from schedir.errors import ArgumentError


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass(frozen=True, slots=True)
class Hidden:
    states: Tensor
    length: int
    mask: Tensor | None = None

    def __post_init__(self) -> None:
        assert isinstance(self.states, Tensor), "made of tensors only"


class Mode(Enum):
    CAUSAL = 1


def name() -> str:
    return "the output"


X, Y, Z = torch.ones(2, 3), torch.tensor([1, 0]), torch.tensor([True, False])

VALUES: list[Any] = [
    X,
    (X,),
    (X, None, [Y, (Z, 2.5)], "text"),
    {"hidden": X, "rest": {"mask": Y, 3: Z, "flag": True}},
    OrderedDict(b=X, a=Y),
    Pair(X, Pair(None, Y)),
    Hidden(X, 7, Y),
    {"kind": Mode.CAUSAL, "dtype": torch.bfloat16, "shape": torch.Size([2, 3]), "bytes": b"a", "x": X, "number": 1j},
]


def same(found: Any, expected: Any) -> bool:
    """Tell whether the containers, the plain values and the very tensors are the same."""
    if isinstance(expected, Tensor):
        return found is expected
    if type(found) is not type(expected):
        return False
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, Hidden):
        return all(same(getattr(found, key), getattr(expected, key)) for key in ("states", "length", "mask"))
    return bool(found == expected)


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_what_is_taken_apart_is_put_together_as_it_was(value: Any) -> None:
    tensors, form = take_apart(value, name)

    assert same(put_together(form, tensors), value)
    assert [id(tensor) for tensor in tensors_in(value)] == [id(tensor) for tensor in tensors]


def test_tensors_come_in_the_order_of_the_value() -> None:
    tensors, form = take_apart({"b": (X, [Y]), "a": Z}, name)

    assert [tensor is expected for tensor, expected in zip(tensors, (X, Y, Z), strict=True)] == [True] * 3
    assert form != TENSOR


def test_containers_are_made_anew_so_that_a_stage_may_change_them() -> None:
    given: dict[str, Any] = {"x": X, "list": [Y]}
    tensors, form = take_apart(given, name)
    first: Any = put_together(form, tensors)
    first["list"].clear()
    again: Any = put_together(form, tensors)

    assert again["list"][0] is Y
    assert given["list"][0] is Y


@pytest.mark.parametrize("mapping", [UserDict(x=X, n=1), defaultdict(list, x=X, n=1)])
def test_any_other_mapping_becomes_a_dict(mapping: Any) -> None:
    """As what data collators and tokenizers of Hugging Face give."""
    tensors, form = take_apart(mapping, name)

    assert same(put_together(form, tensors), {"x": X, "n": 1})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "the output is None without a tensor: give at least one tensor"),
        ({"length": 3}, "the output is a dict without a tensor"),
        ((X, object()), r"the output is or holds an object at \[1\]: give tensors, None, numbers, strings"),
        ({"a": {"cache": [X, range(3)]}}, r"a range at \['a'\]\['cache'\]\[1\]"),
        (Hidden, "is or holds a type: give"),
        (Hidden(X, {1}), r"a set at \['length'\]"),  # type: ignore[arg-type]  # what this test is about
    ],
)
def test_what_is_no_value_is_named_by_its_kind_and_place(value: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        take_apart(value, name)
    assert "tensor(" not in str(caught.value)


def test_tensors_are_found_beside_what_is_no_value() -> None:
    """The last stage's output goes to the loss alone, whatever it holds."""
    assert tensors_in({"logits": X, "cache": object(), "more": (Y, None)}) == (X, Y)


def test_all_tensors_may_be_changed_at_once() -> None:
    changed = with_tensors({"x": X, "n": (1, Y)}, lambda tensor: tensor + 1)

    assert changed["x"].tolist() == [[2.0] * 3] * 2
    assert changed["n"][0] == 1
    assert changed["n"][1].tolist() == [2, 1]

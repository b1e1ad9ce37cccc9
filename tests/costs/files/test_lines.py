"""Lines of keys in TOML and JSON texts."""

import json
import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schedir.costs.files import toml
from schedir.costs.files.lines import Location, json_lines, toml_lines

TOML = """\
title = "x = 1"          # 1
list = [                 # 2
    [0, 1],
    [8, 9],
]
a.b = 3                  # 6

[table."quoted key"]     # 8
inline = { one = 1, two = { three = 3 } }
text = '''
[not.a.table]
key = 1
'''
after = 1                # 14

[[rows]]                 # 16
stage = 0
[rows.bytes]             # 18
weights = 1
[[rows]]                 # 20
[rows.bytes]
weights = 2              # 22
"""


def test_every_key_of_a_toml_text_has_its_line() -> None:
    lines = dict(toml_lines(TOML))
    expected: dict[Location, int] = {
        ("title",): 1,
        ("list",): 2,
        ("list", 1, 0): 2,
        ("a", "b"): 6,
        ("table", "quoted key"): 8,
        ("table", "quoted key", "inline", "two", "three"): 9,
        ("table", "quoted key", "text"): 10,
        ("table", "quoted key", "after"): 14,
        ("rows", 0): 16,
        ("rows", 0, "bytes", "weights"): 19,
        ("rows", 1): 20,
        ("rows", 1, "bytes", "weights"): 22,
    }

    assert {location: lines[location] for location in expected} == expected
    assert ("not", "a", "table") not in lines


JSON = """\
{
  "schema": "a, {b}: [c]",
  "empty": {}, "none": [],
  "rows": [
    {"stage": 0,
     "samples": [1, 2,
                 3]},
    {"stage": 1}
  ]
}
"""


def test_every_key_of_a_json_text_has_its_line() -> None:
    expected: dict[Location, int] = {
        ("schema",): 2,
        ("empty",): 3,
        ("none",): 3,
        ("rows",): 4,
        ("rows", 0): 5,
        ("rows", 0, "stage"): 5,
        ("rows", 0, "samples"): 6,
        ("rows", 0, "samples", 0): 6,
        ("rows", 0, "samples", 1): 6,
        ("rows", 0, "samples", 2): 7,
        ("rows", 1): 8,
        ("rows", 1, "stage"): 8,
    }

    assert dict(json_lines(JSON)) == expected


def locations(value: Any) -> set[Location]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {way for key, inside in inner for way in ((key,), *((key, *rest) for rest in locations(inside)))}


SCALARS = st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.text(max_size=5)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3))
TABLES = st.dictionaries(st.text(max_size=5), VALUES, max_size=4)


@given(TABLES)
def test_every_value_of_any_json_text_has_a_line(data: dict[str, Any]) -> None:
    text = json.dumps(data, indent=1)
    lines = dict(json_lines(text))

    assert set(lines) == locations(data)
    assert all(1 <= line <= len(text.splitlines()) for line in lines.values())


@given(TABLES)
def test_toml_that_is_written_is_read_back(data: dict[str, Any]) -> None:
    assert tomllib.loads(toml.dumps(data)) == data

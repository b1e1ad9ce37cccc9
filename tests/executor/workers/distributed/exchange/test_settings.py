"""Processes that have built something else are found out: whatever differs in their graphs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from executor.workers.distributed.exchange.settings import TELLS_NOTHING, digest, setting_of
from schedir.ir.graph import TaskGraph
from tests.executor.small.models import compiled, mlp, pipeline_of

GRAPH = compiled("1f1b", 2, 4)
COLUMNS = [field.name for field in fields(TaskGraph) if isinstance(getattr(GRAPH, field.name), np.ndarray)]


def changed(column: Any) -> Any:
    """Return a column whose last number is another."""
    found = column.copy()
    found[-1] += 1
    return found


@pytest.mark.parametrize("name", COLUMNS)
def test_graphs_that_differ_in_one_number_are_told_apart(name: str) -> None:
    """Also where an edge ends, which is where the next task's edges begin."""
    other: TaskGraph = replace(GRAPH, **{name: changed(getattr(GRAPH, name))})
    assert digest(other) != digest(GRAPH)


def test_every_column_of_a_graph_tells() -> None:
    assert {"edge_start", "edge_source", "edge_kind", "kind", "version", "horizon", "predicted_by", "lane_start"} <= set(COLUMNS)
    assert not TELLS_NOTHING & set(COLUMNS)


@pytest.mark.parametrize("option", [{"recompute": "always"}, {"recompute": "always", "recompute_start": "on-gradient"}], ids=str)
def test_graphs_that_were_lowered_otherwise_are_told_apart(option: dict[str, Any]) -> None:
    assert digest(compiled("1f1b", 2, 4, **option)) != digest(GRAPH)


def test_the_same_graph_is_the_same_whatever_it_is_called() -> None:
    again = compiled("1f1b", 2, 4)
    renamed = replace(again, program=replace(again.program, name="mine.csv"))
    assert digest(again) == digest(renamed) == digest(GRAPH)


def test_a_field_whose_text_has_an_address_is_refused_and_makes_no_graphs_differ() -> None:
    program = replace(GRAPH.program, num_micro_batches=object())  # type: ignore[arg-type]  # as a field of another type would be
    with pytest.raises(TypeError, match="a graph holds a object, of which processes cannot tell if it is the same"):
        digest(replace(GRAPH, program=program))


def test_other_ways_to_split_backwards_are_told_apart() -> None:
    own = setting_of(GRAPH, pipeline_of(mlp(2)), seed=0)
    assert own == setting_of(GRAPH, pipeline_of(mlp(2)), seed=0)
    assert own != setting_of(GRAPH, pipeline_of(mlp(2), split="differentiate"), seed=0)

from collections.abc import Callable
from typing import Any

import pytest

import schedir
from schedir.errors import ArgumentError
from simulator import simulate

PROGRAM = schedir.build_program("1f1b", num_devices=2, num_micro_batches=2)
GRAPH = schedir.compile_program(PROGRAM)
COSTS = schedir.UniformCosts()
PIPEDREAM = {"num_devices": 2, "num_micro_batches": 2, "num_mini_batches": 4}

MISTAKES: dict[str, tuple[Callable[..., Any], str]] = {
    "a program for a graph": (lambda: simulate(PROGRAM, COSTS), "graph <Program .* is of type Program, not TaskGraph: give what"),
    "no graph": (lambda: simulate(None, COSTS), "graph None is of type NoneType, not TaskGraph"),
    "no costs": (lambda: simulate(GRAPH, None), "costs None is of type NoneType, not CostModel: give UniformCosts"),
    "a dict for costs": (lambda: simulate(GRAPH, {"forward": 1}), r"costs \{'forward': 1\} is of type dict, not CostModel"),
    "a word for a cluster": (lambda: simulate(GRAPH, COSTS, cluster="x"), "cluster 'x' is of type str, not Cluster or NoneType"),
    "a name for a program": (lambda: schedir.compile_program("1f1b"), "program '1f1b' is of type str, not Program"),
    "a compiled program": (lambda: schedir.compile_program(GRAPH), "program <TaskGraph .* not Program"),
    "no recomputation": (lambda: schedir.compile_program(PROGRAM, recompute=None), "recompute None is of type NoneType"),
    "a number for recomputation": (lambda: schedir.compile_program(PROGRAM, recompute=3), "recompute 3 is of type int"),
    "no name": (lambda: schedir.build_program(None, **PIPEDREAM), "name None is of type NoneType, not str: give one of gpipe"),
    "one number of replicas": (
        lambda: schedir.build_program("pipedream", replicas=2, **PIPEDREAM),
        "replicas 2 is of type int, not Iterable: give the number of devices of each stage",
    ),
    "a huge integer": (lambda: schedir.UniformCosts(forward=10**400), "forward is beyond the largest float"),
    "no timeline": (lambda: schedir.metrics(None), "timeline None is of type NoneType, not Timeline"),
    "nothing to compare": (lambda: schedir.compare(None, None), "predicted None is of type NoneType, not Timeline"),
    "a number for a program file": (lambda: schedir.load_program(3), "source 3 is of type int, not str or Path"),
    "a NUL in a path": (lambda: schedir.load_program("a\0.toml"), r"source 'a\\x00.toml' has a NUL"),
    "no costs file": (lambda: schedir.load_costs(None), "path None is of type NoneType, not str or Path"),
    "no cluster file": (lambda: schedir.load_cluster(None), "path None is of type NoneType, not str or Path"),
    "no trace file": (lambda: schedir.load_timeline(3), "path 3 is of type int, not str or Path: give the path of a trace"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_value_of_another_type_is_explained_in_one_line(mistake: str) -> None:
    call, message = MISTAKES[mistake]

    with pytest.raises(ArgumentError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_replicas_may_come_from_a_generator() -> None:
    program = schedir.build_program("pipedream", replicas=(1 for _ in range(2)), **PIPEDREAM)

    assert program == schedir.build_program("pipedream", replicas=(1, 1), **PIPEDREAM)

from collections.abc import Callable
from typing import Any

import pytest

import schedir
from schedir.errors import ArgumentError
from schedir.expect import kind_of, with_article
from simulator import simulate

PROGRAM = schedir.build_program("1f1b", num_devices=2, num_micro_batches=2)
GRAPH = schedir.compile_program(PROGRAM)
COSTS = schedir.UniformCosts()
PIPEDREAM = {"num_devices": 2, "num_micro_batches": 2, "num_mini_batches": 4}

# what is given here is wrong on purpose, so no type checker is asked
NOTHING: Any = None
NUMBER: Any = 3
NAME: Any = "1f1b"
AS_GRAPH: Any = PROGRAM
AS_PROGRAM: Any = GRAPH
AS_COSTS: Any = {"forward": 1}

MISTAKES: dict[str, tuple[Callable[..., Any], str]] = {
    "a program for a graph": (lambda: simulate(AS_GRAPH, COSTS), "graph <Program .* is of type Program, not TaskGraph: give what"),
    "no graph": (lambda: simulate(NOTHING, COSTS), "graph None is of type NoneType, not TaskGraph"),
    "no costs": (lambda: simulate(GRAPH, NOTHING), "costs None is of type NoneType, not CostModel: give UniformCosts"),
    "a dict for costs": (lambda: simulate(GRAPH, AS_COSTS), r"costs \{'forward': 1\} is of type dict, not CostModel"),
    "a word for a cluster": (
        lambda: simulate(GRAPH, COSTS, cluster=NAME),
        "cluster '1f1b' is of type str, not Cluster or",
    ),
    "a name for a program": (lambda: schedir.compile_program(NAME), "program '1f1b' is of type str, not Program"),
    "a compiled program": (lambda: schedir.compile_program(AS_PROGRAM), "program <TaskGraph .* not Program"),
    "no recomputation": (lambda: schedir.compile_program(PROGRAM, recompute=NOTHING), "recompute None is of type NoneType"),
    "a number for recomputation": (lambda: schedir.compile_program(PROGRAM, recompute=NUMBER), "recompute 3 is of type int"),
    "no name": (lambda: schedir.build_program(NOTHING, **PIPEDREAM), "name None is of type NoneType, not str: give one of gpipe"),
    "one number of replicas": (
        lambda: schedir.build_program("pipedream", replicas=2, **PIPEDREAM),
        "replicas 2 is of type int, not Iterable: give the number of devices of each stage",
    ),
    "a huge integer": (lambda: schedir.UniformCosts(forward=10**400), "forward is beyond the largest float"),
    "no timeline": (lambda: schedir.metrics(NOTHING), "timeline None is of type NoneType, not Timeline"),
    "nothing to compare": (lambda: schedir.compare(NOTHING, NOTHING), "predicted None is of type NoneType, not Timeline"),
    "a number for a program file": (lambda: schedir.load_program(NUMBER), "source 3 is of type int, not str or Path"),
    "a NUL in a path": (lambda: schedir.load_program("a\0.toml"), r"source 'a\\x00.toml' has a NUL"),
    "no costs file": (lambda: schedir.load_costs(NOTHING), "path None is of type NoneType, not str or Path"),
    "no cluster file": (lambda: schedir.load_cluster(NOTHING), "path None is of type NoneType, not str or Path"),
    "no trace file": (lambda: schedir.load_timeline(NUMBER), "path 3 is of type int, not str or Path: give the path of a trace"),
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


@pytest.mark.parametrize(("value", "words"), [(object(), "an object"), (3, "an int"), ([], "a list"), (None, "a NoneType")])
def test_a_type_has_the_article_that_it_is_spoken_with(value: object, words: str) -> None:
    assert kind_of(value) == words


@pytest.mark.parametrize(("word", "words"), [("ndarray", "an ndarray"), ("Adam", "an Adam"), ("UserDict", "a UserDict")])
def test_a_word_has_the_article_that_it_is_spoken_with(word: str, words: str) -> None:
    assert with_article(word) == words

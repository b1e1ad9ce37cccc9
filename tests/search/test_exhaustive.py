"""The search against every order that there is: two devices, three micro-batches, bytes that the input gradient frees in part."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from schedir.costs.table.pieces import PieceBytes, PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.work import WorkTime
from schedir.search.problem.problem import Limits, Problem
from schedir.search.search import search_order

M = 3
SECONDS = {"F": 1, "I": 1, "W": 2}


def costs(*, activations: float, late: float) -> TableCosts:
    """F = I = 1 s, W = 2 s, free transfers; of the activations `late` bytes stay until W."""
    held = {"weights": 0.0, "gradients": 0.0, "optimizer": 0.0, "boundary": 0.0, "output": 0.0, "workspace": 0.0}
    row = PieceCosts(
        forward=WorkTime(1.0),
        input_grad=WorkTime(1.0),
        weight_grad=WorkTime(2.0),
        bytes=PieceBytes(activations=activations, activations_weight_grad=late, **held),
    )
    return TableCosts(rows=(row, row), transfer=0.0)


def device_orders(counts: tuple[int, int, int] = (0, 0, 0)) -> Iterator[str]:
    """Yield all orders of one device as letters; F, I and W each take the micro-batches in turn."""
    forwards, halves, ends = counts
    if ends == M:
        yield ""
        return
    for place, letter in enumerate("FIW"):
        if (M, forwards, halves)[place] > counts[place]:
            after = [count + (index == place) for index, count in enumerate(counts)]
            yield from (letter + rest for rest in device_orders((after[0], after[1], after[2])))


def peak(order: str, activations: int, late: int) -> int:
    """Return the most bytes held: F takes the activations, I leaves what W needs of them."""
    held, most = 0, 0
    for letter in order:
        held += {"F": activations, "I": late - activations, "W": -late}[letter]
        most = max(most, held)
    return most


def makespan(first: str, last: str) -> float:
    """Return when both devices have done; infinite if they wait for each other."""
    orders, clock, place = (first, last), [0.0, 0.0], [0, 0]
    ends: dict[tuple[int, str, int], float] = {}
    turns = [dict.fromkeys("FIW", 0) for _ in orders]
    while place != [3 * M, 3 * M]:
        moved = False
        for device, order in enumerate(orders):
            if place[device] == 3 * M:
                continue
            letter = order[place[device]]
            j = turns[device][letter]
            needs = {("F", 1): (0, "F", j), ("I", 0): (1, "I", j)}.get((letter, device))
            if needs is not None and needs not in ends:
                continue
            clock[device] = ends[device, letter, j] = max(clock[device], 0.0 if needs is None else ends[needs]) + SECONDS[letter]
            turns[device][letter] += 1
            place[device] += 1
            moved = True
        if not moved:
            return float("inf")
    return max(clock)


def optimum(activations: int, late: int, limit: int) -> float:
    orders = [order for order in device_orders() if peak(order, activations, late) <= limit]
    return min(makespan(*both) for both in product(orders, orders))


def test_there_are_as_many_orders_as_tableaux() -> None:
    """Standard Young tableaux of three rows of three: 42 (hook lengths)."""
    assert len(list(device_orders())) == 42


@pytest.mark.parametrize(("activations", "late", "limit"), [(10, 1, 12), (10, 1, 22), (10, 10, 20), (10, 14, 24), (10, 14, 34)])
def test_no_bound_is_above_the_best_order_and_the_search_finds_it(activations: int, late: int, limit: int) -> None:
    problem = Problem(
        num_devices=2,
        num_micro_batches=M,
        costs=costs(activations=activations, late=late),
        limits=Limits(bytes=limit),
    )
    found, best = search_order(problem, iterations=3000), optimum(activations, late, limit)
    assert found.bound <= best
    assert found.best.value == best


def test_what_the_input_gradient_frees_makes_room() -> None:
    """With 12 bytes and 1 of 10 left until W a second forward may come before the first W; with all of them it may not."""
    assert optimum(10, 1, 12) == 14
    assert optimum(10, 10, 12) == 18

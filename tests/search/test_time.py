"""The time of a search holds wherever it is: on a clock that goes on a little at every look, not on this machine's."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, count, repeat
from types import SimpleNamespace

import pytest

from schedir.costs.files.costs_file import load_costs
from schedir.search import found as budget
from schedir.search.branch import Branch, OutOfTime
from schedir.search.found import Stop
from schedir.search.problem.problem import Limits, Problem
from schedir.search.search import search_order
from tests.repository import ROOT
from tests.search.problems import problem_of

COSTS = ROOT / "tests" / "data" / "stages.costs.toml"


def set_clock(monkeypatch: pytest.MonkeyPatch, clock: Callable[[], float]) -> None:
    monkeypatch.setattr(budget, "time", SimpleNamespace(monotonic=clock))


def limited() -> Problem:
    """Return a problem whose search takes some thousand steps, in rounds."""
    return Problem(num_devices=4, num_micro_batches=8, costs=load_costs(COSTS), limits=Limits(bytes=26e9))


def test_rounds_of_local_search_end_when_the_time_is_up_and_leave_an_order_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 looks of 10 ms are all that 0.2 s hold, so no more than 20 steps."""
    set_clock(monkeypatch, (0.01 * look for look in count()).__next__)

    found = search_order(limited(), seconds=0.2)

    assert found.stopped is Stop.TIME
    assert found.steps <= 20
    assert found.best.fits


def test_rounds_of_local_search_leave_none_of_the_time_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, (0.001 * look for look in count()).__next__)

    assert search_order(limited(), seconds=1.0).stopped is Stop.TIME


def test_reading_the_costs_and_bounds_counts_as_time_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done first takes a second of 0.5 s: nothing is left for local search."""
    now = [0.0]
    check_fit = Branch.check_fit

    def slow(branch: Branch) -> None:
        now[0] += 1.0
        check_fit(branch)

    set_clock(monkeypatch, lambda: now[0])
    monkeypatch.setattr(Branch, "check_fit", slow)

    found = search_order(limited(), seconds=0.5)

    assert (found.steps, found.stopped) == (0, Stop.TIME)


def test_every_placement_has_its_part_of_the_time_for_known_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.3 s of 1 s are gone: 0.2 s were the loop's, the V has until 0.4 s."""
    said = []

    def ask(branch: Branch, _: object, out_of_time: OutOfTime) -> None:
        said.append((branch.placement.value, out_of_time()))

    set_clock(monkeypatch, chain([0.0], repeat(0.3)).__next__)
    monkeypatch.setattr(Branch, "enter_listed", ask)

    search_order(problem_of(3, 4, stages_per_device=3, live=4), seconds=1.0, iterations=2)

    assert said == [("loop", True), ("v", False)]


@pytest.mark.parametrize(("seconds", "is_out"), [(1.0, [False, True]), (None, [False, False])])
def test_new_starts_take_half_of_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, seconds: float | None, is_out: list[bool]
) -> None:
    """Asked when nothing of it is gone and 0.6 s later; nothing is out of time where only iterations are limited."""
    now, said = [0.0], []

    def ask(_: Branch, __: object, ___: object, out_of_time: OutOfTime) -> None:
        for later in (0.0, 0.6):
            now[0] = later
            said.append(out_of_time())

    set_clock(monkeypatch, lambda: now[0])
    monkeypatch.setattr(Branch, "tighten", ask)
    enter = Branch.enter
    monkeypatch.setattr(Branch, "enter", lambda branch, orders: replace(enter(branch, orders), fits=False))

    search_order(limited(), seconds=seconds, iterations=12)

    assert said[:2] == is_out

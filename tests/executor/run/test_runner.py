"""One task: what it takes, when it is recorded, what it hands over, and what it frees."""

from dataclasses import dataclass
from typing import Any

import pytest

from executor.run.runner import BoundTask, Half, PartSink, Share, carry_out, run_both


@dataclass
class Told:
    """A port and a recorder that write down what happens to them."""

    calls: list[str]
    name: str = ""

    def put(self, value: object) -> None:
        self.calls.append(f"{self.name} gets {value}")

    def take(self) -> str:
        self.calls.append(f"{self.name} is taken")
        return self.name

    def wait(self) -> None:
        self.calls.append(f"{self.name} is there")

    def free(self) -> None:
        self.calls.append(f"{self.name} is free")

    def begin(self, task: int) -> None:
        self.calls.append(f"begin {task}")

    def finish(self, task: int) -> None:
        self.calls.append(f"finish {task}")


def test_a_task_is_recorded_between_what_it_waits_for_and_what_it_hands_over() -> None:
    calls: list[str] = []

    def body(*values: str) -> str:
        calls.append(f"work on {' '.join(values)}")
        return "made"

    awaited, first, second, sink, freed = (Told(calls, name) for name in ("awaited", "first", "second", "sink", "freed"))
    recorder: Any = Told(calls)
    carry_out(BoundTask(7, (awaited,), (first, second), body, (sink,), (freed,)), recorder)

    assert calls == [
        "awaited is there",
        "first is taken",
        "second is taken",
        "begin 7",
        "work on first second",
        "finish 7",
        "sink gets made",
        "freed is free",
    ]


def test_a_task_that_fails_hands_nothing_over_and_frees_nothing() -> None:
    calls: list[str] = []
    recorder: Any = Told(calls)

    def body() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        carry_out(BoundTask(7, (), (), body, (Told(calls, "sink"),), (Told(calls, "freed"),)), recorder)
    assert calls == ["begin 7"]


@pytest.mark.parametrize(("takes", "expected"), [(0, ("F", "Babc")), (1, ("Fa", "Bbc")), (2, ("Fab", "Bc")), (3, ("Fabc", "B"))])
def test_a_pair_gives_its_forward_the_first_values_and_its_backward_the_rest(takes: int, expected: tuple[str, str]) -> None:
    assert run_both(lambda *given: "F" + "".join(given), lambda *given: "B" + "".join(given), takes, "a", "b", "c") == expected


def test_a_pair_runs_its_forward_first() -> None:
    calls: list[str] = []
    run_both(lambda: calls.append("F"), lambda: calls.append("B"), 0)

    assert calls == ["F", "B"]


def test_sinks_of_a_half_a_part_and_a_share_take_what_is_theirs() -> None:
    calls: list[str] = []
    sink = Told(calls, "sink")
    for half in (0, 1):
        Half(sink, half).put(("forward", "backward"))
    PartSink(sink, 1).put(("neighbour", "skip"))
    PartSink(sink, 1).put(None)  # an emulated task makes nothing
    Share(lambda: "sum", sink).put("what the task returned")

    assert calls == ["sink gets forward", "sink gets backward", "sink gets skip", "sink gets None", "sink gets sum"]

"""What the updates of one device wait for where all stages decide together."""

from dataclasses import dataclass, field

import pytest

from executor.plan.decisions import PlannedDecision
from executor.run.decision import Meeting, decision_plan


@dataclass
class Told:
    """An exchange that writes down who does what."""

    calls: list[str] = field(default_factory=list)

    def member(self, number: int) -> "_End":
        return _End(self, f"member {number}")

    def taker(self, number: int) -> "_End":
        return _End(self, f"taker {number}")


@dataclass
class _End:
    told: Told
    name: str

    def put(self, value: object) -> None:
        self.told.calls.append(f"{self.name} puts {value}")

    def take(self) -> bool:
        self.told.calls.append(f"{self.name} takes")
        return True

    def wait(self) -> None:
        raise AssertionError("a value that is left would be there in the next pass")

    def free(self) -> None:
        self.told.calls.append(f"{self.name} frees")


@pytest.mark.parametrize("num_updates", [1, 2, 3])
def test_in_every_pass_the_first_update_of_a_device_waits_and_the_others_do_not(num_updates: int) -> None:
    told = Told()
    meeting = Meeting(told, 4, num_updates=num_updates)
    for _ in range(2):  # passes
        told.calls.clear()
        for _ in range(num_updates):
            meeting.wait()

        assert told.calls == ["member 4 puts True", "taker 4 takes"]


def test_taking_is_waiting_and_nothing_was_lent() -> None:
    told = Told()
    meeting = Meeting(told, 0, num_updates=1)
    meeting.take()
    meeting.free()

    assert told.calls == ["member 0 puts True", "taker 0 takes"]


def test_all_devices_that_decide_are_members_and_takers_of_plain_values() -> None:
    plan = decision_plan(PlannedDecision(task=7, update=1, devices=(0, 2), takers=(3, 9)))

    assert (plan.task, plan.members, plan.takers, plan.plain) == (7, (0, 2), (0, 2), True)
    assert [plan.total(there) for there in ((True, True), (True, False), (False, True))] == [True, False, False]

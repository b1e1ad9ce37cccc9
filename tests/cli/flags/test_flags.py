"""Groups of options become flags, and what stands behind a flag becomes a value."""

from dataclasses import fields
from typing import Any

import pytest

from schedir.cli.flags.options import ChoosingOptions, ScheduleOptions
from schedir.cli.flags.values import counts, memory, named_value, times
from schedir.errors import ArgumentError
from schedir.schedules.registry import SCHEDULES


def test_every_option_of_every_schedule_has_its_flag() -> None:
    """Whoever adds a schedule with a new option adds the flag to ScheduleOptions, or to ChoosingOptions if it goes with costs."""
    flags = {member.name: member.metadata["flag"].name for member in fields(ChoosingOptions)}
    options = {option for schedule in SCHEDULES.values() for option in schedule.options} - {"costs"}  # those of --forward …

    assert options - set(flags) == set()
    assert {option: flags[option] for option in options} == {option: f"--{option.replace('_', '-')}" for option in options}


@pytest.mark.parametrize(
    ("text", "value"),
    [("group=2", ("group", 2)), ("rate=0.5", ("rate", 0.5)), ("fast=true", ("fast", True)), ("my-sizes=1,2", ("my_sizes", (1, 2)))],
)
def test_any_other_option_is_a_named_value(text: str, value: tuple[str, Any]) -> None:
    assert named_value(text) == value


def test_options_are_chosen_by_name() -> None:
    options = ScheduleOptions(order="fifo", horizon="exact", option=(("group", 2),))

    assert options.only({"horizon", "group"}).given() == {"horizon": "exact", "group": 2}


def test_lists_and_amounts() -> None:
    assert times("1,2.5") == (1.0, 2.5)
    assert counts("2,1") == (2, 1)
    assert memory("80 GB") == memory("8e10") == 80e9
    with pytest.raises(ArgumentError, match="comma-separated"):
        counts("2,,1")

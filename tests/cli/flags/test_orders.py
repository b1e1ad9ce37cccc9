"""Schedules whose order follows costs: a line says so wherever it is not the fixed order.

docs/schedules/zb-v.md: p = 4, m = 8, F = I = W = 1 and transfers of 0.1 take 52.3 s in the fixed order.
"""

import json

import pytest

from tests.cli.command import Command

WORDS = ("zb-v", "--transfer", 0.1)
LINE = "zb-v: order chosen for these costs; the fixed one takes 52.3 s in all: --fixed-order"


def test_simulate_says_that_the_order_follows_the_costs(command: Command) -> None:
    said = command.succeed("simulate", *WORDS)
    found = json.loads(command.succeed("simulate", *WORDS, "--json"))

    assert f"note: {LINE}" in said.splitlines()
    assert LINE in found["notes"]
    assert found["makespan_s"] < 52.3


def test_the_fixed_order_is_kept_on_demand(command: Command) -> None:
    found = json.loads(command.succeed("simulate", *WORDS, "--fixed-order", "--json"))

    assert found["makespan_s"] == 52.3
    assert not any("order" in note for note in found["notes"])


def test_an_order_that_the_costs_do_not_change_needs_no_line(command: Command) -> None:
    """F = I = W = 1 without transfers: the fixed order has no bubble but the p - 1 slots of the start."""
    assert "order chosen" not in command.succeed("simulate", "zb-v", "--forward", 1, "--input-grad", 1, "--weight-grad", 1)


def test_compare_and_plot_say_so_too(command: Command) -> None:
    lines = command.succeed("compare", *WORDS).splitlines()
    drawn = command.succeed("plot", *WORDS, "-o", "zb-v.svg").splitlines()
    kept = json.loads(command.succeed("compare", *WORDS, "--fixed-order", "--json"))

    assert "note: zb-v: order chosen for these costs; the fixed one takes 52.3 s per mini-batch: --fixed-order" in lines
    assert drawn == ["wrote zb-v.svg", f"note: {LINE.replace('in all', 'per mini-batch')}"]
    assert kept["schedules"][0]["makespan_s"] == 52.3


def test_show_says_that_its_order_is_the_fixed_one(command: Command) -> None:
    assert command.succeed("show", "zb-v").splitlines()[-1].startswith("order: the fixed one; simulate, compare and plot choose")
    assert "order:" not in command.succeed("show", "zb-h1")


@pytest.mark.parametrize("name", ["simulate", "compare"])
def test_a_limit_does_not_go_with_the_fixed_order(command: Command, name: str) -> None:
    said = command.fail(name, *WORDS, "--fixed-order", "--activation-limit", 4)

    assert said == "--activation-limit 4 chooses an order by costs, --fixed-order takes none: leave one of them out"

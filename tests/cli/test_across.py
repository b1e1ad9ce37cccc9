"""`--skips`, `--ties` and `--common-update`: a schedule for a model whose stages have more than the chain between them."""

import json
from pathlib import Path

import pytest
from typer.main import get_command

from schedir.cli.app import app
from tests.cli.command import Command

SHAPE = ("--devices", "3", "--micro-batches", "2")


def test_show_says_which_way_skips_go_and_what_ties_exchange(command: Command) -> None:
    printed = command.succeed("show", "1f1b", *SHAPE, "--skips", "0-2", "--ties", "0-2")

    assert "skip connections, each over a link of its own: 0 to 2" in printed
    assert "tied weights: stages 0 and 2 hold the same" in printed
    assert "a copy on devices 0, 2, exchanged once per mini-batch" in printed
    assert "skip connections" not in command.succeed("show", "1f1b", *SHAPE)


def test_show_says_that_one_device_needs_no_exchange(command: Command) -> None:
    printed = command.succeed("show", "zb-v", "--devices", "2", "--micro-batches", "4", "--ties", "0-3")

    assert "one copy on device 0, nothing is exchanged" in printed


def test_show_says_what_no_update_comes_before(command: Command) -> None:
    said = "common update: no stage updates before all have their gradients of the mini-batch: all devices exchange a number once"

    assert said in command.succeed("show", "1f1b", *SHAPE, "--common-update")
    assert "common update" not in command.succeed("show", "1f1b", *SHAPE)


def test_simulate_predicts_what_a_common_update_costs(command: Command) -> None:
    """m = 2, F = 1, B = 2: the last stage ends at 2 + 6 = 8, the first at 12; then the last one's update of 9 s is not hidden."""
    given = ("simulate", "1f1b", *SHAPE, "--update", "0,0,9", "--json")
    alone, together = (json.loads(command.succeed(*given, *more)) for more in ((), ("--common-update",)))

    assert (alone["makespan_s"], together["makespan_s"]) == (17.0, 21.0)


def test_compare_predicts_what_a_common_update_costs_every_schedule(command: Command) -> None:
    found = json.loads(command.succeed("compare", "gpipe", "1f1b", *SHAPE, "--update", "0,0,9", "--common-update", "--json"))

    assert [side["makespan_s"] for side in found["schedules"]] == [21, 21]


def test_search_says_what_its_bound_is_of(command: Command) -> None:
    found = json.loads(
        command.succeed("search", *SHAPE, "--common-update", "--split-backward", "no", "--iterations", "5", "--json")
    )

    assert any(note.startswith("a common update: orders are sought along the chain") for note in found["notes"])


def test_a_common_update_without_a_flush_is_refused(command: Command) -> None:
    refused = command.fail("simulate", "xpipe", *SHAPE, "--common-update")

    assert "never has the gradients of all stages at one moment" in refused
    assert 'clip=Clip(…, per="stage")' in refused


@pytest.fixture
def wired(command: Command) -> tuple[str, ...]:
    """Return the flags of three devices that take one micro-batch: a hand-over takes 1 s, over the skip connection 10 s."""
    assert command is not None  # it has made the empty folder
    Path("three.cluster.toml").write_text(
        'schema = "schedir.cluster/1"\n[device]\nmemory = "1 GB"\n[hosts]\ncount = 1\ndevices_per_host = 3\n'
        '[[links]]\nname = "wire"\njoins = "host"\nbandwidth = "1 MB/s"\nlatency = "0 s"\n',
        encoding="utf-8",
    )
    return ("--devices", "3", "--micro-batches", "1", "--cluster", "three.cluster.toml", "--transfer-bytes", "1 MB")


SKIP = ("--skips", "0-2", "--skip-bytes", "10 MB")
# F 1 s, B 2 s: F2 waits for the skip until 1 + 10 s and ends at 12, B2 at 14; its gradient is back at 14 + 10 s, and B0 ends at 26.
# Without it the chain alone: (1 + 1 + 1 + 1 + 1) + (2 + 1 + 2 + 1 + 2) = 13 s.


def test_simulate_predicts_what_skips_cost(command: Command, wired: tuple[str, ...]) -> None:
    alone, skipping = (json.loads(command.succeed("simulate", "1f1b", *wired, "--json", *more)) for more in ((), SKIP))

    assert (alone["makespan_s"], skipping["makespan_s"]) == (13, 26)


def test_compare_predicts_what_skips_cost_every_schedule(command: Command, wired: tuple[str, ...]) -> None:
    found = json.loads(command.succeed("compare", "gpipe", "1f1b", *wired, *SKIP, "--json"))

    assert [side["makespan_s"] for side in found["schedules"]] == [26, 26]


def test_search_judges_orders_with_skips_and_says_what_its_bound_is_of(command: Command, wired: tuple[str, ...]) -> None:
    found = json.loads(command.succeed("search", *wired, *SKIP, "--split-backward", "no", "--iterations", "5", "--json"))

    assert (found["value_s"], found["bound_s"], found["optimal"]) == (26, 13, False)
    assert any(note.startswith("skip connections: orders are sought along the chain of stages") for note in found["notes"])


def test_plot_draws_the_graph_with_skips_and_ties(command: Command) -> None:
    assert command.succeed("plot", "1f1b", *SHAPE, "--skips", "0-2", "--ties", "0-2", "--links", "-o", "out/x.svg")
    assert "--skips 0-1 lead over no stage" in command.fail("plot", "1f1b", *SHAPE, "--skips", "0-1", "-o", "out/x.svg")


@pytest.mark.parametrize("name", ["show", "check", "simulate", "compare", "plot", "search"])
def test_every_command_that_compiles_a_schedule_has_them_all(name: str) -> None:
    flags = {flag for parameter in get_command(app).commands[name].params for flag in parameter.opts}  # type: ignore[attr-defined]

    assert {"--skips", "--ties", "--common-update", "--recompute", "--recompute-start"} <= flags


def test_stages_of_schedules_that_are_compared_are_the_same(command: Command) -> None:
    refused = command.fail("compare", "gpipe", "zb-v", "--ties", "0-3")

    assert refused == (
        "skip connections and ties name stages, but gpipe has 4 and zb-v 8: compare schedules with equally many stages"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--skips", "0-2-1"), "--skips 0-2-1 has 3 stages: give two for each, as 0-2"),
        (("--skips", "0-1"), "--skips 0-1 lead over no stage of 0..2: give a target 2 or more behind its source"),
        (("--ties", "0"), "--ties 0 do not name stages of 0..2: give two or more for each tie, each once"),
        (("--ties", "x"), "--ties x must be stages joined by -, comma-separated, as 0-2,1-3"),
    ],
)
def test_what_is_no_pair_of_stages_is_refused(command: Command, flags: tuple[str, ...], message: str) -> None:
    assert message in command.fail("show", "1f1b", *SHAPE, *flags)


def test_check_trains_no_skips(command: Command) -> None:
    refused = command.fail("check", "1f1b", *SHAPE, "--skips", "0-2", "--gradients")

    assert "--gradients trains equal layers without skip connections" in refused

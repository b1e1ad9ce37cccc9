"""`schedir simulate`: the JSON object, the text, the files."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from schedir.costs.uniform import UniformCosts
from tests.cli.command import Command
from tests.repository import ROOT
from tests.schedules.stored import timed

SCHEMA = json.loads((ROOT / "tests" / "data" / "simulate-1.schema.json").read_text())
STAGES = ROOT / "tests" / "data" / "stages.costs.toml"

# 1f1b, p = 4, m = 8, F = 1, B = 2: makespan (m + p - 1)(F + B) = 33, bubble (p - 1)/(m + p - 1) = 3/11.
LINES = """\
schedule  1f1b: 4 devices, 4 stages, 1 mini-batch of 8 micro-batches, recompute never
costs     uniform (assumed): forward 1 s, backward 2 s; engine in-order
time      33 s in all, 33 s per mini-batch
bubble    27.3 % of the whole run = 1 - busy / (devices x time)
path      critical path of 22 tasks: forward 11 s, backward 22 s
memory    bytes not modelled, at most 4 live activations on a device; weights latest: 1 version, staleness 0
"""
DEVICES = """\
in s: device stages busy idle start-up drain dependency live
0 0 24 9 0 0 9 4
1 1 24 9 1 2 6 3
2 2 24 9 2 4 3 2
3 3 24 9 3 6 0 1
"""
NOTES = """\
note: transfers are free: neither --transfer nor --cluster was given
note: memory is not computed: uniform costs carry no bytes
"""


def report(command: Command, *words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command.succeed("simulate", *words, "--json"))
    jsonschema.validate(found, SCHEMA)
    return found


def test_the_json_is_that_of_the_format_s_example(command: Command) -> None:
    expected = json.loads((ROOT / "tests" / "data" / "1f1b-4-8.simulate.json").read_text())

    assert report(command, "1f1b", "--devices", 4, "--micro-batches", 8) == expected


def test_the_text_is_six_lines_a_table_bars_and_notes(command: Command) -> None:
    text = command.succeed("simulate", "1f1b")
    lines = [line for line in text.splitlines() if line.strip("─ ")]

    assert "\n".join(lines[:6]) + "\n" == LINES
    assert [line.split() for line in lines[6:11]] == [line.split() for line in DEVICES.splitlines()]
    assert [line[:10] for line in lines[11:15]] == ["device 0 |", "device 1 |", "device 2 |", "device 3 |"]
    assert lines[15].split() == ["0", "to", "33", "s", "F-", "forward", "B=", "backward", ".", "idle"]
    assert "\n".join(lines[16:]) + "\n" == NOTES


@pytest.mark.parametrize("columns", [60, 100, 160])
def test_bars_fit_the_terminal(command: Command, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    bars = [line for line in command.succeed("simulate", "xpipe").splitlines() if "|" in line]

    assert [len(line) for line in bars] == [columns] * 4


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_bars_are_cut_where_forwards_would_lose_their_number(
    command: Command, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """At three columns a second, which F10 needs, no mini-batch fits."""
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = command.succeed("simulate", "gpipe", "--micro-batches", 16).splitlines()
    bars = [line for line in lines if line.startswith("device ")]
    (cut,) = (line for line in lines if line.startswith("cut: "))

    assert {len(line) for line in bars} == {columns}
    assert all(f"F{number}" in bars[0] for number in range(10))
    wide = cut.partition("COLUMNS=")[2].split()[0]
    monkeypatch.setenv("COLUMNS", wide)
    lines = command.succeed("simulate", "gpipe", "--micro-batches", 16).splitlines()
    assert not [line for line in lines if line.startswith("cut: ")]
    assert {len(line) for line in lines if line.startswith("device ")} == {int(wide)}


def test_bars_are_cut_behind_the_last_whole_mini_batch(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPipe, p = 4, m = 4: a mini-batch takes (m + p - 1)(F + B) = 21 s; at 3 columns a second, one of three fits 109."""
    monkeypatch.setenv("COLUMNS", "120")
    said = command.succeed("simulate", "gpipe", "--micro-batches", 4, "--mini-batches", 3)

    assert "cut: 0 to 21 s of 63 s, 1 whole mini-batch; " in said


@pytest.mark.parametrize("times", ["1e-18 1", "1e-300 1e9", "1e-9 1000"])
def test_work_that_takes_next_to_nothing_does_not_set_the_scale(
    command: Command, monkeypatch: pytest.MonkeyPatch, times: str
) -> None:
    """1F1B, p = 2, m = 4: backwards fill both rows; a scale for the forwards would need 10^9 columns and more."""
    monkeypatch.setenv("COLUMNS", "100")
    forward, backward = times.split()
    said = command.succeed("simulate", "1f1b", "--devices", 2, "--micro-batches", 4, "--forward", forward, "--backward", backward)
    bars = [line for line in said.splitlines() if line.startswith("device ")]

    assert "cut: " not in said
    assert [[f"B{number}=" in line for number in range(4)] for line in bars] == [[True] * 4] * 2


# GPipe, p = 4, m = 4, F = R = 1, B = 2, known problem D20: counted on figure 2c of the GPipe paper (Huang et al. 2019), with the
# early start of recomputation in its section 2.3.
MAKESPANS = {
    ("never", "early"): 21,
    ("except-last", "early"): 24,
    ("always", "early"): 25,
    ("except-last", "on-gradient"): 27,
    ("always", "on-gradient"): 28,
}


@pytest.mark.parametrize("how", MAKESPANS)
def test_recomputation_is_passed_on(command: Command, how: tuple[str, str]) -> None:
    found = report(command, "gpipe", "--micro-batches", 4, "--recompute", how[0], "--recompute-start", how[1])

    assert (found["recompute"], found["recompute_start"]) == how
    assert found["makespan_s"] == MAKESPANS[how]


def test_times_are_in_the_unit_that_is_named_those_not_given_too(command: Command) -> None:
    """(m + p - 1)(F + B) for p = 2, m = 2, F = 1 ms, B = 2 ms."""
    given = report(command, "gpipe", "--devices", 2, "--micro-batches", 2, "--unit", "ms")

    assert given["makespan_s"] == pytest.approx(0.009)
    assert given["costs"]["backward_s"] == [0.002, 0.002]


def test_one_time_per_stage(command: Command) -> None:
    """One micro-batch runs through all stages: 1 + 2 + 3 forwards and 4 + 5 + 6 backwards."""
    words = ("gpipe", "--devices", 3, "--micro-batches", 1, "--forward", "1,2,3", "--backward", "4,5,6")

    assert report(command, *words)["makespan_s"] == 21


def test_both_engines_agree(command: Command) -> None:
    words = ("xpipe", "--transfer", 0.25, "--update", 0.5, "--predict", 0.125)
    one, other = (report(command, *words, "--engine", engine) for engine in ("in-order", "simpy"))

    assert (one.pop("engine"), other.pop("engine")) == ("in-order", "simpy")
    assert one == other


def test_options_of_schedules(command: Command) -> None:
    replicated = report(command, "pipedream", "--replicas", "2,1,1", "--micro-batches", 1)
    horizons = report(command, "xpipe", "--horizon", 2)
    synced = report(command, "pipedream", "--weights", "vertical-sync", "--micro-batches", 1)

    assert [stage["devices"] for stage in replicated["stages"]] == [[0, 1], [2], [3]]
    assert [stage["horizon_forward"] for stage in horizons["stages"]] == [2, 2, 2, 2]
    assert [stage["staleness"] for stage in synced["stages"]] == [3, 3, 3, 3]
    assert synced["weights"] == "vertical-sync"


def test_sizes_give_samples_per_second(command: Command) -> None:
    """Eight micro-batches of 4 samples in 33 s."""
    one = report(command, "1f1b", "--micro-batch-size", 4)
    other = report(command, "1f1b", "--mini-batch-size", 32)

    assert one == other
    assert (one["micro_batch_size"], one["mini_batch_size"]) == (4, 32)
    assert one["samples_per_s"] == pytest.approx(32 / 33)


def test_costs_of_a_file_are_resized(command: Command) -> None:
    one = report(command, "1f1b", "--costs", STAGES)
    other = report(command, "1f1b", "--costs", STAGES, "--micro-batch-size", 2)

    assert one["costs"]["forward_s"] == [0.021, 0.018522, 0.018522, 0.018522]
    assert other["costs"]["forward_s"] == pytest.approx([0.042, 0.037044, 0.037044, 0.037044])
    assert one["costs"]["transfer_s"] == pytest.approx(0.000601)


def test_a_transfer_time_takes_the_place_of_the_file_s(command: Command) -> None:
    found = report(command, "1f1b", "--costs", STAGES, "--transfer", 5, "--unit", "ms")

    assert found["costs"]["transfer_s"] == pytest.approx(0.005)


def test_the_costs_line_says_who_times_transfers(command: Command) -> None:
    """The file's transfer latency is 601 us; a cluster's links take its place."""
    cluster = ROOT / "examples" / "h100-64.cluster.toml"
    own, linked = (
        command.succeed("simulate", "1f1b", "--costs", STAGES, *words).splitlines()[1] for words in ([], ["--cluster", cluster])
    )

    assert "transfer 601 µs" in own
    assert "transfer 601 µs" not in linked
    assert "transfers by cluster 8 hosts x 8 H100" in linked


def test_a_memory_limit_gives_a_verdict_and_may_be_required(command: Command) -> None:
    words = ("1f1b", "--costs", STAGES, "--memory-limit", "10 GB")
    found = report(command, *words)

    assert found["fits"] is False
    assert found["verdict"].startswith("device 0: ")
    assert "> 10.0 GB" in found["verdict"]
    assert command.fail("simulate", *words, "--require-fit") == found["verdict"]
    assert report(command, *words[:-1], "80 GB", "--require-fit")["fits"] is True


def test_memory_that_is_too_little_is_said_in_words(command: Command) -> None:
    """Device 0 holds 3.2 + 4.2 + 12.6 GB, four micro-batches of 1.1 GB and a workspace of 0.4 GB: 24.8 GB."""
    said = command.succeed("simulate", "1f1b", "--costs", STAGES, "--memory-limit", "2 GB")
    line = next(line for line in said.splitlines() if line.startswith("memory"))

    assert "does not fit: device 0 needs 24.8 GB and has 2 GB; most of it is optimizer, 12.6 GB, at " in line
    assert "; what helps: more devices, an optimizer with less state; weights" in line


def test_a_cluster_gives_transfers_their_time(command: Command) -> None:
    """H100 hosts: 36 MB over 450 GB/s x 0.8 are 100 us, and 3 us of latency; there and back twice for two micro-batches."""
    cluster = ROOT / "tests" / "data" / "h100-64.cluster.toml"
    words = ("gpipe", "--devices", 2, "--micro-batches", 1, "--unit", "ms", "--cluster", cluster)
    found = report(command, *words, "--transfer-bytes", "36 MB")

    assert found["cluster"]["name"] == "8 hosts x 8 H100"
    assert found["makespan_s"] == pytest.approx(0.006 + 2 * 103e-6)
    assert [link["bytes"] for link in found["links"]] == [36_000_000, 36_000_000]
    assert "transfers would be free" in command.fail("simulate", *words)


def test_percentiles_over_drawn_durations(command: Command) -> None:
    words = ("1f1b", "--jitter", 0.05, "--seed", 3, "--samples", 50)
    found = report(command, *words)
    drawn = found["percentiles"]

    assert (drawn["samples"], drawn["seed"]) == (50, 3)
    assert 33 < drawn["seconds_per_mini_batch"]["p50"] < drawn["seconds_per_mini_batch"]["p99"] < 40
    assert report(command, *words) == found
    assert "over 50 draws: mean " in command.succeed("simulate", *words)


def test_layers_are_cut_into_stages(command: Command) -> None:
    costs = ROOT / "tests" / "data" / "measured.costs.json"
    words = ("gpipe", "--devices", 2, "--costs", costs)
    found = report(command, *words, "--layers-per-stage", "1,1")

    assert [stage["layers"] for stage in found["stages"]] == [["embed"], ["blocks.0"]]
    assert "no cut into 2 stages: give layers per stage" in command.fail("simulate", *words)


def test_a_trace_and_a_picture_are_written(command: Command) -> None:
    text = command.succeed("simulate", "1f1b", "--trace", "out/t.json", "--plot", "out/t.svg")

    assert text.splitlines()[-2:] == ["wrote     out/t.svg", "wrote     out/t.json"]
    assert json.loads(Path("out/t.json").read_text())["traceEvents"]
    assert Path("out/t.svg").read_text().lstrip().startswith("<?xml")


def test_m_smaller_than_p_and_one_device(command: Command) -> None:
    """Known problem D1: p = 4, F = 1, B = 2: m = 2 takes 15 (bubble 0.6), m = 1 takes 12 (bubble 0.75)."""
    for name in ("gpipe", "1f1b"):
        two, one = (report(command, name, "--micro-batches", m) for m in (2, 1))
        assert (two["makespan_s"], two["bubble_fraction"]) == (15, 0.6)
        assert (one["makespan_s"], one["bubble_fraction"]) == (12, 0.75)
        assert report(command, name, "--devices", 1)["bubble_fraction"] == 0


def test_costs_that_are_given_choose_the_order_of_schedules_that_follow_them(command: Command) -> None:
    """Never longer than the fixed order under the same costs."""
    costs = ("--forward", "1", "--input-grad", "2", "--weight-grad", "1", "--transfer", "0.2")
    found = report(command, "v-half", *costs)
    fixed = timed("v-half", 4, 8, costs=UniformCosts(forward=1, input_grad=2, weight_grad=1, transfer=0.2)).makespan

    assert found["makespan_s"] < fixed
    assert max(device["peak_live_activations"] for device in found["devices"]) <= 6


def test_an_activation_limit_holds_for_such_an_order(command: Command) -> None:
    found = report(command, "zb-v", "--activation-limit", 5)

    assert max(device["peak_live_activations"] for device in found["devices"]) <= 5
    assert command.fail("show", "zb-v", "--option", "activation-limit=5") == (
        "activation_limit 5 chooses an order by costs: give costs too, or leave it out"
    )


def test_waves_and_whole_backwards_are_options_of_hanayo(command: Command) -> None:
    found = report(command, "hanayo", "--waves", 2, "--split-backward", "no")

    assert (found["num_stages"], found["devices"][0]["weight_grad_s"]) == (16, 0)
    assert command.fail("simulate", "hanayo", "--split-backward", "maybe") == "--split-backward maybe must be yes or no"

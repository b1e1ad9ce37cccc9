"""`schedir compare`: schedules side by side on the same work."""

import json
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest

from schedir.compiler import load_timeline
from schedir.ir.action import Kind
from schedir.ir.order.in_order import TaskTimes, evaluate
from schedir.timeline.timeline import Source, Timeline
from schedir.timeline.trace.trace import write_trace
from tests.cli.command import Command
from tests.repository import ROOT
from tests.timeline.build import two_devices_by_hand

# p = 4, m = 8, F = 1, B = 2: (m + p - 1)(F + B) = 33 a mini-batch with a flush, m (F + B) = 24 without one.
TABLE = """\
schedule  m  per mini-batch  slower  steady bubble  recompute live  versions  staleness
gpipe     8  33 s            1.38 x  27.3 %  0.0 %     8     1         0
1f1b      8  33 s            1.38 x  27.3 %  0.0 %     4     1         0
pipedream 8  24 s            1.00 x  0.0 %   0.0 %     4     2         1
xpipe     8  24 s            1.00 x  0.0 %   0.0 %     4     3         1
"""


def test_schedules_stand_side_by_side(command: Command) -> None:
    lines = [line for line in command.succeed("compare", "gpipe", "1f1b", "pipedream", "xpipe").splitlines() if line.strip("─ ")]

    assert lines[0] == "4 schedules on 4 devices, one mini-batch's work held equal, 16 mini-batches each"
    assert [line.split() for line in lines[1:6]] == [line.split() for line in TABLE.splitlines()]
    # three of sixteen mini-batches of the same run: 3 x 33 s with a flush; without one 9 s of start-up and 3 x 24 s
    assert [line for line in lines if " mini-batches 0 to 2 of 16 in " in line] == [
        *(f"{name}: mini-batches 0 to 2 of 16 in 99 s" for name in ("gpipe", "1f1b")),
        *(f"{name}: mini-batches 0 to 2 of 16 in 81 s" for name in ("pipedream", "xpipe")),
    ]
    assert sum(line.startswith("device ") for line in lines) == 16
    assert lines[-1].startswith("wrote out/compare.png")
    assert Path("out/compare.png").read_bytes().startswith(b"\x89PNG")


def test_a_mini_batch_costs_the_same_however_it_is_cut(command: Command) -> None:
    """PipeDream as in its paper, m = 1: one micro-batch of eight times the work, 8 x (F + B) = 24."""
    found = json.loads(command.succeed("compare", "1f1b", "pipedream", "--micro-batches", "8,1", "--json"))
    one, other = found["schedules"]

    assert (one["num_micro_batches"], other["num_micro_batches"]) == (8, 1)
    assert one["num_mini_batches"] == other["num_mini_batches"] == 16
    assert other["costs"]["forward_s"] == [8.0] * 4
    assert other["steady"]["seconds_per_mini_batch"] == 24
    assert [stage["weight_versions"] for stage in other["stages"]] == [4, 3, 2, 1]
    assert not Path("out").exists()


def test_a_model_is_not_deeper_for_schedules_with_more_stages(command: Command) -> None:
    """p = 4, m = 8, F = I = W = 1: 33 s on four stages, 6m + p - 1 = 51 slots of half a second on eight."""
    words = ("compare", "1f1b", "zb-v", "--forward", 1, "--input-grad", 1, "--weight-grad", 1)
    lines = command.succeed(*words).splitlines()
    found = json.loads(command.succeed(*words, "--json"))

    assert [line.split()[2:6] for line in lines[3:5]] == [["33", "s", "1.29", "x"], ["25.5", "s", "1.00", "x"]]
    assert "zb-v: 8 stages, each with half of the work of 1f1b's" in lines
    assert [line for line in lines if line.startswith("zb-v: 1 mini-batch")] == ["zb-v: 1 mini-batch in 25.5 s"]
    assert found["stages"] == ["zb-v: 8 stages, each with half of the work of 1f1b's"]
    assert [row["costs"]["forward_s"] for row in found["schedules"]] == [[1.0] * 4, [0.5] * 8]


def test_costs_of_single_stages_are_refused_where_numbers_of_stages_differ(command: Command) -> None:
    costs = ROOT / "tests" / "data" / "stages.costs.toml"

    assert "costs per layer" in command.fail("compare", "1f1b", "zb-v", "--forward", "1,2,3,4")
    assert command.fail("compare", "1f1b", "zb-v", "--costs", costs).startswith(f"{costs} has rows of single stages")


def test_costs_of_a_file_follow_the_cut_too(command: Command) -> None:
    costs = ROOT / "tests" / "data" / "stages.costs.toml"
    text = command.succeed("compare", "gpipe", "pipedream", "--micro-batches", "4,1", "--costs", costs, "--json")
    one, other = json.loads(text)["schedules"]

    assert (one["micro_batch_size"], other["micro_batch_size"]) == (1, 4)
    assert one["mini_batch_size"] == other["mini_batch_size"] == 4


def test_options_go_to_the_schedules_that_have_them(command: Command) -> None:
    text = command.succeed("compare", "gpipe", "xpipe", "--order", "fifo", "--horizon", 3, "--json")
    gpipe, xpipe = json.loads(text)["schedules"]

    assert gpipe["stages"][0]["horizon_forward"] is None
    assert xpipe["stages"][0]["horizon_forward"] == 3


def test_a_file_stands_beside_schedules_of_its_shape(command: Command) -> None:
    zigzag = ROOT / "tests" / "data" / "zigzag.program.toml"
    found = json.loads(command.succeed("compare", "1f1b", zigzag, "--json"))

    assert [row["schedule"] for row in found["schedules"]] == ["1f1b", "zigzag"]
    assert [row["makespan_s"] for row in found["schedules"]] == [15, 15]


def test_a_file_keeps_its_mini_batches(command: Command) -> None:
    command.succeed("convert", "pipedream", "--devices", 2, "--micro-batches", 1, "--mini-batches", 9, "-o", "mine.toml")
    first = command.succeed("compare", "mine.toml", "gpipe").splitlines()[0]
    other = command.succeed("compare", "mine.toml", "gpipe", "--mini-batches", 9).splitlines()[0]

    assert first == other == "2 schedules on 2 devices, one mini-batch's work held equal, 9 mini-batches each"


def test_functions_stand_beside_names(command: Command) -> None:
    grouped = f"{ROOT / 'examples' / 'grouped.py'}:grouped"
    words = ("gpipe", grouped, "--devices", 2, "--micro-batches", 4, "--json")
    gpipe, other = json.loads(command.succeed("compare", *words))["schedules"]

    assert (gpipe["makespan_s"], other["makespan_s"]) == (15, 18)


def test_percentiles_of_each_schedule_are_those_that_simulate_gives_it(command: Command) -> None:
    words = ("--devices", 2, "--micro-batches", 4, "--jitter", 0.05, "--seed", 3, "--samples", 20)
    sides = json.loads(command.succeed("compare", "gpipe", "1f1b", *words, "--json"))["schedules"]
    alone = [json.loads(command.succeed("simulate", name, *words, "--json")) for name in ("gpipe", "1f1b")]

    assert [side["percentiles"] for side in sides] == [side["percentiles"] for side in alone]
    table = command.succeed("compare", "gpipe", "1f1b", *words).splitlines()
    assert {"p50", "p95", "p99"} <= {line.split()[0] for line in table if line}  # turned, since it is wider than a line
    assert "p50, p95, p99: seconds of the whole run per mini-batch, over 20 draws of all durations" in table


def test_two_timelines_of_one_program_are_held_against_each_other(command: Command) -> None:
    """All tasks a tenth longer: the prediction is 1/1.1 - 1 = -9.1 % off, because of durations alone."""
    words = ("1f1b", "--devices", 2, "--micro-batches", 4)
    command.succeed("simulate", *words, "--trace", "predicted.json")
    command.succeed("simulate", *words, "--forward", 1.1, "--backward", 2.2, "--trace", "other.json.gz")
    said = command.succeed("compare", "predicted.json", "other.json.gz")
    rows = {line.split()[0]: line.split()[1:] for line in said.splitlines() if line.strip()}

    assert rows["step"] == ["15", "s", "16.5", "s", "-9.1", "%"]
    assert rows["bubble"][4:] == ["20.0", "%", "20.0", "%", "+0.0", "points"]  # (p - 1)/(m + p - 1) = 1/5 on both sides
    assert rows["bubble"][:4] == ["of", "the", "whole", "run"]
    assert said.splitlines()[0] == "1f1b: 2 devices, 2 stages, 1 mini-batch of 4 micro-batches"
    assert rows["durations"][:2] == ["-9.1", "%"]
    assert rows["structure"][:2] == ["+0.0", "%"]
    assert "verdict    durations: most of the error is in how long tasks take" in said
    assert "predicted (predicted)" in said
    assert "other (predicted)" in said
    assert "measured" not in said
    assert Path("out/compare.png").exists()

    found = json.loads(command.succeed("compare", "predicted.json", "other.json.gz", "--json"))
    assert found["schema"] == "schedir.compare/1"
    assert found["sources"]["measured"] == "simulated"
    assert found["step_error_fraction"] == -0.090909


def table(said: str, head: str) -> list[list[str]]:
    """Return the cells of the rows below a line that starts with `head` and the rule under it."""
    lines = iter(said.splitlines())
    next(line for line in lines if line.startswith(head))
    next(lines)
    return [line.split() for line in takewhile(lambda line: line.strip() and not line.startswith("wrote"), lines)]


def test_d27_a_measured_run_says_busy_idle_and_bubble_of_every_device(command: Command) -> None:
    """Recorded by hand: device 0 busy in [0, 4] and [6, 8], device 1 in [4, 6]. Idle 2 and 6 of 8: 0.5 together."""
    write_trace("by_hand.json", two_devices_by_hand())
    words = ("1f1b", "--devices", 2, "--micro-batches", 1, "--forward", 2, "--backward", 2)
    command.succeed("simulate", *words, "--trace", "predicted.json")
    said = command.succeed("compare", "predicted.json", "by_hand.json")

    assert "bubble of the whole run     50.0 %    50.0 %  +0.0 points" in said
    assert "devices, predicted / measured" in said.splitlines()
    assert [" ".join(row) for row in table(said, "in s: device")] == [
        "0 4 / 6 4 / 2 50.0 % / 25.0 %",
        "1 4 / 2 4 / 6 50.0 % / 75.0 %",
    ]
    found = json.loads(command.succeed("compare", "predicted.json", "by_hand.json", "--json"))["measured"]
    assert [(row["busy_s"], row["idle_s"]) for row in found["devices"]] == [(6.0, 2.0), (2.0, 6.0)]
    assert (found["bubble_fraction"], found["makespan_s"]) == (0.5, 8.0)
    assert Path("out/compare.png").exists()


def test_d25_every_kind_of_every_stage_has_its_ratio_and_contention_is_named(command: Command) -> None:
    """0.96 s alone and 1.5 s while the other device computes: 1.5625 times. Of 8 forwards the first, or the last, is alone."""
    words = ("gpipe", "--devices", 2, "--micro-batches", 8, "--mini-batches", 3)
    command.succeed("simulate", *words, "--forward", 0.96, "--backward", 0.96, "--trace", "predicted.json")
    predicted = load_timeline("predicted.json")
    write_trace("measured.json", under_load(predicted, alone=0.96, together=1.5))
    said = command.succeed("compare", "predicted.json", "measured.json")
    rows = table(said, "stage")

    assert [row[0] for row in rows] == ["0", "1"]
    assert all(1.3 < float(ratio) < 1.57 for row in rows for ratio in row[1:3])
    assert "contention: tasks take 1.56 times as long while other devices compute as alone (F 1.56, B 1.56)" in said


def under_load(predicted: Timeline, *, alone: float, together: float) -> Timeline:
    """Return the same order of tasks, in which a task takes longer if the other device computes at that time of the prediction."""
    graph = predicted.graph
    forward_or_backward = np.isin(graph.kind, (Kind.FORWARD, Kind.BACKWARD))
    duration = np.where(forward_or_backward, alone, 0.0)
    for task in np.flatnonzero(forward_or_backward):
        others = forward_or_backward & (graph.device != graph.device[task])
        overlap = (predicted.start < predicted.end[task] - 1e-9) & (predicted.end > predicted.start[task] + 1e-9)
        if (others & overlap).any():
            duration[task] = together
    spans = evaluate(graph, TaskTimes(duration))
    return Timeline(graph, spans.start, spans.end, Source.MEASURED, spans.release)


def test_timelines_of_different_programs_stand_side_by_side(command: Command) -> None:
    """p = 4, m = 8: 33 s with the flush at 4 mini-batches, 24 s in steady state without one."""
    for name in ("gpipe", "xpipe"):
        command.succeed("simulate", name, "--mini-batches", 12, "--trace", f"{name}.trace.json")
    said = command.succeed("compare", "gpipe.trace.json", "xpipe.trace.json")
    found = json.loads(command.succeed("compare", "gpipe.trace.json", "xpipe.trace.json", "--json"))

    assert said.splitlines()[0] == "timelines of different programs: side by side, since their tasks do not correspond"
    assert "steady bubble" in said.splitlines()[1]
    rows = [line.split() for line in said.splitlines() if line.startswith(("gpipe", "xpipe"))]
    assert [row[:8] for row in rows] == [
        ["gpipe", "gpipe", "predicted", "4", "8", "12", "33", "s"],
        ["xpipe", "xpipe", "predicted", "4", "8", "12", "24", "s"],
    ]
    assert Path("out/compare.png").read_bytes().startswith(b"\x89PNG")
    assert found["schema"] == "schedir.side-by-side/1"
    assert [row["schedule"] for row in found["schedules"]] == ["gpipe", "xpipe"]


def test_files_of_one_name_are_told_apart_by_their_folders(command: Command) -> None:
    for folder, schedule in (("mon", "gpipe"), ("tue", "xpipe")):
        command.succeed("simulate", schedule, "--trace", f"{folder}/train.trace.json")
    said = command.succeed("compare", "mon/train.trace.json", "tue/train.trace.json")

    assert [line.split()[:2] for line in said.splitlines() if "train" in line] == [["mon/train", "gpipe"], ["tue/train", "xpipe"]]


def test_a_table_without_steady_states_says_that_its_bubble_is_of_the_whole_run(command: Command) -> None:
    said = command.succeed("compare", "gpipe", "1f1b")

    assert "  bubble of the whole run  " in said.splitlines()[1]
    assert "per mini-batch and bubble: of the whole run; bubble = 1 - busy / (devices x time)" in said.splitlines()


def test_bubbles_of_the_whole_run_and_of_its_steady_state_are_told_apart(command: Command) -> None:
    """pipedream, p = 2, m = 1, 12 mini-batches: every device idles 3 s of 39, and never in steady state."""
    for name, forward in (("one", 1), ("two", 2)):
        words = ("--devices", 2, "--micro-batches", 1, "--mini-batches", 12, "--forward", forward, "--backward", 2 * forward)
        command.succeed("simulate", "pipedream", *words, "--trace", f"{name}.json")
    lines = command.succeed("compare", "one.json", "two.json").splitlines()

    assert [line.split() for line in lines if line.startswith("bubble")] == [
        ["bubble", "of", "the", "whole", "run", "7.7", "%", "7.7", "%", "+0.0", "points"],
    ]
    assert [line.split() for line in lines if line.startswith("steady bubble")] == [
        ["steady", "bubble", "0.0", "%", "0.0", "%", "+0.0", "points"],
    ]
    assert any(line.startswith("step in steady state") for line in lines)


def test_one_timeline_alone_is_refused(command: Command) -> None:
    command.succeed("simulate", "gpipe", "--trace", "gpipe.json")

    assert command.fail("compare", "gpipe.json").startswith("1 simulated and 0 measured timelines: give one simulated")


def test_an_error_against_a_run_of_no_time_is_left_out(command: Command) -> None:
    command.succeed("simulate", "gpipe", "--trace", "one.json")
    command.succeed("simulate", "gpipe", "--forward", 0, "--backward", 0, "--trace", "free.json")
    said = command.succeed("compare", "one.json", "free.json")
    found = json.loads(command.succeed("compare", "one.json", "free.json", "--json"), parse_constant=pytest.fail)

    assert next(line for line in said.splitlines() if line.startswith("makespan")).split() == ["makespan", "33", "s", "0", "-"]
    assert found["step_error_fraction"] is None


def test_the_picture_says_why_it_shows_fewer_mini_batches(command: Command) -> None:
    said = command.succeed("compare", "gpipe", "xpipe")

    assert said.splitlines()[-1] == (
        "wrote out/compare.png: mini-batches 0 to 2 of 16 drawn, to show single tasks; the figures are of all"
    )


def test_a_picture_that_is_replaced_is_named(command: Command) -> None:
    words = ("compare", "gpipe", "--devices", 2, "--micro-batches", 2, "--mini-batches", 1)

    assert command.succeed(*words).splitlines()[-1] == "wrote out/compare.png"
    assert command.succeed(*words).splitlines()[-1] == "wrote out/compare.png (in place of the one of an earlier comparison)"


def test_the_flag_that_compare_has_for_its_picture_is_named(command: Command) -> None:
    said = command.fail("compare", "gpipe", "--plot", "x.png")

    assert said.startswith("no such option: --plot, but compare always draws: --out FOLDER says where its picture goes")
    assert "--costs" not in said


@pytest.mark.parametrize("words", [("gpipe",), ("gpipe", "--model", "mlp"), ("one.json", "one.json")])
def test_a_file_in_the_place_of_the_folder_is_named_before_anything_runs(command: Command, words: tuple[str, ...]) -> None:
    command.succeed("simulate", "gpipe", "--trace", "one.json")
    Path("taken").write_text("mine")

    assert command.fail("compare", *words, "--out", "taken").startswith("taken is no folder for files: taken is a file: name")
    assert Path("taken").read_text() == "mine"

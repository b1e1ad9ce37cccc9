"""`schedir search`: what it prints and writes, and what it refuses."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from schedir.interop.program_files import load_program
from schedir.ir.notation.text import parse_program
from tests.cli.command import Command

UNEVEN = ("--forward", "1,2,1,1.5", "--input-grad", "1,2,1,1", "--weight-grad", "1,1,0.5,1", "--transfer", 0.3)


def test_the_best_order_and_how_good_it_is_are_printed(command: Command) -> None:
    said = command.succeed("search", "--activation-limit", 4)

    assert "search     shortest makespan of 8 micro-batches on 4 devices, 4 stages, at most 4 live activations on a device" in said
    assert "found      zb-h1: 27 s; 0 orders tried, no order of this placement can be better" in said
    assert (
        "bound      27 s by a device's work and what must come before and behind it under the limits: "
        "the order is optimal for its placement" in said
    )
    assert "registered best that fits: zb-h1, 27 s: nothing shorter was found" in said
    assert "device 3 |" in said


def test_json_holds_the_program_and_its_report(command: Command) -> None:
    words = ("search", *UNEVEN, "--activation-limit", 4, "--iterations", 300, "--seed", 3, "--json")
    said = command.succeed(*words)
    report = json.loads(said)

    assert report["schema"] == "schedir.search/1"
    assert report["value_s"] == report["found"]["makespan_s"] <= report["registered"]["value_s"]
    assert report["bound_s"] <= report["value_s"]
    assert report["iterations"] == 300
    assert parse_program(report["program"]).num_devices == 4
    assert command.succeed(*words) == said


def test_a_found_order_is_a_program_like_any_other(command: Command) -> None:
    limited = (*UNEVEN, "--activation-limit", 4, "--iterations", 1000)
    command.succeed("search", *limited, "--mini-batches", 2, "-o", "out/mine.toml", "--plot", "out/mine.svg")

    program = load_program(Path("out/mine.toml"))
    assert (program.name, program.num_mini_batches) == ("mine", 2)
    assert Path("out/mine.svg").stat().st_size > 0
    command.succeed("check", "out/mine.toml")
    assert "schedule  mine: 4 devices, 4 stages, 2 mini-batches of 8" in command.succeed("simulate", "out/mine.toml", *UNEVEN)


def test_a_registered_order_is_named_in_the_text_and_its_file_after_the_file_as_the_help_says(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = command.succeed("search", "--activation-limit", 4, "-o", "found.toml")
    monkeypatch.setenv("COLUMNS", "300")

    assert "found      zb-h1: 27 s" in said
    assert load_program(Path("found.toml")).name == "found"
    assert "called by the file's name." in command.succeed("search", "--help")


def test_a_bound_without_limits_names_none(command: Command) -> None:
    assert "come before and behind it: the order is" in command.succeed("search", "--iterations", 1)


def test_stages_in_a_v_are_two_on_each_device(command: Command) -> None:
    said = command.succeed("search", "--placement", "v", "--objective", "device-span")

    assert "found      zb-v: 48 s, stages in a V" in said


def test_a_placement_without_registered_schedules_is_not_called_a_limit(command: Command) -> None:
    said = command.succeed(
        "search", "--devices", 3, "--stages-per-device", 3, "--micro-batches", 4, "--placement", "v", "--iterations", 10
    )

    assert "registered no registered schedule has this shape, placement and kind of backward" in said


def test_limits_that_no_registered_schedule_fits_are_named(command: Command) -> None:
    said = command.succeed(
        "search", "--devices", 2, "--stages-per-device", 2, "--placement", "loop", "--activation-limit", 2, "--split-backward", "no"
    )

    assert "registered no registered schedule fits the limits" in said


class WithoutOrTools:
    """Finds no ortools, as where it is not installed."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        if name == "ortools":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_a_proof_needs_the_extra(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = [name for name in sys.modules if name.partition(".")[0] == "ortools"]
    for name in (*loaded, "schedir.search.proofs.constraints"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [WithoutOrTools, *sys.meta_path])

    said = command.fail("search", "--prove")

    assert said == "this needs ortools, which is not installed: pip install 'schedir[search]'"


def test_what_is_proved_is_said(command: Command) -> None:
    pytest.importorskip("ortools", reason="OR-Tools is not installed: pip install 'schedir[search]'")
    said = command.succeed(
        "search", "--devices", 3, "--micro-batches", 4, "--placement", "v", "--activation-limit", 4, "--iterations", 50, "--prove"
    )

    assert "bound      29 s proved by CP-SAT under the limits: the order is optimal for its placement" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--objective", "speed"), "--objective speed is unknown: use makespan, device-span"),
        (("--activation-limit", "0"), "--activation-limit 0 must be integers of at least 1, comma-separated"),
        (("--activation-limit", "4,4"), "--activation-limit 4,4 has 2 values, but there are 4 devices: give one for all"),
        (("--time-budget", "0"), "--time-budget 0 must be a finite number above 0"),
        (("--iterations", "0"), "--iterations 0 must be an integer of at least 1"),
        (("--memory-limit", "80 GB"), "--memory-limit 80 GB is compared with the memory that is held, but these costs"),
        (("--split-backward", "yes", "--backward", "2"), "search splits backward: give --input-grad and --weight-grad"),
        (("-o", "order.json"), "--output order.json does not say the form of a program: end its name with .csv, .toml, .txt"),
        (("--plot", "order.gif"), "picture order.gif: suffix '.gif' is no picture's"),
        (("--placement", "v", "--activation-limit", "1"), "holds at least 2 activations on a device, but --activation-limit is 1"),
        (("--workers", "2"), "--workers 2 are threads of CP-SAT: give --prove, too, or leave it out"),
        (("1f1b",), "got unexpected extra argument"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(command: Command, words: tuple[str, ...], message: str) -> None:
    assert message in command.fail("search", *words)

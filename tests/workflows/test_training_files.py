from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import plots
from executor.models import mlp
from schedir.compiler import compile_program, load_timelines
from schedir.costs.uniform import UniformCosts
from schedir.schedules.registry import build_program
from schedir.workflows.compare_training import compare_training
from schedir.workflows.training_files import notes, opening, table_row, write_training_files
from schedir.workflows.training_results import TrainedSchedule, TrainingSetting
from simulator import simulate

SETTING = TrainingSetting(rounds=1, repeats=1, draws=1)
RECIPE = mlp(num_layers=2, width=8, mini_batch_size=4)


@pytest.fixture(scope="module")
def trained() -> tuple[TrainedSchedule, ...]:
    shape = {"num_devices": 2, "num_micro_batches": 2, "num_mini_batches": 5}
    programs = [build_program(name, **shape) for name in ("gpipe", "xpipe")]
    return compare_training(programs, RECIPE, SETTING)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, trained: tuple[TrainedSchedule, ...]) -> Path:
    """Return a folder that has been filled."""
    place = tmp_path_factory.mktemp("written") / "out"
    write(place, trained)
    return place


def write(folder: Path, trained: tuple[TrainedSchedule, ...]) -> list[str]:
    return [path.name for path in write_training_files(folder, trained, recipe=RECIPE, setting=SETTING)]


def test_every_schedule_leaves_a_picture_and_a_trace_and_pictures_are_named_first(
    tmp_path: Path, trained: tuple[TrainedSchedule, ...]
) -> None:
    names = write(tmp_path / "out", trained)
    pictures = ["gpipe.png", "xpipe.png", "comparison.png"]
    assert names == [*pictures, "gpipe.trace.json", "xpipe.trace.json", "report.json"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)
    assert all((tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG") for name in pictures)


def test_the_traces_hold_prediction_and_measurement(folder: Path, trained: tuple[TrainedSchedule, ...]) -> None:
    read = load_timelines(folder / "gpipe.trace.json")
    assert [timeline.source for timeline in read] == ["simulated", "measured"]
    for ours, theirs in zip(trained[0].comparison.timelines, read, strict=True):
        assert np.array_equal(ours.end, theirs.end)


def test_the_report_is_plain_json_with_the_table_and_every_round(folder: Path) -> None:
    report = json.loads((folder / "report.json").read_text(), parse_constant=pytest.fail)
    assert report["schema"] == "schedir.training/1"
    assert [row["schedule"] for row in report["table"]] == ["gpipe", "xpipe"]
    assert [len(entry["rounds"]) for entry in report["schedules"]] == [1, 1]
    assert report["schedules"][0]["comparison"]["schema"] == "schedir.compare/1"
    assert report["schedules"][0]["profile"]["kind"] == "measured"


def test_the_table_has_all_columns(trained: tuple[TrainedSchedule, ...]) -> None:
    row = table_row(trained[0])
    assert list(row) == [
        "schedule",
        "step_predicted_s",
        "step_measured_s",
        "step_error_fraction",
        "noise_floor_fraction",
        "bubble_fraction_predicted",
        "bubble_fraction",
        "recompute_share",
        "peak_bytes_predicted",
        "samples_per_s",
        "loss_first",
        "loss_last",
    ]
    assert all(math.isfinite(value) for name, value in row.items() if name != "schedule")
    assert row["loss_first"] == trained[0].losses[0]


def test_what_explains_errors_is_named(trained: tuple[TrainedSchedule, ...]) -> None:
    one = trained[0]
    calm, busy = (
        replace(
            one,
            costs=replace(one.costs, source={"preempted_fraction": share}),
            comparison=replace(one.comparison, contention=named),
        )
        for share, named in ((0.1, None), (0.5, "contention: tasks take longer"))
    )
    assert notes([calm]) == ()
    assert notes([calm, busy]) == (
        "the machine was busy: the system took the core away in 50% of the profiled tasks",
        "gpipe: contention: tasks take longer",
    )


def test_no_file_is_left_when_one_cannot_be_made(
    tmp_path: Path, trained: tuple[TrainedSchedule, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no room for a picture")

    monkeypatch.setattr(plots, "comparison", fail)
    with pytest.raises(MemoryError, match="no room"):
        write(tmp_path / "out", trained)
    assert list(tmp_path.iterdir()) == []


def test_the_opening_ends_with_the_last_of_the_first_mini_batches() -> None:
    graph = compile_program(build_program("gpipe", num_devices=2, num_micro_batches=1, num_mini_batches=3))
    timeline = simulate(graph, UniformCosts(forward=1.0, backward=2.0))
    shown = opening(timeline, 2)  # a mini-batch takes 1 + 1 + 2 + 2
    assert timeline.makespan_s == 18.0
    assert shown.makespan_s == 12.0
    assert {span.mini_batch for span in shown.records()} == {0, 1}
    assert opening(timeline, 9).makespan_s == 18.0

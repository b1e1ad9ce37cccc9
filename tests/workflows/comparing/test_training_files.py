from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import plots
from executor.recipe.ready_made import mlp
from schedir.compiler import load_timelines
from schedir.schedules.registry import build_program
from schedir.workflows.comparing.compare_training import compare_training
from schedir.workflows.comparing.predicting import Interval
from schedir.workflows.comparing.training_files import notes, report, table_row, write_training_files
from schedir.workflows.comparing.training_results import TrainedSchedule, TrainingSetting

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
    found = json.loads((folder / "report.json").read_text(), parse_constant=pytest.fail)
    assert found["schema"] == "schedir.training/1"
    assert [row["schedule"] for row in found["table"]] == ["gpipe", "xpipe"]
    assert [len(entry["rounds"]) for entry in found["schedules"]] == [1, 1]
    assert (found["rounds_asked"], found["rounds_measured"]) == (1, 1)
    assert found["schedules"][0]["judged_round"] == 1
    assert found["schedules"][0]["comparison"]["schema"] == "schedir.compare/1"
    assert found["schedules"][0]["profile"]["kind"] == "measured"


def test_the_table_has_all_columns(trained: tuple[TrainedSchedule, ...]) -> None:
    row = table_row(trained[0])
    assert list(row) == [
        "schedule",
        "step_predicted_s",
        "step_measured_s",
        "step_error_fraction",
        "step_error_least",
        "step_error_most",
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
            judged=replace(one.judged, costs=replace(one.costs, source={"preempted_fraction": share})),
            comparison=replace(one.comparison, contention=named),
        )
        for share, named in ((0.1, None), (0.5, "contention: tasks take longer"))
    )
    assert notes([calm], SETTING) == ()
    assert notes([calm, busy], SETTING) == (
        "the machine was busy: the system took the core away in 50.0 % of the profiled tasks",
        "gpipe: contention: tasks take longer",
    )


def test_a_time_limit_that_ended_the_rounds_is_named(trained: tuple[TrainedSchedule, ...]) -> None:
    assert notes(trained, replace(SETTING, rounds=7, time_limit_s=60.0))[:1] == ("1 of 7 rounds measured: the time limit of 60 s",)


def test_the_spread_over_rounds_is_reported(trained: tuple[TrainedSchedule, ...]) -> None:
    """Errors of 10 / 8 - 1, 10 / 10 - 1 and 12 / 10 - 1, rounds by hand."""
    one = trained[0]
    steps = ((10.0, 8.0), (10.0, 10.0), (12.0, 10.0))
    around = replace(one.judged.predicted, step_interval=Interval(9.0, 11.0))
    rounds = tuple(
        replace(one.judged, number=k + 1, predicted=replace(around, step_s=a), measured_step_s=b) for k, (a, b) in enumerate(steps)
    )
    entry = report([replace(one, rounds=rounds)], RECIPE, SETTING)["schedules"][0]

    assert entry["spread"] == {
        "predicted_step_s": {"least": 10.0, "median": 10.0, "most": 12.0},
        "measured_step_s": {"least": 8.0, "median": 10.0, "most": 10.0},
        "step_error_fraction": {"least": 0.0, "median": pytest.approx(0.2), "most": pytest.approx(0.25)},
    }
    assert [found["step_error_fraction"] for found in entry["rounds"]] == pytest.approx([0.25, 0.0, 0.2])
    assert [found["inside_interval"] for found in entry["rounds"]] == [False, True, True]
    assert entry["steps_inside_interval"] == 2


def test_no_file_is_left_when_one_cannot_be_made(
    tmp_path: Path, trained: tuple[TrainedSchedule, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no room for a picture")

    monkeypatch.setattr(plots, "comparison", fail)
    with pytest.raises(MemoryError, match="no room"):
        write(tmp_path / "out", trained)
    assert list(tmp_path.iterdir()) == []

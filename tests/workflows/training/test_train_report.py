"""What a report of an earlier training gives to the next one, and what is none."""

import json
from pathlib import Path
from typing import Any

import pytest

from schedir.workflows.training.train_report import read_report

RUN = {
    "first_mini_batch": 0,
    "mini_batches": 3,
    "left_out_mini_batches": 0,
    "skipped_updates": [1],
    "samples": 24,
    "seconds": 1.5,
    "checkpoint": None,
}


def found(folder: Path, **changed: Any) -> dict[str, Any]:
    report = {"schema": "schedir.train/2", "runs": [RUN], "checkpoint": None} | changed
    (folder / "report.json").write_text(json.dumps(report))
    return read_report(folder)


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert found(tmp_path)["runs"] == [RUN]


@pytest.mark.parametrize(
    "changed",
    [
        {"runs": [{"checkpoint": None}]},
        {"runs": [RUN | {"mini_batches": "3"}]},
        {"runs": [RUN | {"samples": None}]},
        {"runs": [RUN | {"seconds": 10**400}]},
        {"runs": [RUN | {"skipped_updates": 1}]},
        {"runs": [None]},
        {"runs": {"first": RUN}},
        {"checkpoint": 3},
        {"measured": float("nan")},
    ],
)
def test_a_report_that_lacks_what_the_next_one_needs_is_none(tmp_path: Path, changed: dict[str, Any]) -> None:
    assert found(tmp_path, **changed) == {}


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"schema": "schedir.train/1"}'])
def test_what_is_no_report_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text)
    assert read_report(tmp_path) == {}

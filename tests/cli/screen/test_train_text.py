"""What `schedir train` says at its end of all its evaluations."""

import math
from pathlib import Path

import pytest

from executor.recipe.training_outcome import TrainingOutcome
from schedir.cli.screen.train_text import print_outcome
from schedir.schedules.registry import build_program
from schedir.workflows.training.train_log import EvaluationRow


def said(capsys: pytest.CaptureFixture[str], tmp_path: Path, *rows: EvaluationRow) -> list[str]:
    """Return the lines behind a training that had nothing left to do."""
    program = build_program("1f1b", num_devices=2, num_micro_batches=2)
    outcome = TrainingOutcome(program=program, workers="threads", checkpoint=tmp_path / "mini-batch-000004")
    print_outcome(outcome, rows)
    return capsys.readouterr().out.splitlines()


def test_losses_of_which_none_is_a_number_have_no_best(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [EvaluationRow(number, {"loss": math.nan, "accuracy": 0.5}) for number in (0, 2)]
    assert said(capsys, tmp_path, *rows, EvaluationRow(4, {"loss": math.inf, "accuracy": 0.25})) == [
        "validation loss: nan after 0, inf after 4; none is best, since none is a finite number",
        "validation accuracy: 0.5 after 0, 0.25 after 4",
    ]


def test_the_best_is_the_least_finite_loss(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mini-batch-000002").mkdir()
    rows = [EvaluationRow(0, {"loss": -math.inf}), EvaluationRow(2, {"loss": 1.5}), EvaluationRow(4, {"loss": math.nan})]
    assert said(capsys, tmp_path, *rows) == [
        f"validation loss: -inf after 0, nan after 4; best 1.5 after 2, saved as {tmp_path}/mini-batch-000002"
    ]


def test_a_metric_that_came_later_begins_where_it_came(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [
        EvaluationRow(0, {"loss": 1.0}),
        EvaluationRow(2, {"loss": 2.0, "hits": 3.0}),
        EvaluationRow(4, {"loss": 3.0, "hits": 5.0}),
    ]
    assert said(capsys, tmp_path, *rows)[1] == "validation hits: 3 after 2, 5 after 4"

"""Losses and evaluations on the disk while a training goes on, and behind those of the training that it goes on from."""

from pathlib import Path

import pytest

from executor.recipe.training_outcome import Evaluation, TrainedMiniBatch
from schedir.errors import FormatError
from schedir.workflows.training.train_log import EvaluationRow, LossRow, TrainLog, read_evaluations, read_losses

HEAD = "mini_batch,loss,learning_rate,gradient_norm\n"


def log_in(folder: Path, words: list[str] | None = None) -> TrainLog:
    return TrainLog(folder, say=(words if words is not None else []).append)


def train(log: TrainLog, first: int, last: int) -> None:
    """Row t has the loss t / 2, the rate 0.1 and the norm t."""
    for number in range(first, last):
        log.trained(TrainedMiniBatch(number, number / 2, 8, 0.1, float(number)))


def test_a_row_is_in_the_file_when_it_is_told(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.began(0, None)
    assert list(tmp_path.iterdir()) == []
    train(log, 0, 2)
    assert (tmp_path / "losses.csv").read_text() == HEAD + "0,0.0,0.1,0.0\n1,0.5,0.1,1.0\n"
    log.trained(TrainedMiniBatch(2, float("nan"), 8))
    assert (tmp_path / "losses.csv").read_text().endswith("\n2,nan,,\n")
    log.close()


def test_a_row_that_is_told_twice_stands_once(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.began(0, None)
    train(log, 0, 2)
    train(log, 1, 3)
    log.close()
    assert [row.mini_batch for row in read_losses(tmp_path / "losses.csv")] == [0, 1, 2]


def test_the_evaluation_that_a_killed_training_did_not_come_to_is_written_where_nothing_is_left(tmp_path: Path) -> None:
    """It had evaluated before the drain, and was killed when it had saved. Rows behind, of a longer training, stay."""
    log = log_in(tmp_path)
    log.began(0, None)
    train(log, 0, 5)
    for number in (0, 3, 5):
        log.evaluated(Evaluation(number, {"loss": float(number)}))
    log.close()
    again = log_in(tmp_path)
    again.began(3, tmp_path / "checkpoints" / "mini-batch-000003")
    again.evaluated(Evaluation(3, {"loss": 2.5}))
    again.nothing_is_left()
    again.close()
    assert (tmp_path / "evaluations.csv").read_text() == "mini_batches,drained,loss\n0,1,0.0\n3,1,2.5\n5,1,5.0\n"
    assert len(read_losses(tmp_path / "losses.csv")) == 5


def test_rows_behind_the_checkpoint_give_way_when_the_first_of_them_is_trained_again(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.began(0, None)
    train(log, 0, 5)
    for number in (0, 2, 4):
        log.evaluated(Evaluation(number, {"loss": float(number)}))
    log.close()

    again = log_in(tmp_path)
    again.began(3, tmp_path / "checkpoints" / "mini-batch-000003")
    again.evaluated(Evaluation(3, {"loss": 3.0, "accuracy": 0.5}))
    assert len(read_losses(tmp_path / "losses.csv")) == 5
    again.trained(TrainedMiniBatch(3, 9.0, 8, 0.2, 1.0))
    again.close()
    assert (tmp_path / "losses.csv").read_text() == HEAD + "0,0.0,0.1,0.0\n1,0.5,0.1,1.0\n2,1.0,0.1,2.0\n3,9.0,0.2,1.0\n"
    assert (tmp_path / "evaluations.csv").read_text() == "mini_batches,drained,loss,accuracy\n0,1,0.0,\n2,1,2.0,\n3,1,3.0,0.5\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evaluations.csv", "losses.csv"]


def test_an_evaluation_of_the_same_moment_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.began(0, None)
    train(log, 0, 2)
    for loss in (1.0, 2.0):
        log.evaluated(Evaluation(2, {"loss": loss}))
    log.close()
    assert [(row.mini_batches, row.figures) for row in read_evaluations(tmp_path / "evaluations.csv")] == [(2, {"loss": 2.0})]


def test_going_on_in_another_folder_takes_the_rows_along_and_leaves_the_files_where_they_were(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    log = log_in(first)
    log.began(0, None)
    train(log, 0, 3)
    log.close()
    before = (first / "losses.csv").read_text()
    log = log_in(second)
    log.began(2, first / "checkpoints" / "mini-batch-000002")
    train(log, 2, 3)
    log.close()
    assert (second / "losses.csv").read_text() == before == (first / "losses.csv").read_text()


def test_files_of_a_training_that_nothing_goes_on_from_are_moved_aside(tmp_path: Path) -> None:
    words: list[str] = []
    for number in range(3):
        log = log_in(tmp_path, words)
        log.began(0, None)
        log.trained(TrainedMiniBatch(0, float(number), 8))
        log.close()
    names = ["losses.1.csv", "losses.2.csv", "losses.csv"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert [read_losses(tmp_path / name)[0].loss for name in names] == [0.0, 1.0, 2.0]
    assert words[0] == f"kept {tmp_path}/losses.csv of an earlier training as {tmp_path}/losses.1.csv"


def test_a_file_from_before_there_were_rates_and_norms_goes_on(tmp_path: Path) -> None:
    (tmp_path / "losses.csv").write_text("mini_batch,loss\n0,0.5\n1,0.25\n")
    assert read_losses(tmp_path / "losses.csv") == [LossRow(0, 0.5), LossRow(1, 0.25)]


def test_evaluations_from_before_there_was_a_word_on_drains_go_on_and_a_mark_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "evaluations.csv").write_text("mini_batches,loss\n3,0.5\n")
    assert read_evaluations(tmp_path / "evaluations.csv") == [EvaluationRow(3, {"loss": 0.5}, drained=True)]
    log = log_in(tmp_path)
    log.began(0, None)
    train(log, 0, 1)
    log.evaluated(Evaluation(1, {"loss": 2.0}, drained=False))
    log.close()
    assert (tmp_path / "evaluations.csv").read_text() == "mini_batches,drained,loss\n1,0,2.0\n"
    assert read_evaluations(tmp_path / "evaluations.csv") == [EvaluationRow(1, {"loss": 2.0}, drained=False)]


def test_half_a_row_at_the_end_is_none(tmp_path: Path) -> None:
    (tmp_path / "losses.csv").write_text(HEAD + "0,0.5,,\n1,0.2")
    assert read_losses(tmp_path / "losses.csv") == [LossRow(0, 0.5)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("step,loss\n0,1\n", "it has no column mini_batch"),
        ("mini_batch,loss\n0,low\n", "line 2: could not convert string to float: 'low'"),
        ("mini_batch,loss\n0\n", "line 2: too few or too many values"),
        ("mini_batch,loss\n0,1,2\n", "line 2: too few or too many values"),
        ("mini_batch,loss\n0.5,1\n", "line 2: invalid literal for int"),
    ],
)
def test_another_table_is_refused_before_anything_is_replaced(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "losses.csv").write_text(text)
    log = log_in(tmp_path)
    with pytest.raises(FormatError, match=rf"losses\.csv does not have the losses .* \({reason}.*\): move it away to go on"):
        log.began(1, tmp_path / "checkpoints" / "mini-batch-000001")
    assert (tmp_path / "losses.csv").read_text() == text

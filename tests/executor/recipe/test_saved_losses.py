"""Which checkpoint is the best of those that are there."""

from pathlib import Path

import pytest

from executor.recipe.saved_losses import SavedLosses


@pytest.fixture
def saved(tmp_path: Path) -> SavedLosses:
    """Checkpoints after 2, 4 and 6 mini-batches, the second the best."""
    saved = SavedLosses(tmp_path)
    for number, loss in ((2, 0.5), (4, 0.25), (6, 0.75)):
        (tmp_path / f"mini-batch-00000{number}").mkdir()
        saved.take(number, loss)
    return saved


def test_the_checkpoint_of_least_loss_is_the_best_and_of_equal_ones_the_first(saved: SavedLosses) -> None:
    assert saved.best() == 4
    saved.take(6, 0.25)
    assert saved.best() == 4


def test_where_the_best_was_removed_by_hand_the_next_best_is_the_best(saved: SavedLosses) -> None:
    (saved.folder / "mini-batch-000004").rmdir()
    assert saved.best() == 2
    assert saved.plain() == {"validation_losses": [[2, 0.5], [6, 0.75]]}
    for number in (2, 6):
        (saved.folder / f"mini-batch-00000{number}").rmdir()
    assert saved.best() is None


@pytest.mark.parametrize("loss", [float("nan"), float("-inf")])
def test_a_loss_that_is_not_finite_makes_no_checkpoint_the_best_any_more(saved: SavedLosses, loss: float) -> None:
    saved.take(4, loss)
    assert saved.best() == 2


def test_what_a_checkpoint_keeps_is_learnt_again(saved: SavedLosses) -> None:
    other = SavedLosses(saved.folder)
    other.learn(saved.plain())
    assert (other.best(), other.plain()) == (4, saved.plain())


def test_a_checkpoint_from_before_has_the_best_alone_or_nothing(saved: SavedLosses) -> None:
    other = SavedLosses(saved.folder)
    other.learn({})
    assert other.best() is None
    other.learn({"best": None})
    assert other.best() is None
    other.learn({"best": [6, 0.75]})
    assert other.best() == 6


@pytest.mark.parametrize("wrong", [{"validation_losses": 3}, {"validation_losses": [[1]]}, {"best": ["a", "b"]}])
def test_what_is_none_of_ours_is_an_error(saved: SavedLosses, wrong: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"int|unpack|iterable"):
        saved.learn(wrong)

"""Lines of a training that nobody watches on a terminal."""

import pytest

from executor.recipe.training_outcome import TrainedMiniBatch
from schedir.cli.screen import train_progress
from schedir.cli.screen.progress import Steps
from schedir.cli.screen.train_progress import TrainProgress


def test_lines_come_further_apart_the_longer_a_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mini-batch a second, for an hour: a line every two seconds for two minutes, then one every sixtieth of the time so far."""
    now = 0.0
    monkeypatch.setattr(train_progress, "monotonic", lambda: now)
    with Steps() as steps:
        progress = TrainProgress(steps, total=None)
        progress.began(0, None)
        for number in range(3600):
            now += 1.0
            progress.trained(TrainedMiniBatch(number, 0.5, 8))
    told = [int(line.split(":")[0].split()[1]) for line in capsys.readouterr().out.splitlines() if line.startswith("mini-batch ")]

    assert told[:4] == [0, 2, 4, 6]
    assert 50 <= told[-1] - told[-2] <= 60

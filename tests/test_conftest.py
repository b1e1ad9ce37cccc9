"""What every test can rely on."""

import _thread
import gc
import os
import random
import signal

import pytest
import torch

from tests.conftest import settle_environment


def called_back(phase: str, info: dict[str, int]) -> None:
    """Do something in Python, as what takes the time does."""
    del phase, info


def interrupt_a_collection() -> None:
    _thread.interrupt_main()
    gc.collect()


def test_an_interrupt_that_comes_in_a_collection_of_garbage_is_not_lost() -> None:
    """The first of two: it does what Hypothesis does, and what a command does that is called in this process."""
    assert gc.callbacks == []
    gc.callbacks.append(called_back)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def test_an_interrupt_arrives_behind_a_test_that_left_handlers_behind() -> None:
    assert gc.callbacks == []
    with pytest.raises(KeyboardInterrupt):
        interrupt_a_collection()


@pytest.mark.parametrize("_", range(2))
def test_every_test_draws_the_same_numbers(_: int) -> None:
    """Twice in a row, and torch is seeded by every process anew."""
    assert (torch.initial_seed(), random.random()) == (0, random.Random(0).random())


def test_what_the_shell_says_of_its_screen_reaches_no_test(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FORCE_COLOR": "1", "GITHUB_ACTIONS": "true", "COLUMNS": "40", "TERM": "dumb", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    settle_environment()

    assert not {"FORCE_COLOR", "GITHUB_ACTIONS", "COLUMNS", "RANK"} & os.environ.keys()
    assert os.environ["TERM"] == "xterm"

"""Which mini-batches `schedir train` describes at its end, and how they are numbered."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.command import Command
from tests.cli.test_train import MODEL, RECIPE


@pytest.fixture(autouse=True)
def recipe(command: Command) -> None:  # noqa: ARG001 - its folder is the working directory
    Path("mine.py").write_text(RECIPE)


def test_what_was_measured_is_of_mini_batches_of_full_size_and_numbered_as_the_training_is(command: Command) -> None:
    """Three of 8 samples and the rest of 2, for which the pipeline is empty anew: of 1 and 2 the shorter is shown."""
    words = ("--micro-batches", 2, "--epochs", 1, "--checkpoint-every", 3)
    said = command.succeed("train", "1f1b", *MODEL, *words)
    report = json.loads(Path("out/report.json").read_text())
    [first, last] = report["measured_mini_batches"]
    assert first == last
    assert first in {1, 2}
    assert re.search(
        rf"measured: \S+ .?s for 8 samples, bubble of the mini-batch \S+ % \(mini-batch {first}, the median of 2; ", said
    )
    assert report["measured_text"] == f"mini-batch {first}, the median of 2"
    assert report["measured"]["mini_batch_size"] == 8
    events = json.loads(Path("out/train.trace.json").read_text())["traceEvents"]
    assert {event["args"]["mini_batch"] for event in events if event["ph"] == "X"} == {first}
    assert {f"F{2 * first}", f"F{2 * first + 1}"} <= {event["name"] for event in events}

"""A training killed at any moment goes on from its newest checkpoint as if it had never stopped."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT

KILLS = 20
LIMIT_S = 900


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "pipedream", "xpipe"])
def test_a_process_killed_at_random_moments_ends_with_the_weights_of_one_that_was_not(schedule: str, tmp_path: Path) -> None:
    """Weights, and all that the optimizers know, byte for byte; the other run saved at the same mini-batches."""
    command = [sys.executable, "-m", "tests.executor.checkpoint.kill_rounds", str(tmp_path), schedule, str(KILLS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["killed"] == KILLS
    assert found["checkpoints"] >= 5, "hardly a process lived long enough to save anything"

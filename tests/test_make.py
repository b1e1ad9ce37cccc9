"""`make help` names what `make` can do; `make test` draws the same in every run."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from tests.repository import ROOT


def test_help_names_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert targets is not None

    named = re.findall(r"^# make (\S+)", makefile, re.MULTILINE)

    assert sorted(named) == sorted(set(targets[1].split()) - {"help"})


@pytest.mark.parametrize(("profile", "is_same"), [("fast", True), ("full", True), ("fuzz", False)])
def test_make_test_and_test_all_draw_the_same_examples_in_every_run(profile: str, is_same: bool) -> None:
    assert settings.get_profile(profile).derandomize is is_same


@pytest.mark.skipif(os.environ.get("HYPOTHESIS_PROFILE") == "fuzz", reason="fuzzing draws our numbers too")
def test_what_is_drawn_does_not_depend_on_the_modules_that_are_loaded() -> None:
    read_numbers = vars(providers).get("_get_local_constants", tuple)

    assert len(read_numbers()) == 0


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("Obtaining file:///here\n", "prepares schedir itself"),
        ("Collecting numpy\n", "finds and downloads packages"),
        ("Collecting torch\n  Downloading torch-2.13.0.whl (200 MB)\n", "downloads PyTorch and what it needs"),
        ("Collecting torch\nInstalling collected packages: numpy, torch, rich\n", "unpacks 3 packages"),
    ],
)
def test_set_up_says_what_pip_does(tmp_path: Path, log: str, said: str) -> None:
    function = re.search(r"^phase\(\) \{.*?^\}", (ROOT / "tools" / "setup.sh").read_text(), re.MULTILINE | re.DOTALL)
    assert function is not None
    (tmp_path / "log").write_text(log)
    done = subprocess.run(["bash", "-c", f"{function[0]}\nphase log"], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == said

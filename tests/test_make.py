"""`make help` names what `make` can do."""

import re

from tests.repository import ROOT


def test_help_names_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert targets is not None

    named = re.findall(r"^# make (\S+)", makefile, re.MULTILINE)

    assert sorted(named) == sorted(set(targets[1].split()) - {"help"})

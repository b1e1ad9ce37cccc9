import json
import re
from pathlib import Path

from schedir.compiler import load_timeline
from schedir.timeline.metrics.metrics import metrics
from tests.repository import ROOT


def test_the_trace_of_the_documentation_can_be_read(tmp_path: Path) -> None:
    """docs/timelines.md says: idle 2 s and 6 s of 8 s, bubble 0.5."""
    page = (ROOT / "docs" / "timelines.md").read_text(encoding="utf-8")
    written = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert written is not None
    (tmp_path / "t.json").write_text(json.dumps(json.loads(written[1])), encoding="utf-8")

    found = metrics(load_timeline(tmp_path / "t.json"))
    assert (found.makespan_s, found.bubble_fraction) == (8.0, 0.5)
    assert [row.idle_s for row in found.devices] == [2.0, 6.0]

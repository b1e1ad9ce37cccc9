"""What holds for pictures and bars of any timeline: predicted or measured, of any graph, with spans that are missing."""

import xml.etree.ElementTree as ET
from io import BytesIO, StringIO
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot

from plots.bars import lay_out, place_rows
from plots.comparison import comparison
from plots.gantt import gantt
from plots.memory import memory
from schedir.ir.action import Kind
from schedir.ir.lanes import LaneKind
from schedir.timeline.timeline import Timeline
from simulator import simulate
from tests.simulator.doubles import CostsWithBytes
from tests.strategies import any_graphs
from tests.timeline.test_laws import measurements, predictions

pytestmark = pytest.mark.law

Bar = tuple[int, int, int, int, float, float]
"""Lane, kind, stage, micro-batch, start and release from the first start on."""


def spans_of(timeline: Timeline, *, links: bool) -> list[Bar]:
    """Return what a picture has to show: all that is recorded and takes time, and transfers; pairs as their halves."""
    graph, first = timeline.graph, float(np.nanmin(timeline.start))
    found = []
    for task in range(graph.num_tasks):
        lane, kind = int(graph.lane[task]), int(graph.kind[task])
        start, end = float(timeline.start[task]), float(timeline.end[task])
        free = end if timeline.release is None else float(timeline.release[task])
        if np.isnan(start) or (end <= start and kind != Kind.TRANSFER):
            continue
        if graph.lanes[lane].kind is not LaneKind.COMPUTE and not links:
            continue
        parts = [(Kind.FORWARD if kind == Kind.OVERLAPPED else kind, int(graph.stage[task]), int(graph.micro_batch[task]))]
        pairs = graph.pairs
        for place in np.flatnonzero(pairs.task == task).tolist():
            parts += [(int(pairs.kind[place]), int(pairs.stage[place]), int(pairs.micro_batch[place]))]
        found += [(lane, *part, start - first, free - first) for part in parts]
    return sorted(found)


@given(predictions() | measurements(), st.booleans())
def test_bars_are_the_spans_that_take_time(timeline: Timeline, links: bool) -> None:
    rows = place_rows(timeline.graph, links=links)
    bars = lay_out(timeline, rows)
    tops = [row.top for row in rows]
    lanes = [rows[int(np.searchsorted(tops, top, side="right")) - 1].lane for top in bars.top]
    # where the receiver stands above, the lower edge is the sender's
    earlier = np.minimum(bars.slant, 0.0)
    columns = (bars.kind, bars.stage, bars.micro_batch, bars.left + earlier, bars.right + earlier)
    found = sorted(zip(lanes, *(column.tolist() for column in columns), strict=True))

    expected = spans_of(timeline, links=links)
    assert [bar[:4] for bar in found] == [bar[:4] for bar in expected]
    assert np.array([bar[4:] for bar in found]) == pytest.approx(np.array([bar[4:] for bar in expected]), abs=1e-9)
    assert all(row.top + row.height == after.top for row, after in pairwise(rows))


@pytest.mark.slow
@settings(max_examples=10)
@given(predictions(), measurements(), st.sampled_from(["kind", "stage", "mini-batch"]), st.sampled_from([0, 1]), st.booleans())
def test_any_timelines_can_be_drawn(  # noqa: PLR0917 - Hypothesis gives them so
    predicted: Timeline, measured: Timeline, color_by: str, number_from: int, links: bool
) -> None:
    figures = [gantt(predicted, measured, color_by=color_by, number_from=number_from, links=links, memory=True)]
    figures.append(comparison(predicted, measured))
    for figure in figures:
        written = BytesIO()
        figure.savefig(written, format="svg")
        pyplot.close(figure)
        assert ET.parse(StringIO(written.getvalue().decode())).getroot().tag.endswith("svg")


@settings(max_examples=3)
@given(any_graphs())
def test_memory_of_any_graph_can_be_drawn(graph: object) -> None:
    timeline = simulate(graph, CostsWithBytes(weights=1e9, activations=2e8, boundary=1e8, recomputed=1e8, output=1e7))  # type: ignore[arg-type]  # a graph
    figure = memory(timeline)
    pyplot.close(figure)
    assert timeline.memory is not None
    assert len(figure.axes) == len(timeline.memory)

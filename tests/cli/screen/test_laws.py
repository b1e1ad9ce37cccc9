"""What holds for what the terminal shows of any program, graph and timeline."""

import io
from contextlib import redirect_stdout
from unittest import mock
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schedir.cli.screen.bars import bar_rows, window_of
from schedir.cli.screen.facts_text import print_facts, print_weights
from schedir.cli.screen.simulate_text import print_prediction
from schedir.ir.facts import facts
from schedir.ir.graph import TaskGraph
from schedir.ir.notation.grid import grid
from schedir.ir.program import Program
from schedir.timeline.metrics.metrics import metrics
from schedir.timeline.metrics.report import simulate_report
from schedir.timeline.timeline import Timeline
from tests.made_up import made_up_programs
from tests.strategies import any_graphs, programs, written_programs
from tests.timeline.test_laws import measurements, predictions

pytestmark = pytest.mark.law

WIDTHS = st.sampled_from([40, 60, 100, 200])


@given(any_graphs(), WIDTHS)
def test_a_grid_fits_and_facts_are_printed(graph: TaskGraph, width: int) -> None:
    printed = io.StringIO()
    with redirect_stdout(printed):
        print_facts(graph)
        print_weights(graph, facts(graph))

    assert printed.getvalue().strip()
    # what stands behind the rows is prose
    rows = [line for line in grid(graph, width=width).splitlines() if line.startswith("device ")]
    assert len(rows) == graph.program.num_devices
    assert max(map(len, rows)) <= width


@example(Program.from_orders("\x1f", [[]], num_stages=1, num_micro_batches=1))
@given(programs() | made_up_programs() | written_programs())
def test_pictures_of_programs_are_well_formed(program: Program) -> None:
    assert ET.fromstring(program._repr_svg_()).tag.endswith("svg")
    assert repr(program)


@given(any_graphs())
def test_pictures_of_graphs_are_well_formed(graph: TaskGraph) -> None:
    assert ET.fromstring(graph._repr_svg_()).tag.endswith("svg")


@given(predictions() | measurements(), WIDTHS)
def test_bars_of_a_timeline_fit_the_terminal(timeline: Timeline, width: int) -> None:
    printed = io.StringIO()
    with mock.patch.dict("os.environ", {"COLUMNS": str(width)}), redirect_stdout(printed):
        figures = metrics(timeline)
        print_prediction(timeline, figures, simulate_report(timeline, figures))
        rows = bar_rows(timeline, window_of([timeline], 12))

    assert ET.fromstring(timeline._repr_svg_()).tag.endswith("svg")
    drawn = [line for line in printed.getvalue().splitlines() if line.endswith("|")]
    assert len(drawn) == timeline.graph.program.num_devices == len(rows)
    assert max(len(line) for line in drawn) <= width

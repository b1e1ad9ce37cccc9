from schedir.timeline.metrics.metrics import metrics
from tests.timeline.build import graph_of, run


def test_metrics_are_shown_as_a_table_with_their_definitions() -> None:
    """1f1b p=4 m=8 at F=1 B=2: makespan 33, bubble 9/33, overhead 9/24."""
    shown = metrics(run(graph_of("1f1b", 4, 8)))._repr_html_()

    assert "<td>makespan_s</td><td>33</td><td>last end - first start</td>" in shown
    assert "<td>bubble_fraction</td><td>0.272727</td>" in shown
    assert "<td>bubble_overhead</td><td>0.375</td>" in shown
    assert shown.count("<tr>") == 6 + 1 + 4


def test_the_steady_state_is_shown_where_there_is_one() -> None:
    shown = metrics(run(graph_of("pipedream", 2, 1, num_mini_batches=5)))._repr_html_()

    assert "<td>steady</td><td>3</td><td>mini-batches 1 to 2, bubble 0</td>" in shown


def test_a_timeline_is_shown_as_a_picture() -> None:
    shown = run(graph_of("1f1b", 2, 1))._repr_svg_()

    assert shown.startswith("<svg ")
    assert "1f1b, simulated: 6 s" in shown

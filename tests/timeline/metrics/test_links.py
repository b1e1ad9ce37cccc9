from typing import cast

import numpy as np

from schedir.ir.action import Kind
from schedir.timeline.metrics.links import LinkRow, link_rows
from schedir.timeline.settled import settle
from tests.timeline.build import graph_of, run, two_devices_by_hand


def test_a_link_is_occupied_by_one_transfer_at_a_time() -> None:
    """gpipe p=2 m=2, F=1 B=2, link occupied for 3: F0 is sent in [1, 4]; F1 is ready at 2 and is sent in [4, 7], so it queues 2.
    Backwards B1 is ready at 10 and sent in [10, 13], B0 is ready at 12 and queues 1."""
    graph = graph_of("gpipe", 2, 2)
    rows = link_rows(settle(run(graph, {Kind.TRANSFER: 3.0})), {"link 0->1": 20, "link 1->0": 40})

    assert rows == (
        LinkRow("link 0->1", 0, 1, transfers=2, bytes=20, busy_s=6.0, waiting_s=2.0),
        LinkRow("link 1->0", 1, 0, transfers=2, bytes=40, busy_s=6.0, waiting_s=1.0),
    )


def test_latency_occupies_nothing() -> None:
    rows = link_rows(settle(run(graph_of("gpipe", 2, 2), latency=3.0)), None)

    assert [(row.bytes, row.busy_s, row.waiting_s) for row in rows] == [(None, 0.0, 0.0)] * 2


def test_transfers_that_are_free_are_not_modelled() -> None:
    assert link_rows(settle(run(graph_of("gpipe", 2, 2))), None) == ()
    assert link_rows(settle(two_devices_by_hand()), None) == ()


def test_one_device_has_no_links() -> None:
    assert link_rows(settle(run(graph_of("gpipe", 1, 2), latency=1.0)), None) == ()


def test_transfers_may_take_no_time_and_still_carry_bytes() -> None:
    rows = link_rows(settle(run(graph_of("1f1b", 2, 1))), dict.fromkeys(("link 0->1", "link 1->0"), cast("int", np.int64(7))))

    assert [row.bytes for row in rows] == [7, 7]

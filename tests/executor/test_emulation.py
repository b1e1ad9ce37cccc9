"""Emulated devices sleep what their tasks cost."""

import sys

import numpy as np
import pytest

from executor.emulation import emulate
from schedir.costs.uniform import UniformCosts
from schedir.ir.action import Kind
from schedir.ir.graph import TaskGraph
from schedir.timeline.timeline import Source
from tests.executor.small.models import assert_dependencies_kept, compiled

MILLISECOND = 1e-3
COSTS = UniformCosts(
    forward=2 * MILLISECOND, backward=3 * MILLISECOND, update=MILLISECOND, predict=MILLISECOND, transfer=2 * MILLISECOND
)


@pytest.mark.parametrize(
    "graph",
    [
        compiled("gpipe", 3, 2, recompute="always", recompute_start="on-gradient"),
        compiled("1f1b", 3, 3),
        compiled("pipedream", 3, 1, num_mini_batches=4, replicas=(2, 1)),
        compiled("xpipe", 2, 2, num_mini_batches=4),
    ],
    ids=["gpipe", "1f1b", "replicas", "xpipe"],
)
def test_every_task_sleeps_its_cost_and_waits_for_what_it_needs(graph: TaskGraph) -> None:
    timeline = emulate(graph, COSTS)
    expected = COSTS.times(graph)
    compute = slice(0, graph.num_compute_tasks)

    assert timeline.recorded.all()
    assert timeline.source is Source.MEASURED
    assert ((timeline.end - timeline.start)[compute] >= expected.duration[compute] - 1e-6).all()
    assert_dependencies_kept(timeline)


def test_a_transfer_arrives_after_its_latency_and_does_not_occupy_its_link() -> None:
    graph = compiled("gpipe", 2, 3)
    timeline = emulate(graph, COSTS)
    transfers = np.flatnonzero(graph.kind == Kind.TRANSFER)

    assert timeline.release is not None
    assert (timeline.end - timeline.start)[transfers] == pytest.approx(np.full(len(transfers), 2 * MILLISECOND), abs=1e-9)
    assert timeline.release[transfers] == pytest.approx(timeline.start[transfers], abs=1e-9)


def test_meta_says_what_ran() -> None:
    meta = emulate(compiled("gpipe", 2, 1), COSTS).meta

    assert meta["workers"] == "emulated"
    assert meta["costs"]["forward_s"] == [2 * MILLISECOND] * 2


def test_no_torch_is_needed() -> None:
    import subprocess

    code = (
        "import sys, schedir; from executor import emulate; from schedir import UniformCosts, build_program, compile_program;"
        "program = build_program('gpipe', num_devices=2, num_micro_batches=2);"
        "emulate(compile_program(program), UniformCosts(forward=0.001, backward=0.001));"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

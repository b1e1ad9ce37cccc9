"""What `schedir check --gradients` proves, and that it can fail."""

from typing import Any

import pytest

from schedir.compiler import compile_program
from schedir.errors import RunError
from schedir.ir.graph import TaskGraph
from schedir.ir.notation.cells import parse_action
from schedir.ir.program import Program
from schedir.schedules.registry import build_program
from schedir.workflows.checking import check_gradients as checks
from schedir.workflows.checking.check_gradients import GradientCheck, check_gradients
from schedir.workflows.checking.serial import train_serially


def graph_of(name: str, recompute: str = "never", **options: Any) -> TaskGraph:
    return compile_program(build_program(name, num_devices=3, num_micro_batches=2, **options), recompute=recompute)


def test_a_synchronous_schedule_is_held_against_the_unpartitioned_model() -> None:
    found = check_gradients(graph_of("gpipe", recompute="always"))

    assert found.agrees
    assert found.require().startswith("gradients agree: 5 mini-batches trained in float64 against the unpartitioned model")


@pytest.mark.parametrize(
    "graph",
    [
        graph_of("pipedream", weights="current"),
        graph_of("pipedream", replicas=(2, 1)),
        graph_of("xpipe", horizon="exact"),
        graph_of("xpipe", recompute="always"),
    ],
    ids=["no stash", "replicas", "saved", "recomputed"],
)
def test_other_schedules_are_held_against_a_serial_execution(graph: TaskGraph) -> None:
    found = check_gradients(graph)

    assert found.agrees
    assert found.reference == "a serial execution of the versions read"
    assert found.num_mini_batches == graph.program.num_mini_batches


SPLIT = (
    "0F0 0F1 0I0 0F2 0I1 0W0 0I2 0W1 0W2",
    "1F0 1I0 1F1 1W0 1I1 1F2 1W1 1I2 1W2",
)
OVERLAPPED = (
    "0F0 0F1 (0F2;0B0)OVERLAP_F_B 0B1 0B2",
    "1F0 1B0 1F1 1B1 1F2 1B2",
)


@pytest.mark.parametrize("orders", [SPLIT, OVERLAPPED], ids=["split backward", "overlapped pair"])
def test_orders_of_ones_own_are_proved_too(orders: tuple[str, ...]) -> None:
    actions = [[parse_action(cell) for cell in order.split()] for order in orders]
    program = Program.from_orders("mine", actions, num_stages=2, num_micro_batches=3)

    assert check_gradients(compile_program(program)).agrees


def test_a_wrong_result_is_an_error_that_names_the_stage() -> None:
    check = GradientCheck("the unpartitioned model", 5, 0.0, (0.0, 2e-10))

    with pytest.raises(RunError, match=r"gradients differ: .* 2\.0e-10 in weights \(stage 1\), but at most 1e-10 is rounding"):
        check.require()


def test_weights_predicted_otherwise_are_found_out() -> None:
    """The run of one graph does not pass for that of another: horizons differ by one update."""
    graph, other = graph_of("xpipe", horizon=1), graph_of("xpipe", horizon=2)
    run, before, data = checks._train(other, "threads", steps=14, samples=5, timeout=60.0)
    expected = train_serially(graph, before, data, sgd=checks.SGD)

    assert not checks._compare("it", expected, run).agrees

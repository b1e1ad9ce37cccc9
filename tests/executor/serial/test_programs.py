"""Programs of one's own: split backwards, overlapped pairs, several stages on a device, updates placed by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from executor.training import Run, train
from schedir.compiler import compile_program
from schedir.ir.action import Action, Entry, Kind, Overlapped
from schedir.ir.graph import TaskGraph
from schedir.ir.program import Program
from tests.executor.serial.serial_programs import train_by_graph
from tests.executor.small.models import batches, mlp, pipeline_of, reference
from tests.late_halves import late_halves

F, B, I, W, U, R = Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD, Kind.UPDATE, Kind.RECOMPUTE  # noqa: E741 - as in a grid


def order(stage: int, text: str) -> list[Entry]:
    """Read `F0 I0 W0`."""
    letters = {"F": F, "B": B, "I": I, "W": W, "U": U, "R": R}
    return [Action(stage, letters[word[0]], int(word[1:])) for word in text.split()]


def graph_of(*orders: list[Entry], num_micro_batches: int, num_stages: int = 2, num_mini_batches: int = 1) -> TaskGraph:
    program = Program.from_orders(
        "by hand", orders, num_stages=num_stages, num_micro_batches=num_micro_batches, num_mini_batches=num_mini_batches
    )
    return compile_program(program)


def assert_trains_like_the_whole_model(graph: TaskGraph) -> Run:
    data = batches(4, samples=6)
    whole = mlp(graph.program.num_stages)
    losses, gradients = reference(whole, data)
    run = train(graph, pipeline_of(mlp(graph.program.num_stages)), data, timeout=60)

    assert run.losses == pytest.approx(losses, abs=1e-10)
    for key, gradient in gradients.items():
        assert torch.allclose(run.gradients[key], gradient, rtol=0, atol=1e-10)
    return run


def test_a_split_backward_gives_the_same_gradients() -> None:
    """ZB-H1's idea on two stages: the weight gradients wait until nothing else is to do."""
    assert_trains_like_the_whole_model(
        graph_of(order(0, "F0 F1 I0 F2 I1 W0 I2 W1 W2"), order(1, "F0 I0 F1 I1 W0 F2 I2 W1 W2"), num_micro_batches=3)
    )


def test_split_and_full_backwards_may_be_mixed() -> None:
    assert_trains_like_the_whole_model(graph_of(order(0, "F0 F1 B0 I1 W1"), order(1, "F0 I0 F1 B1 W0"), num_micro_batches=2))


def test_a_recomputed_backward_may_be_split() -> None:
    program = Program.from_orders(
        "by hand", [order(0, "F0 F1 I0 I1 W1 W0"), order(1, "F0 F1 I0 I1 W1 W0")], num_stages=2, num_micro_batches=2
    )
    assert_trains_like_the_whole_model(compile_program(program, recompute="always"))


def test_an_overlapped_pair_does_both_of_its_actions() -> None:
    first: list[Entry] = [*order(0, "F0 F1"), Overlapped(Action(0, F, 2), Action(0, B, 0)), *order(0, "B1 B2")]
    second: list[Entry] = [*order(1, "F0"), Overlapped(Action(1, F, 1), Action(1, B, 0)), *order(1, "B1 F2 I2 W2")]
    run = assert_trains_like_the_whole_model(graph_of(first, second, num_micro_batches=3))

    graph = run.timeline.graph
    assert np.array_equal(run.reads.pair_version, graph.pairs.version)
    assert np.array_equal(run.reads.pair_horizon, graph.pairs.horizon)


def test_a_device_may_host_several_stages() -> None:
    """Stages 0 and 2 on device 0, 1 and 3 on device 1, as interleaving has them; and a V, where hand-overs stay on one device."""
    looped = [*order(0, "F0 F1"), *order(2, "F0 F1 B1 B0"), *order(0, "B1 B0")]
    other = [*order(1, "F0 F1"), *order(3, "F0 F1 B1 B0"), *order(1, "B1 B0")]
    assert_trains_like_the_whole_model(graph_of(looped, other, num_micro_batches=2, num_stages=4))

    outer = [*order(0, "F0 F1"), *order(3, "F0 F1 B1 B0"), *order(0, "B1 B0")]
    inner = [
        *order(1, "F0"),
        *order(2, "F0"),
        *order(1, "F1"),
        *order(2, "F1 B1"),
        *order(1, "B1"),
        *order(2, "B0"),
        *order(1, "B0"),
    ]
    assert_trains_like_the_whole_model(graph_of(outer, inner, num_micro_batches=2, num_stages=4))


def test_one_stage_may_run_on_two_devices_that_share_every_mini_batch() -> None:
    """Two directions, as Chimera has them: device 0 holds stages 0 and 1 of micro-batch 0 and 1, device 1 the others."""
    down = [*order(0, "F0"), *order(1, "F1 B1"), *order(0, "B0")]
    up = [*order(0, "F1"), *order(1, "F0 B0"), *order(0, "B1")]
    assert_trains_like_the_whole_model(graph_of(down, up, num_micro_batches=2))


def test_a_program_may_place_its_own_updates_and_recomputations() -> None:
    first = order(0, "F0 F1 R1 B1 B0 U1 F2 F3 R3 B3 B2 U3")
    second = order(1, "F0 F1 B1 B0 U1 F2 F3 B3 B2 U3")
    assert_trains_like_the_whole_model(graph_of(first, second, num_micro_batches=2, num_mini_batches=2))


@pytest.mark.parametrize("split", ["deferred", "differentiate"])
def test_a_gradient_is_taken_at_one_point_though_updates_stand_in_its_backward(split: str) -> None:
    """On the first stage, whose I does nothing where it is differentiated twice, as on the others."""
    graph, data = compile_program(late_halves(3)), batches(4, samples=3)
    losses, weights = train_by_graph(graph, mlp(3), data)
    run = train(graph, pipeline_of(mlp(3), split=split), data, timeout=60)

    assert np.array_equal(run.reads.version, graph.version[: graph.num_compute_tasks])
    assert run.losses == pytest.approx(losses, abs=1e-12)
    for key, value in run.state_dict().items():
        assert torch.allclose(value, weights[key], rtol=0, atol=1e-12), key


def test_a_graph_of_several_mini_batches_repeats_until_the_data_ends() -> None:
    first, second = order(0, "F0 F1 B0 B1 F2 F3 B2 B3"), order(1, "F0 B0 F1 B1 F2 B2 F3 B3")
    run = assert_trains_like_the_whole_model(graph_of(first, second, num_micro_batches=2, num_mini_batches=2))

    assert [timeline.meta["first_mini_batch"] for timeline in run.timelines] == [0, 2]
    assert [timeline.meta["warm_up"] for timeline in run.timelines] == [True, False]


def test_d9_gradients_of_an_operation_with_several_outputs_go_to_their_own_parts() -> None:
    """Linear(2 to 4, weight 1), x = [[1, 2]], a, b = halves, loss = sum(2a + 3b): dW = [[2, 4], [2, 4], [3, 6], [3, 6]]."""

    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 4, bias=False).double()
            nn.init.ones_(self.linear.weight)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a, b = self.linear(x).chunk(2, dim=1)
            output: torch.Tensor = 2 * a + 3 * b
            return output

    pipeline = pipeline_of([nn.Identity(), Halves()], optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0))
    pipeline.loss = lambda output, _: output.sum()
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    run = train(graph_of(order(0, "F0 I0 W0"), order(1, "F0 I0 W0"), num_micro_batches=1), pipeline, [(x, x)], timeout=60)

    assert run.gradients["1.linear.weight"].tolist() == [[2, 4], [2, 4], [3, 6], [3, 6]]

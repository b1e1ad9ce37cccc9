"""The same work for schedules that cut it differently."""

import pytest

from schedir.costs.table.meaning import Granularity
from schedir.costs.table.pieces import PieceBytes, PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.uniform import UniformCosts
from schedir.errors import ArgumentError
from schedir.ir.compile_options import CompileOptions
from schedir.ir.program import Program
from schedir.schedules.registry import build_program
from schedir.workflows.comparing.compare_schedules import CommonSetting, compare_schedules
from schedir.workflows.comparing.equal_work import equal_work


def program(name: str, num_devices: int = 4, num_micro_batches: int = 8, **options: object) -> Program:
    return build_program(name, num_devices=num_devices, num_micro_batches=num_micro_batches, **options)  # type: ignore[arg-type]  # options


def layers(count: int) -> TableCosts:
    row = PieceCosts(forward=1, input_grad=1, weight_grad=1)
    return TableCosts(rows=(row,) * count, granularity=Granularity.LAYER)


@pytest.mark.parametrize(
    ("name", "expected", "line"),
    [
        # p = 4, m = 8, F = I = W = 1: (m + p - 1)(F + B) = 33 on four stages; 6m + p - 1 = 51 slots of half a second on eight.
        ("zb-v", 25.5, "zb-v: 8 stages, each with half of the work of 1f1b's"),
        # (p - 1)(F + B)/v + m (F + B) = 9 / 3 + 24 on twelve stages, v = 3
        ("interleaved-1f1b", 27, "interleaved-1f1b: 12 stages, each with a third of the work of 1f1b's"),
    ],
)
def test_more_stages_do_not_make_a_deeper_model(name: str, expected: float, line: str) -> None:
    stages = {"stages_per_device": 3} if name == "interleaved-1f1b" else {}
    programs = [program("1f1b"), program(name, **stages)]
    costs = UniformCosts(forward=1, input_grad=1, weight_grad=1)
    plain, other = compare_schedules(programs, CommonSetting(costs=costs))

    assert plain.timeline.makespan_s == 33
    assert other.timeline.makespan_s == pytest.approx(expected, rel=1e-12)
    assert sum(row.busy_s for row in other.figures.devices) == pytest.approx(4 * 8 * 3)
    assert equal_work(costs, programs).lines(programs) == (line,)


def test_costs_belong_to_the_schedule_with_fewest_stages_wherever_it_stands() -> None:
    programs = [program("dualpipev"), program("zb-v"), program("1f1b"), program("zb-v")]

    assert equal_work(UniformCosts(), programs).of(programs[2]) == UniformCosts()
    assert equal_work(UniformCosts(), programs).lines(programs) == (
        "dualpipev, zb-v: 8 stages, each with half of the work of 1f1b's",
    )
    assert equal_work(UniformCosts(), programs[:2]).lines(programs[:2]) == ()


def test_two_directions_are_no_more_stages() -> None:
    """chimera and dualpipe hold every stage twice; the model has four."""
    programs = [program("1f1b"), program("chimera"), program("dualpipe")]

    assert [each.num_stages for each in programs] == [4, 4, 4]
    assert equal_work(UniformCosts(), programs).lines(programs) == ()


def test_memory_of_the_whole_model_is_the_same() -> None:
    """Four stages of 100 bytes, or eight of 50: on every device 100, also of what is kept inside (input 0)."""
    default = PieceCosts(forward=1, input_grad=1, weight_grad=1, bytes=PieceBytes(weights=100, activations=8, boundary=0))
    programs = [program("1f1b"), program("zb-v")]
    one, other = compare_schedules(programs, CommonSetting(costs=TableCosts(default=default)))

    assert one.figures.devices[0].peak_bytes == 132  # p = 4 micro-batches of 8
    assert [row.peak_bytes for row in other.figures.devices] == [132] * 4  # 2p pairs of 4


def test_costs_per_layer_are_cut_for_every_schedule() -> None:
    programs = [program("1f1b"), program("zb-v")]
    one, other = compare_schedules(programs, CommonSetting(costs=layers(16)))

    assert (one.timeline.makespan_s, other.timeline.makespan_s) == (4 * 33, 2 * 51)
    assert equal_work(layers(16), programs).lines(programs) == (
        "1f1b: 4 stages, of 4 layers, the 16 cut evenly",
        "zb-v: 8 stages, of 2 layers, the 16 cut evenly",
    )
    with pytest.raises(ArgumentError, match="7 layers cannot fill 8 stages"):
        compare_schedules(programs, CommonSetting(costs=layers(7)))


def test_a_cut_that_is_given_holds_where_it_fits() -> None:
    programs = [program("1f1b"), program("zb-v")]
    costs = layers(10).cut((1, 3, 3, 3))

    assert equal_work(costs, programs).of(programs[0]) == costs
    assert equal_work(costs, programs).lines(programs) == ("zb-v: 8 stages, of 1 or 2 layers, the 10 cut evenly",)


def test_times_that_are_not_given_grow_with_a_micro_batch_too() -> None:
    programs = [program("pipedream", num_micro_batches=1), program("1f1b", num_micro_batches=8)]

    assert equal_work(UniformCosts(), programs).of(programs[0]) == UniformCosts(forward=8, input_grad=8, weight_grad=8)


def test_larger_micro_batches_send_more_also_over_skip_connections() -> None:
    """Four micro-batches of the same mini-batch, where the costs are those of one of eight: twice as many samples each."""
    programs = [program("1f1b"), program("1f1b", num_micro_batches=4)]
    costs = equal_work(UniformCosts(transfer_bytes=10, skip_bytes=30), programs).of(programs[1])

    assert isinstance(costs, UniformCosts)
    assert (costs.transfer_bytes, costs.skip_bytes) == (20, 60)


def test_skip_connections_need_the_same_stages_everywhere() -> None:
    setting = CommonSetting(costs=UniformCosts(), lowering=CompileOptions(skips=((0, 2),)))

    with pytest.raises(ArgumentError, match=r"1f1b has 4 and zb-v 8: compare schedules with equally many stages$"):
        compare_schedules([program("1f1b"), program("zb-v")], setting)

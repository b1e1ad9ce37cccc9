"""How long a program takes before it is compiled: to the last bit what the compiled graph takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.compiler import compile_program
from schedir.costs.model import CostModel
from schedir.costs.table.pieces import PieceCosts
from schedir.costs.table.table import TableCosts
from schedir.costs.uniform import UniformCosts
from schedir.costs.work import WorkTime
from schedir.errors import ArgumentError
from schedir.ir.order.in_order import evaluate
from schedir.ir.program import Program
from schedir.schedules.layout.makespan import makespan
from schedir.schedules.registry import build_program
from tests.strategies import SECONDS, programs, uniform_costs

SPLIT = ("zb-h1", "zb-h2", "interleaved-zb", "zb-v", "v-half", "hanayo")


def compiled_makespan(program: Program, costs: CostModel) -> float:
    graph = compile_program(program)
    return float(evaluate(graph, costs.times(graph)).end.max())


@given(program=programs(names=SPLIT).filter(lambda program: 1 not in program.kind), data=st.data())
def test_it_is_that_of_the_compiled_graph(program: Program, data: st.DataObject) -> None:
    costs = data.draw(uniform_costs(program.num_stages))

    assert makespan(program, costs.work_times(program)) == compiled_makespan(program, costs)


@st.composite
def tables(draw: st.DrawFn, num_stages: int, num_micro_batches: int) -> TableCosts:
    work = st.builds(WorkTime, SECONDS, st.none() | SECONDS)
    piece = st.builds(PieceCosts, forward=work, input_grad=work, weight_grad=work, update=work)
    sizes = st.lists(st.integers(1, 3), min_size=num_micro_batches, max_size=num_micro_batches).map(tuple)
    return TableCosts(
        rows=tuple(draw(st.lists(piece, min_size=num_stages, max_size=num_stages))),
        micro_batch_sizes=draw(st.none() | sizes),
        transfer=draw(st.none() | SECONDS),
        dispatch_gap_s=draw(SECONDS),
    )


@given(program=programs(names=SPLIT).filter(lambda program: 1 not in program.kind), data=st.data())
def test_first_times_sizes_and_gaps_of_tables_count(program: Program, data: st.DataObject) -> None:
    costs = data.draw(tables(program.num_stages, program.num_micro_batches))

    assert makespan(program, costs.work_times(program)) == compiled_makespan(program, costs)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        (UniformCosts(backward=2.0), "zb-h1 splits backward: give --input-grad and --weight-grad instead of --backward 2"),
        (UniformCosts(forward=[1.0, 2.0, 3.0]), "forward has 3 values, but zb-h1 has 2 stages"),
        (
            TableCosts(rows=(PieceCosts(forward=WorkTime(1.0), backward=WorkTime(2.0)),) * 2),
            "zb-h1 splits backward, but the costs table does not state the halves of stage 0: give input_grad and weight_grad",
        ),
        (TableCosts(rows=(PieceCosts(forward=WorkTime(1.0), backward=WorkTime(2.0)),)), "has 1 stage, but the schedule has 2"),
    ],
)
def test_costs_that_do_not_fit_are_refused_as_for_a_graph(costs: CostModel, message: str) -> None:
    program = build_program("zb-h1", num_devices=2, num_micro_batches=2)

    with pytest.raises(ArgumentError, match=message):
        costs.work_times(program)

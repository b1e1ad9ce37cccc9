"""What a device may hold, counted in activations and in bytes."""

from schedir.costs.files.costs_file import load_costs
from schedir.ir.action import Kind
from schedir.ir.compile_options import CompileOptions
from schedir.search.problem.problem import Limits, Problem, StagePlacement
from schedir.search.problem.room import fits, room_of, tightened
from schedir.search.problem.tables import tables_of
from schedir.search.problem.work import sequential
from tests.repository import ROOT
from tests.search.problems import problem_of

COSTS = ROOT / "tests" / "data" / "stages.costs.toml"


def test_activations_are_alive_from_forward_to_weight_gradient() -> None:
    problem = problem_of(1, 2, live=1)
    tables = tables_of(problem, StagePlacement.LOOP)
    room = room_of(problem, tables, None)
    of = tables.numbering.of
    first = [of(Kind.FORWARD, 0, 0), of(Kind.INPUT_GRAD, 0, 0), of(Kind.WEIGHT_GRAD, 0, 0)]
    second = [number + 1 for number in first]

    assert fits(room, [first + second])
    assert not fits(room, [[first[0], first[1], second[0], first[2], *second[1:]]])


def test_bytes_are_those_of_weights_activations_and_work_in_progress() -> None:
    """Stage 1: weights 2.1, gradients 4.2, optimizer 12.6, an activation 1.1 and workspace 0.4 GB."""
    problem = Problem(num_devices=2, num_micro_batches=2, costs=load_costs(COSTS), limits=Limits(bytes=22e9))
    tables = tables_of(problem, StagePlacement.LOOP)
    (room,) = room_of(problem, tables, [22_000_000_000] * 2)
    forward = tables.numbering.of(Kind.FORWARD, 1, 0)

    assert room.most[1] == 22_000_000_000 - 18_900_000_000
    assert (room.takes[forward], room.gives[forward]) == (1_500_000_000, 400_000_000)


def test_less_room_admits_less() -> None:
    problem = Problem(num_devices=2, num_micro_batches=2, costs=load_costs(COSTS))
    tables = tables_of(problem, StagePlacement.LOOP)
    orders = sequential(tables.homes, 2, split=True)
    (room,) = room_of(problem, tables, [22_000_000_000] * 2)

    assert fits((room,), orders)
    assert not fits((tightened(room, (0, 2_000_000_000)),), orders)


def test_recomputed_sets_take_room_from_the_backward_on() -> None:
    """Stage 1: an activation of 1.1, of which 0.1 GB is the boundary; R makes the rest again, and B or I work in 0.4 GB beside."""
    problem = Problem(num_devices=2, num_micro_batches=2, costs=load_costs(COSTS), lowering=CompileOptions(("always",)))
    tables = tables_of(problem, StagePlacement.LOOP)
    (room,) = room_of(problem, tables, [22_000_000_000] * 2)
    units = tables.units
    assert units is not None
    boundary, again, working = (round(float(column[1])) for column in (units.boundary, units.recomputed, units.workspace))
    forward, gradient = (tables.numbering.of(kind, 1, 0) for kind in (Kind.FORWARD, Kind.INPUT_GRAD))
    last = tables.numbering.of(Kind.WEIGHT_GRAD, 1, 0)

    assert min(boundary, again, working) > 0
    assert room.takes[forward] == working + boundary
    assert room.takes[gradient] == working + again
    assert room.takes[last] == working
    held = sum(room.takes[number] - room.gives[number] for number in (forward, gradient, last))
    assert held == 0


def test_work_in_progress_takes_its_workspace_whatever_it_is() -> None:
    """Stage 1: 0.4 GB; without it W, which keeps nothing, would take no room at all."""
    problem = Problem(num_devices=2, num_micro_batches=2, costs=load_costs(COSTS))
    tables = tables_of(problem, StagePlacement.LOOP)
    (room,) = room_of(problem, tables, [22_000_000_000] * 2)

    for kind in (Kind.BACKWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD):
        assert room.takes[tables.numbering.of(kind, 1, 0)] == 400_000_000

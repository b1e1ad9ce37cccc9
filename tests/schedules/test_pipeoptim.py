"""PipeOptim: grid, horizons, parameter sets."""

import pytest

from schedir.compiler import compile_program
from schedir.errors import ArgumentError
from schedir.ir.facts import facts
from schedir.schedules import pipeoptim
from schedir.schedules.registry import build_program
from tests.schedules.drawing import drawn, grid_of

GRID = """\
device 0 | F0^ F1^ F2^ .   .   B0* F3^ B1* F4^ B2* F5^ B3* .   B4* .   B5*
device 1 | .   F0^ F1^ .   B0* F2^ B1* F3^ B2* F4^ B3* F5^ B4* .   B5* .
device 2 | .   .   F0  B0* F1  B1* F2  B2* F3  B3* F4  B4* F5  B5* .   .""".splitlines()


def test_the_grid_is_that_of_the_docstring() -> None:
    assert grid_of("pipeoptim", 3, 1, num_mini_batches=6) == GRID == drawn(pipeoptim.__doc__)


def test_only_forwards_are_predicted_up_to_what_the_backward_finds() -> None:
    """Forward p - k - 1, backward 0; both are what the graph counts, so that F and B read weights of one age."""
    found = facts(compile_program(build_program("pipeoptim", num_devices=4, num_micro_batches=1)))

    assert found.horizon_forward == found.counted_forward == (3, 2, 1, 0)
    assert found.horizon_backward == (0, 0, 0, 0)


def test_a_stage_keeps_at_most_two_parameter_sets() -> None:
    """The paper, section 3: the current weights and the forward's prediction."""
    found = facts(compile_program(build_program("pipeoptim", num_devices=4, num_micro_batches=1)))

    assert found.weight_versions == (2, 2, 2, 1)
    assert set(found.true_versions) == {1}


def test_a_horizon_may_be_chosen() -> None:
    program = build_program("pipeoptim", num_devices=2, num_micro_batches=1, horizon=3)

    assert facts(compile_program(program)).horizon_forward == (3, 3)
    with pytest.raises(ArgumentError, match="horizon 'far' is unknown"):
        build_program("pipeoptim", num_devices=2, num_micro_batches=1, horizon="far")

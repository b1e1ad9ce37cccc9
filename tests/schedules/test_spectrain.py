"""SpecTrain: grid, horizons, the variant that stashes its prediction."""

import pytest

from schedir.compiler import compile_program
from schedir.errors import ArgumentError
from schedir.ir.facts import facts
from schedir.ir.weights import BackwardWeights, Rule, WeightRule
from schedir.schedules import spectrain
from schedir.schedules.registry import build_program
from tests.schedules.drawing import drawn, grid_of

GRID = """\
device 0 | F0^ F1^ F2^ .   .   B0* F3^ B1* F4^ B2* F5^ B3* .   B4* .   B5*
device 1 | .   F0^ F1^ .   B0* F2^ B1* F3^ B2* F4^ B3* F5^ B4* .   B5* .
device 2 | .   .   F0^ B0^*F1^ B1^*F2^ B2^*F3^ B3^*F4^ B4^*F5^ B5^*.   .""".splitlines()


def test_the_grid_is_that_of_the_docstring() -> None:
    assert grid_of("spectrain", 3, 1, num_mini_batches=6) == GRID == drawn(spectrain.__doc__)


def test_horizons_are_those_of_the_paper() -> None:
    """Forward floor(k/2) + p - k - 1, backward floor(k/2); p = 4."""
    found = facts(compile_program(build_program("spectrain", num_devices=4, num_micro_batches=1)))

    assert found.horizon_forward == (3, 2, 2, 1)
    assert found.horizon_backward == (0, 0, 1, 1)


def test_a_later_variant_reuses_the_forwards_prediction() -> None:
    program = build_program("spectrain", num_devices=3, num_micro_batches=1, horizon="pipeoptim", backward_weights="stash")

    assert program.weights == WeightRule(Rule.PREDICT, "pipeoptim", BackwardWeights.STASH)
    assert facts(compile_program(program)).horizon_forward == (2, 1, 0)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ArgumentError, match="backward_weights 'old' is unknown: use predict or stash"):
        build_program("spectrain", num_devices=2, num_micro_batches=1, backward_weights="old")

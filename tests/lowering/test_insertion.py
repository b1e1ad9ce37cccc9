"""The order of what lowering adds around an entry."""

from schedir.compiler import compile_program
from schedir.ir.weights import Rule, WeightRule
from schedir.schedules.registry import build_program
from tests.programs import lane_of, written


def test_predictions_stand_before_the_bellwether_and_before_its_recomputation() -> None:
    """Horizons of SpecTrain for p = 3 on stage 2: forward k // 2 + p - k - 1 = 1, backward k // 2 = 1."""
    program = build_program("xpipe", num_devices=3, num_micro_batches=2, num_mini_batches=1, horizon="spectrain-paper")

    graph = compile_program(program, recompute="always")

    assert lane_of(graph, 2) == "2P0 2F0 2P0 2R0 2B0 2F1 2R1 2B1 2U1"


def test_nothing_is_predicted_over_no_update() -> None:
    program = build_program("xpipe", num_devices=2, num_micro_batches=1, num_mini_batches=2, horizon="pipeoptim")

    graph = compile_program(program)

    assert lane_of(graph, 0) == "0P0 0F0 0P1 0F1 0B0 0U0 0B1 0U1"
    assert lane_of(graph, 1) == "1F0 1B0 1U0 1F1 1B1 1U1"


def test_updates_of_several_stages_behind_one_pair_stand_by_version_then_stage() -> None:
    program = written("0F0 1F0 (0F1;1B0)OVERLAP_F_B 0B0 1F1 1B1 0B1", m=1, n=2, stages=2, weights=WeightRule(Rule.STASH))

    graph = compile_program(program)

    assert lane_of(graph, 0) == "0F0 1F0 (0F1;1B0)OVERLAP_F_B 1U0 0B0 0U0 1F1 1B1 1U1 0B1 0U1"

"""What is recomputed, where R stands, when it may start."""

import pytest

from schedir.compiler import compile_program
from schedir.errors import ArgumentError
from schedir.ir.action import Kind
from schedir.schedules.registry import build_program
from tests.programs import lane_of, makespan, written


@pytest.mark.parametrize(
    ("mode", "lane"),
    [
        ("never", "0F0 0F1 0F2 0B2 0B1 0B0 0U2"),
        ("except-last", "0F0 0F1 0F2 0B2 0R1 0B1 0R0 0B0 0U2"),
        ("always", "0F0 0F1 0F2 0R2 0B2 0R1 0B1 0R0 0B0 0U2"),
        ("selective", "0F0 0F1 0F2 0R2 0B2 0R1 0B1 0R0 0B0 0U2"),
    ],
)
def test_r_stands_right_before_the_backward_of_what_is_recomputed(mode: str, lane: str) -> None:
    graph = compile_program(build_program("gpipe", num_devices=1, num_micro_batches=3), recompute=mode)

    assert lane_of(graph, 0) == lane


def test_modes_may_differ_by_stage() -> None:
    program = build_program("1f1b", num_devices=3, num_micro_batches=2)

    graph = compile_program(program, recompute="always,never,except-last")

    again = [str(task) for task in graph.tasks() if task.kind is Kind.RECOMPUTE]
    assert again == ["0R0", "0R1", "2R0"]
    assert graph.options.recompute_text == "always,never,except-last"
    assert compile_program(program, recompute=["always", "never", "except-last"]).options == graph.options


def test_a_split_backward_recomputes_before_its_input_gradient() -> None:
    graph = compile_program(written("0F0 0I0 0W0", m=1), recompute="always")

    assert lane_of(graph, 0) == "0F0 0R0 0I0 0W0 0U0"


def test_a_pair_recomputes_for_its_backward_half() -> None:
    graph = compile_program(written("0F0 (0F1;0B0)OVERLAP_F_B 0B1", m=2), recompute="always")

    assert lane_of(graph, 0) == "0F0 0R0 (0F1;0B0)OVERLAP_F_B 0R1 0B1 0U1"


def test_a_programs_own_recomputations_stay_and_none_is_added() -> None:
    graph = compile_program(written("0F0 0F1 0R0 0B1 0B0", m=2), recompute="always")

    assert lane_of(graph, 0) == "0F0 0F1 0R0 0B1 0B0 0U1"


# GPipe paper, section 2.3: "recomputation can be scheduled earlier, without waiting for the gradients". Spans of known problem
# D20 and of 1F1B with F = R = 1, B = 2 on 4 devices, counted by an independent list executor.
@pytest.mark.parametrize(
    ("name", "micro_batches", "never", "early", "on_gradient"),
    [
        ("gpipe", 4, 21, {"except-last": 24, "always": 25}, {"except-last": 27, "always": 28}),
        ("gpipe", 8, 33, {"except-last": 40, "always": 41}, {"except-last": 43, "always": 44}),
        ("1f1b", 4, 21, {"except-last": 24, "always": 25}, {"except-last": 26, "always": 28}),
    ],
)
def test_recomputation_that_starts_before_the_gradient_arrives_costs_less(
    *, name: str, micro_batches: int, never: float, early: dict[str, float], on_gradient: dict[str, float]
) -> None:
    program = build_program(name, num_devices=4, num_micro_batches=micro_batches)

    assert makespan(compile_program(program)) == never
    for mode in ("except-last", "always"):
        assert makespan(compile_program(program, recompute=mode)) == early[mode]
        assert makespan(compile_program(program, recompute=mode, recompute_start="on-gradient")) == on_gradient[mode]


# Known problem D20: p = 1, m = 4 takes 16 always and 15 except-last, never 12; one micro-batch is never recomputed in vain.
@pytest.mark.parametrize(
    ("micro_batches", "mode", "seconds"), [(4, "always", 16), (4, "except-last", 15), (4, "never", 12), (1, "except-last", 3)]
)
def test_on_one_device_recomputation_is_all_overhead(micro_batches: int, mode: str, seconds: float) -> None:
    program = build_program("gpipe", num_devices=1, num_micro_batches=micro_batches)

    assert makespan(compile_program(program, recompute=mode)) == seconds


@pytest.mark.parametrize(
    ("recompute", "message"),
    [
        ("sometimes", "recompute 'sometimes' is unknown: use one of never, except-last, always, selective"),
        ("always,never", "recompute has 2 values for 3 stages: give one, or one per stage"),
    ],
)
def test_unknown_modes_are_refused(recompute: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        compile_program(build_program("1f1b", num_devices=3, num_micro_batches=2), recompute=recompute)


def test_an_unknown_start_is_refused() -> None:
    with pytest.raises(ArgumentError, match="recompute_start 'late' is unknown: use early or on-gradient"):
        compile_program(build_program("1f1b", num_devices=2, num_micro_batches=2), recompute_start="late")

from __future__ import annotations

from typing import Any

import pytest

from executor.profiling.rehearsal import first_hosts, placed, split_backwards, take_apart
from schedir.compiler import compile_program
from schedir.ir.program import Program
from schedir.schedules.registry import SCHEDULES, build_program
from tests.programs import accepted_shape


def text(program: Program) -> list[str]:
    return [" ".join(str(entry) for entry in order) for order in program.orders()]


def two_devices() -> Program:
    return build_program("1f1b", num_devices=2, num_micro_batches=2)


def test_every_stage_becomes_its_parts_on_the_same_device() -> None:
    assert text(take_apart(two_devices(), (1, 2))) == [
        "0F0 0F1 0B0 0B1",
        "1F0 2F0 2B0 1B0 1F1 2F1 2B1 1B1",
    ]


def test_one_part_each_leaves_the_program_as_it_is() -> None:
    assert take_apart(two_devices(), (1, 1)) == two_devices()


def test_every_backward_becomes_two_halves() -> None:
    assert text(split_backwards(two_devices())) == [
        "0F0 0F1 0I0 0W0 0I1 0W1",
        "1F0 1I0 1W0 1F1 1I1 1W1",
    ]


def test_predicted_weights_and_shape_are_kept() -> None:
    program = build_program("xpipe", num_devices=2, num_micro_batches=2, num_mini_batches=3)
    apart = split_backwards(take_apart(program, (2, 1)))
    assert (apart.weights, apart.num_mini_batches, apart.num_stages) == (program.weights, 3, 3)
    compile_program(apart)


def test_stages_that_share_a_device_take_turns_as_they_would_start() -> None:
    """1f1b of 4 stages, m = 2, F = 1, B = 2: stage k starts F0 at k, F1 at k + 1 (stage 3 at 6), B0 at 10 - 2k, B1 at 13 - 2k."""
    program = build_program("1f1b", num_devices=4, num_micro_batches=2)
    assert text(placed(program, (0, 1, 0, 1))) == [
        "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1",
        "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1",
    ]
    assert text(placed(program, (0, 1, 1, 0))) == [
        "0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1",
        "1F0 1F1 2F0 2F1 2B0 1B0 2B1 1B1",
    ]


def test_one_stage_per_device_stays_as_it_is() -> None:
    assert placed(two_devices(), (1, 0)) == two_devices()


@pytest.mark.parametrize(
    ("name", "options", "hosts"),
    [
        ("interleaved-1f1b", {}, (0, 1, 0, 1)),
        ("zb-v", {}, (0, 1, 1, 0)),
        ("chimera", {}, (0, 1)),
        ("pipedream", {"num_devices": 3, "replicas": (2, 1)}, (0, 1)),  # stage 1 on device 2, device 1 is left out
    ],
)
def test_a_stage_is_rehearsed_where_its_first_micro_batch_runs(name: str, options: dict[str, Any], hosts: tuple[int, ...]) -> None:
    assert first_hosts(build_program(name, **{"num_devices": 2, "num_micro_batches": 2} | options)) == hosts


@pytest.mark.parametrize("rehearsed", ["1f1b", "pipedream", "xpipe"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_no_placement_lets_devices_wait_for_ever(name: str, rehearsed: str) -> None:
    devices, micro_batches = accepted_shape(name, 3, 4)
    judged = build_program(name, num_devices=devices, num_micro_batches=micro_batches)
    whole = build_program(rehearsed, num_devices=judged.num_stages, num_micro_batches=micro_batches + 1, num_mini_batches=3)
    program = placed(whole, first_hosts(judged))
    compile_program(split_backwards(take_apart(program, [2] * judged.num_stages)))
    assert program.num_devices == judged.num_devices

from __future__ import annotations

from executor.rehearsal import split_backwards, take_apart
from schedir.compiler import compile_program
from schedir.ir.program import Program
from schedir.schedules.registry import build_program


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

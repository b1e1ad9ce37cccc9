"""XPipe: the order of the paper's figure, options."""

from typing import Any

import pytest

from schedir.compiler import compile_program
from schedir.errors import ArgumentError
from schedir.ir.notation.grid import grid
from schedir.ir.weights import BackwardWeights, Rule, WeightRule
from schedir.schedules import xpipe
from schedir.schedules.registry import build_program

# The paper's figure of the workflow: T = 2 micro-batches a mini-batch on 4 GPUs; stage k runs p - k forwards, then B, F, B, F.
ORDER = [
    "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7",
    "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7",
    "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7",
    "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7",
]

GRID = """\
device 0 | F0^ F1^ F2^ F3^ .   .   .   B0  F4^ B1* F5^ B2  F6^ B3* F7^ B4  .   B5* .   B6  .   B7*
device 1 | .   F0^ F1^ F2^ .   .   B0  F3^ B1* F4^ B2  F5^ B3* F6^ B4  F7^ B5* .   B6  .   B7* .
device 2 | .   .   F0^ F1^ .   B0^ F2^ B1^*F3^ B2^ F4^ B3^*F5^ B4^ F6^ B5^*F7^ B6^ .   B7^*.   .
device 3 | .   .   .   F0^ B0^ F1^ B1^*F2^ B2^ F3^ B3^*F4^ B4^ F5^ B5^*F6^ B6^ F7^ B7^*.   .   .""".splitlines()


def test_two_micro_batches_on_four_devices_give_the_papers_order() -> None:
    program = build_program("xpipe", num_devices=4, num_micro_batches=2, num_mini_batches=4)

    assert [" ".join(map(str, order)) for order in program.orders()] == ORDER


def test_updates_and_predicted_reads_stand_as_the_docstring_draws_them() -> None:
    graph = compile_program(build_program("xpipe", num_devices=4, num_micro_batches=2, num_mini_batches=4))

    assert grid(graph, width=120).splitlines()[:4] == GRID
    assert [line.strip() for line in (xpipe.__doc__ or "").splitlines() if "device" in line] == GRID


def test_the_order_depends_on_the_micro_batches_not_on_how_many_make_a_mini_batch() -> None:
    single = build_program("xpipe", num_devices=4, num_micro_batches=1, num_mini_batches=8)
    double = build_program("xpipe", num_devices=4, num_micro_batches=2, num_mini_batches=4)

    assert single.orders() == double.orders()


def test_it_is_the_order_of_pipedream() -> None:
    shape = {"num_devices": 3, "num_micro_batches": 2, "num_mini_batches": 5}

    assert build_program("xpipe", **shape).orders() == build_program("pipedream", **shape).orders()


def test_it_predicts_by_the_papers_horizon_by_default() -> None:
    program = build_program("xpipe", num_devices=2, num_micro_batches=2)

    assert program.weights == WeightRule(Rule.PREDICT, "xpipe-paper", BackwardWeights.PREDICT)
    assert program.num_mini_batches == 2 * 2 + 8


def test_horizon_and_weights_of_backwards_are_options() -> None:
    program = build_program("xpipe", num_devices=2, num_micro_batches=2, horizon="2", backward_weights="stash")

    assert program.weights == WeightRule(Rule.PREDICT, 2, BackwardWeights.STASH)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": "far"}, "horizon 'far' is unknown: use exact, "),
        ({"horizon": -1}, "horizon -1 is unknown"),
        ({"backward_weights": "newest"}, "backward_weights 'newest' is unknown: use predict or stash"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        build_program("xpipe", num_devices=2, num_micro_batches=2, **options)

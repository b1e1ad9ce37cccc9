"""PipeDream: grids with and without replicas, options, refusals."""

from itertools import product
from typing import Any

import pytest

from schedir.compiler import compile_program
from schedir.errors import ArgumentError, RefusedError
from schedir.ir.notation.grid import grid
from schedir.ir.weights import Rule
from schedir.schedules import pipedream
from schedir.schedules.layout import continuous
from schedir.schedules.registry import build_program

GRID = """\
device 0 | F0 F1 F2 .  .  B0*F3 B1*F4 B2*F5 B3*.  B4*.  B5*
device 1 | .  F0 F1 .  B0*F2 B1*F3 B2*F4 B3*F5 B4*.  B5*.
device 2 | .  .  F0 B0*F1 B1*F2 B2*F3 B3*F4 B4*F5 B5*.  .""".splitlines()

# 1F1B-RR: replica i mod 2 of stage 0 runs mini-batch i, forward and backward (SOSP 2019, section 3.2).
REPLICATED = """\
device 0 stage 0 | F0 F2 .  B0*.  .  F4 B2*.  .  .  B4*.  .
device 1 stage 0 | F1 F3 .  .  .  B1*F5 .  .  B3*.  .  .  B5*
device 2 stage 1 | .  F0 B0*F1 B1*F2 B2*F3 B3*F4 B4*F5 B5*.""".splitlines()


def drawn(doc: str | None) -> list[str]:
    return [line.strip() for line in (doc or "").splitlines() if line.strip().startswith("device")]


def test_the_grid_is_1f1b_without_a_flush() -> None:
    graph = compile_program(build_program("pipedream", num_devices=3, num_micro_batches=1, num_mini_batches=6))

    assert grid(graph, width=80).splitlines()[:3] == GRID == drawn(pipedream.__doc__)


def test_replicas_take_mini_batches_in_turn() -> None:
    program = build_program("pipedream", num_devices=3, num_micro_batches=1, num_mini_batches=6, replicas=(2, 1))

    assert grid(compile_program(program), width=80).splitlines()[:3] == REPLICATED == drawn(continuous.__doc__)


def test_with_several_micro_batches_a_replica_takes_whole_mini_batches() -> None:
    program = build_program("pipedream", num_devices=3, num_micro_batches=2, num_mini_batches=3, replicas=(2, 1))

    assert " ".join(map(str, program.order(0))) == "0F0 0F1 0F4 0F5 0B0 0B1 0B4 0B5"
    assert " ".join(map(str, program.order(1))) == "0F2 0F3 0B2 0B3"


def test_replicas_that_wait_for_each_other_at_every_update_never_deadlock() -> None:
    for replicas in product((1, 2, 3), repeat=3):
        for m, mini_batches in product((1, 2, 3), (3, 4, 7)):
            shape = {"num_devices": sum(replicas), "num_micro_batches": m, "num_mini_batches": mini_batches}
            compile_program(build_program("pipedream", **shape, replicas=replicas))  # raises DeadlockError otherwise


def test_it_stashes_by_default_and_runs_long_enough_for_a_steady_state() -> None:
    program = build_program("pipedream", num_devices=4, num_micro_batches=1)

    assert program.weights.rule is Rule.STASH
    assert program.num_mini_batches == 2 * 4 + 8


@pytest.mark.parametrize("weights", ["stash", "vertical-sync", "current"])
def test_the_rule_for_weights_is_an_option(weights: str) -> None:
    assert str(build_program("pipedream", num_devices=2, num_micro_batches=1, weights=weights).weights) == weights


def test_one_device_alternates_forward_and_backward() -> None:
    program = build_program("pipedream", num_devices=1, num_micro_batches=1, num_mini_batches=3)

    assert " ".join(map(str, program.order(0))) == "0F0 0B0 0F1 0B1 0F2 0B2"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "newest"}, "weights 'newest' is unknown: use stash, vertical-sync, current"),
        ({"replicas": (2, 2)}, r"replicas \(2, 2\) need 4 devices, but num_devices is 3"),
        ({"replicas": (2.0, 1)}, r"replicas \(2.0, 1\) must be integers of at least 1, one for each stage"),
        ({"replicas": (0, 3)}, r"replicas \(0, 3\) must be integers of at least 1, one for each stage"),
        ({"replicas": ()}, r"replicas \(\) need 0 devices, but num_devices is 3"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        build_program("pipedream", num_devices=3, num_micro_batches=1, **options)


def test_vertical_sync_of_replicas_is_refused() -> None:
    with pytest.raises(RefusedError, match="vertical sync is not defined for replicated stages"):
        build_program("pipedream", num_devices=3, num_micro_batches=1, weights="vertical-sync", replicas=(2, 1))


def test_more_replicas_than_mini_batches_are_refused() -> None:
    with pytest.raises(RefusedError, match=r"3 replicas take mini-batches in turn, but there are 2: .* give more mini-batches"):
        build_program("pipedream", num_devices=3, num_micro_batches=1, num_mini_batches=2, replicas=(3,))

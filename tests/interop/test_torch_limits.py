"""What torch cannot run is refused before it is written."""

import pytest

from schedir.errors import ProgramError, RefusedError
from schedir.interop.torch_limits import check_torch_runs
from schedir.schedules.registry import SCHEDULES, build_program
from tests.programs import written

RUNS = {
    "gpipe",
    "1f1b",
    "interleaved-1f1b",
    "looped-bfs",
    "zb-h1",
    "zb-h2",
    "interleaved-zb",
    "zb-v",
    "v-half",
    "dualpipev",
    "hanayo",
}
"""Synchronous, and every stage on one device."""


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_that_flush_and_have_one_copy_of_the_weights_run(name: str) -> None:
    program = build_program(name, num_devices=4, num_micro_batches=8)

    if name in RUNS:
        check_torch_runs(program)
    else:
        with pytest.raises(RefusedError, match=r"one version of the weights|keeps a stage on one device"):
            check_torch_runs(program)


def test_forwards_of_the_last_stage_stand_in_the_order_of_micro_batches() -> None:
    with pytest.raises(
        RefusedError, match=r"^1F1 stands before 1F0 on the last stage, but PyTorch's pipelining numbers losses in the"
    ):
        check_torch_runs(written("0F0 0F1 0B0 0B1", "1F1 1F0 1B0 1B1", m=2))

    check_torch_runs(written("0F1 0F0 0B0 0B1", "1F0 1F1 1B1 1B0", m=2))  # other orders are free


def test_an_invalid_program_is_explained() -> None:
    with pytest.raises(ProgramError, match=r"1B1 waits for ever: 1F1 is missing"):
        check_torch_runs(written("0F0 0F1 0B0 0B1", "1F0 1B0 1B1", m=2))

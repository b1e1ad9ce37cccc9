"""Our orders and our communication against those that torch.distributed.pipelining makes itself; no processes are needed."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from torch.distributed.pipelining import schedules

from executor.torch_runtime import OWN, lowered_by_torch, own_schedule, program_of
from schedir.compiler import compile_program
from schedir.errors import ArgumentError, FormatError, RefusedError
from schedir.interop.torch_lowering import print_torch_communication
from schedir.ir.program import Program
from schedir.schedules.registry import build_program
from tests.interop.test_torch_lowering import programs
from tests.repository import PACKAGES, python_files, relative

LOOPS = {
    "interleaved-1f1b": schedules.ScheduleInterleaved1F1B,
    "looped-bfs": schedules.ScheduleLoopedBFS,
    "interleaved-zb": schedules.ScheduleInterleavedZeroBubble,
}
V_SHAPES = {"zb-v": schedules.ScheduleZBVZeroBubble, "dualpipev": schedules.ScheduleDualPipeV}
SHAPES = [(p, v, m) for p in (1, 2, 3, 4) for v in (2, 3) for m in (1, 2, 3, 4, 6, 8, 12)]
V_MICRO_BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12)


def torch_schedule(kind: Any, devices: int, stages_per_device: int, *, micro_batches: int) -> Any:
    """Build a schedule of torch on stages that are none: it asks for their numbers only."""
    num_stages = devices * stages_per_device
    stages = [
        SimpleNamespace(num_stages=num_stages, group_size=devices, group_rank=0, stage_index=k, submod=None)
        for k in range(stages_per_device)
    ]
    return kind(stages[0] if issubclass(kind, schedules.PipelineScheduleSingle) else stages, micro_batches)


def single_schedule(kind: Any, devices: int, micro_batches: int) -> Any:
    """Build a schedule with one stage a device, without what its constructor asks the stage for."""
    schedule = object.__new__(kind)
    schedule._num_stages, schedule._n_microbatches = devices, micro_batches
    return schedule


def orders(program: Program) -> list[str]:
    return [" ".join(map(str, order)) for order in program.orders()]


@pytest.mark.parametrize("name", LOOPS)
def test_loops_are_torchs(name: str) -> None:
    compared = 0
    for devices, stages_per_device, micro_batches in SHAPES:
        if micro_batches % max(1, micro_batches // devices) and name != "looped-bfs":
            continue  # torch refuses these; ours does not
        theirs = torch_schedule(LOOPS[name], devices, stages_per_device, micro_batches=micro_batches)
        ours = build_program(name, num_devices=devices, num_micro_batches=micro_batches, stages_per_device=stages_per_device)
        assert orders(program_of(theirs)) == orders(ours)
        compared += 1
    assert compared >= 50


@pytest.mark.parametrize(("name", "fewest"), [("zb-v", lambda p: 2 * p - 1), ("dualpipev", lambda p: 2 * p)])
def test_v_shapes_are_torchs(name: str, fewest: Any) -> None:
    compared = 0
    for devices in (1, 2, 3, 4):
        for micro_batches in [count for count in V_MICRO_BATCHES if count >= fewest(devices)]:
            theirs = torch_schedule(V_SHAPES[name], devices, 2, micro_batches=micro_batches)
            ours = build_program(name, num_devices=devices, num_micro_batches=micro_batches)
            assert orders(program_of(theirs)) == orders(ours)
            compared += 1
    assert compared >= 20


def test_zb_v_with_few_micro_batches_is_laid_out_for_those_that_there_are() -> None:
    """torch lays out 2p - 1 micro-batches and deletes those beyond m (its own comment: to remove redundant ones)."""
    theirs = program_of(torch_schedule(schedules.ScheduleZBVZeroBubble, 2, 2, micro_batches=2))
    ours = build_program("zb-v", num_devices=2, num_micro_batches=2)

    assert orders(theirs) != orders(ours)
    assert sorted(orders(theirs)[1].split()) == sorted(orders(ours)[1].split())
    compile_program(theirs)


def test_gpipe_of_torch_is_ours_with_backwards_in_order() -> None:
    theirs = single_schedule(schedules.ScheduleGPipe, 3, 4)

    assert orders(program_of(theirs)) == orders(build_program("gpipe", num_devices=3, num_micro_batches=4, order="fifo"))


def test_1f1b_of_torch_is_found_out_and_ours_once_it_is_mended() -> None:
    """Its last rank numbers forwards from 1 because its counter starts at 0 without a forward before it."""
    theirs = single_schedule(schedules.Schedule1F1B, 3, 4)
    with pytest.raises(
        FormatError,
        match=r"^Schedule1F1B:3: device 2: stage 2 numbers its forwards 1\.\.4, but its backwards 0\.\.3, as torch's Schedule1F1B",
    ):
        program_of(theirs)

    broken = theirs._get_pipeline_order()
    broken[2] = [
        action._replace(microbatch_index=action.microbatch_index - 1) if action.computation_type == schedules.FORWARD else action
        for action in broken[2]
    ]
    mended = program_of(SimpleNamespace(pipeline_order=broken))
    assert orders(mended) == orders(build_program("1f1b", num_devices=3, num_micro_batches=4))


@given(programs())
def test_communication_is_placed_where_torch_places_it(program: Program) -> None:
    assert print_torch_communication(program).splitlines() == lowered_by_torch(program).splitlines()


@pytest.mark.parametrize("stages_per_device", [4, 5])
def test_gathering_of_many_stages_is_placed_where_torch_places_it(stages_per_device: int) -> None:
    program = build_program("interleaved-1f1b", num_devices=1, num_micro_batches=3, stages_per_device=stages_per_device)

    assert print_torch_communication(program).splitlines() == lowered_by_torch(program).splitlines()


def test_other_versions_of_torch_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.14.0+cpu")

    with pytest.raises(
        RefusedError, match=r"^torch 2\.14\.0\+cpu: the runtime of its pipelining is private and known here in 2\.13"
    ):
        program_of(object())


def test_torch_has_schedules_of_its_own() -> None:
    assert own_schedule("1f1b") is schedules.Schedule1F1B
    assert [own_schedule(name).__name__ for name in OWN] == list(OWN.values())
    with pytest.raises(ArgumentError, match=r"^torch has no schedule zb-h1 of its own: use gpipe or 1f1b or interleaved-1f1b or "):
        own_schedule("zb-h1")


def test_what_is_no_schedule_is_refused() -> None:
    with pytest.raises(ArgumentError, match="schedule int has no pipeline_order: give a schedule of torch's pipelining"):
        program_of(7)


def test_only_the_adapter_touches_torchs_pipelining() -> None:
    private = re.compile(r"^ *(from|import) torch.*pipelining", re.MULTILINE)
    touching = [path for path in python_files(*PACKAGES, "benchmarks", "examples") if private.search(path.read_text("utf-8"))]

    assert [relative(path) for path in touching] == ["executor/torch_runtime.py"]

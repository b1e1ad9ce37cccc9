"""torch.distributed.pipelining as a neighbour: it runs our programs, and its schedules become our programs.

The only place that touches what torch keeps private: `_PipelineScheduleRuntime` with `_load_csv` and `_dump_csv`, and
`_get_pipeline_order` of its single-stage schedules. They may change with any version, so that other versions than those tried out
are refused; files written by `save_program` need no version.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from executor.model.stages import Stages
from schedir.errors import ArgumentError, RefusedError
from schedir.expect import expect
from schedir.interop.program_files import Form, save_program
from schedir.interop.torch_csv import parse_torch_csv
from schedir.ir.notation.header import Header
from schedir.ir.program import Program

VERSIONS = ("2.13",)
"""Versions of torch with whose runtime all of this was tried out."""

OWN = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "interleaved-1f1b": "ScheduleInterleaved1F1B",
    "looped-bfs": "ScheduleLoopedBFS",
    "interleaved-zb": "ScheduleInterleavedZeroBubble",
    "zb-v": "ScheduleZBVZeroBubble",
    "dualpipev": "ScheduleDualPipeV",
}
"""What torch calls the schedules that it has itself."""

_FORMATS = {Form.COMPUTE_ONLY: "compute_only", Form.COMPUTE_COMMS: "compute_comms"}
"""What torch calls the two forms of its CSV."""


class TorchRuntime:
    """One device's part of a program, run by torch's own runtime in this process of a process group.

    torch.distributed.init_process_group("gloo")
    runtime = TorchRuntime(program, {0: first_stage}, loss=loss)      # in process 0
    loss = runtime.step(inputs, targets)                              # in every process; then the optimizers' steps
    """

    def __init__(  # noqa: PLR0913 - one keyword for each thing that torch wants to know
        self,
        program: Program,
        stages: Sequence[nn.Module] | Mapping[int, nn.Module],
        *,
        loss: Callable[[Any, Any], Tensor],
        form: str | Form = Form.COMPUTE_ONLY,
        own: bool = False,
        device: str | torch.device = "cpu",
        group: Any = None,
    ) -> None:
        """Take the stages of the whole model, or those of this device by number, and load the program into torch's runtime.

        The device's number is the process' rank in `group` (the default group if not given). `loss(output, target)` is the mean
        over a micro-batch. With `form="compute-only"` torch places sends and receives, with "compute-comms" we do. With `own` the
        program gives name and shape only: torch runs its own schedule of that name. Raises RefusedError for what torch cannot run
        and for versions of torch that are not known, ArgumentError.
        """
        expect(program, Program, "program", remedy="give what build_program or load_program returns")
        if form not in _FORMATS:
            raise ArgumentError(f"form {form!r} is no form of torch: use {' or '.join(_FORMATS)}")
        schedules = _schedules()
        self.device = _rank_in(group, program)
        self.program = program
        self.stages = hosted_stages(program, self.device)
        if isinstance(stages, Stages) and stages.skips:
            raise RefusedError(
                "torch hands over to the next stage only, but the stages have skip connections: split the model with "
                'skips="through", or train with executor.train'
            )
        modules = dict(stages) if isinstance(stages, Mapping) else dict(enumerate(stages))
        missing = [stage for stage in self.stages if stage not in modules]
        if missing:
            raise ArgumentError(f"stages lack number {missing[0]}, which device {self.device} runs: give stages {self.stages}")
        pipelining = torch.distributed.pipelining
        self.parts = [
            pipelining.PipelineStage(modules[stage], stage, program.num_stages, torch.device(device), group=group)
            for stage in self.stages
        ]
        """torch's own objects for `stages`, which it calls for every action."""
        kind = own_schedule(program.name) if own else schedules._PipelineScheduleRuntime
        several = issubclass(kind, schedules.PipelineScheduleMulti)
        self.schedule = kind(self.parts if several else self.parts[0], program.num_micro_batches, loss_fn=loss)
        """torch's own object, for what it offers beside `step`."""
        if not own:
            _load(self.schedule, program, Form(form))

    def step(self, inputs: Tensor, targets: Tensor) -> float | None:
        """Run one mini-batch: gradients are added to the parameters' `.grad`, as means over micro-batches.

        Every process gives the whole mini-batch, cut along dim 0. Returns the loss where the last stage is, None elsewhere.
        """
        m = self.program.num_micro_batches
        if len(inputs) % m:
            raise RefusedError(
                f"{len(inputs)} samples do not split into {m} equal micro-batches, and PyTorch's pipelining has one shape for all: "
                f"give a multiple of {m}, or train with executor.train"
            )
        last = self.program.num_stages - 1 in self.stages
        losses: list[Tensor] = []
        self.schedule.step(
            *((inputs,) if 0 in self.stages else ()), target=targets if last else None, losses=losses, return_outputs=False
        )
        return float(torch.stack(losses).detach().mean()) if last else None


def own_schedule(name: str) -> Any:
    """Return torch's own class for a schedule by our name for it; raise ArgumentError if torch has none."""
    if name not in OWN:
        raise ArgumentError(f"torch has no schedule {name} of its own: use {' or '.join(OWN)}, or let it load the program")
    return getattr(_schedules(), OWN[name])


def hosted_stages(program: Program, device: int) -> list[int]:
    """Return the numbers of the stages that a device runs."""
    first, last = program.device_start[device : device + 2]
    return [int(stage) for stage in np.unique(program.stage[first:last])]


def program_of(schedule: object) -> Program:
    """Return the order of a schedule object of torch (`ScheduleInterleaved1F1B(…)`, …) as a program of its class' name.

    Raises FormatError for an order with one of the defects that files are checked for, ArgumentError for anything else.
    """
    _schedules()
    order = getattr(schedule, "pipeline_order", None)
    if order is None and hasattr(schedule, "_get_pipeline_order"):
        order = schedule._get_pipeline_order()
    if not order:
        raise ArgumentError(f"schedule {type(schedule).__name__} has no pipeline_order: give a schedule of torch's pipelining")
    written = io.StringIO()
    csv.writer(written).writerows(order[device] for device in sorted(order))
    return parse_torch_csv(written.getvalue(), Header(type(schedule).__name__), type(schedule).__name__)


def lowered_by_torch(program: Program) -> str:
    """Return the CSV with communication that torch makes of a program; no processes are needed."""
    schedules = _schedules()
    stage = SimpleNamespace(num_stages=program.num_stages, group_size=program.num_devices, group_rank=0, is_last=False)
    schedule = schedules._PipelineScheduleRuntime([stage], program.num_micro_batches)
    _load(schedule, program, Form.COMPUTE_ONLY)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lowered.csv"
        schedule._dump_csv(str(path), format=_FORMATS[Form.COMPUTE_COMMS])
        return path.read_text(encoding="utf-8")


def _schedules() -> ModuleType:
    """Import torch's schedules; raise RefusedError where they are missing or not known."""
    version = ".".join(torch.__version__.split(".")[:2])
    if version not in VERSIONS:
        raise RefusedError(
            f"torch {torch.__version__}: the runtime of its pipelining is private and known here in {', '.join(VERSIONS)} only: "
            "install that, or let `schedir convert` write a CSV and load it with your version"
        )
    if not torch.distributed.is_available():
        raise RefusedError("this torch is built without torch.distributed, which its pipelining needs: install one with it")
    from torch.distributed.pipelining import schedules  # noqa: PLC0415 - not every torch has it

    return schedules


def _rank_in(group: Any, program: Program) -> int:
    if not torch.distributed.is_initialized():
        raise ArgumentError("there is no process group: call torch.distributed.init_process_group first")
    size = torch.distributed.get_world_size(group)
    if size != program.num_devices:
        raise ArgumentError(
            f"the process group has {size} processes, but {program.name} {program.num_devices} devices: start one process for each"
        )
    return torch.distributed.get_rank(group)


def _load(schedule: Any, program: Program, form: Form) -> None:
    """Hand a program over as a file, in the way of everybody who writes one for torch."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "program.csv"
        save_program(program, path, form=form)
        schedule._load_csv(str(path), format=_FORMATS[form])

"""Training that tells the simulated streams of everything that it reads and writes."""

from __future__ import annotations

import random
from time import sleep
from typing import Any

from torch import Tensor

from executor.plan.actions import PlannedAction
from executor.run.crew import TrainingCrew
from executor.run.runner import Body
from executor.workers.cuda.ports import parts
from schedir.ir.action import Kind
from tests.executor.cuda.streams import Machine


class WatchedCrew(TrainingCrew):
    """Training in which every read and write of what is handed over is reported to the machine, at random pace."""

    def watch(self, machine: Machine, workers: Any) -> None:
        self._machine, self._gpus = machine, workers._gpus
        self._inputs: dict[tuple[int, int, int], list[tuple[Tensor, int]]] = {}
        self._pace = random.Random(0)

    def body_on(self, device: int, action: PlannedAction) -> Body:
        body = super().body_on(device, action)

        def watched(*values: Any) -> Any:
            stream: Any = self._gpus[device].compute
            taken = [tensor for value in values for tensor in parts(value or ()) if tensor is not None]
            key = device, action.stage, action.micro_batch
            kept = self._inputs.setdefault(key, [])
            kept += [(tensor, self._machine.read(tensor, stream)) for tensor in taken]
            if self._pace.random() < 0.2:
                sleep(0.001)
            if action.kind is not Kind.UPDATE:
                for tensor, version in kept:
                    assert self._machine.read(tensor, stream) == version, "a slot was written while it was still needed"
            if action.kind in {Kind.BACKWARD, Kind.WEIGHT_GRAD, Kind.UPDATE}:  # the last that reads them
                del self._inputs[key]
            result = body(*values)
            for made in () if result is None else parts(result):
                if made is not None:
                    self._machine.write(made, stream)
            return result

        return watched

"""Facts of the machine that say what a measurement holds for; nothing that names the machine or its user."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from executor.workers.waking import usable_cores


def machine_facts(modules: Iterable[nn.Module] = ()) -> dict[str, Any]:
    """Return plain JSON values: kinds of devices, cores, system, versions, types of the modules' parameters."""
    parameters = [parameter for module in modules for parameter in module.parameters()]
    types = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in parameters})
    return {
        "devices": sorted({parameter.device.type for parameter in parameters}) or ["cpu"],
        "cores": usable_cores(),
        "processor": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "dtype": ", ".join(types) or None,
    } | gpu_facts()


def gpu_facts() -> dict[str, Any]:
    """Return names of the GPUs that can be seen and the CUDA that torch was built for; nothing where there is none."""
    if not torch.cuda.is_available():
        return {}
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {"gpus": names, "cuda": torch.version.cuda}

from __future__ import annotations

import json
import platform

import torch
from torch import nn

from executor.profiling.machine import machine_facts


def test_facts_are_plain_json_and_name_neither_machine_nor_user() -> None:
    text = json.dumps(machine_facts([nn.Linear(1, 1)]))
    assert platform.node() not in text


def test_types_and_devices_are_those_of_the_parameters() -> None:
    facts = machine_facts([nn.Linear(1, 1), nn.Linear(1, 1).to(torch.bfloat16)])
    assert (facts["dtype"], facts["devices"], facts["torch"]) == ("bfloat16, float32", ["cpu"], torch.__version__)


def test_a_model_without_parameters_has_no_type() -> None:
    assert machine_facts([nn.ReLU()])["dtype"] is None

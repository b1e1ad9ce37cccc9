"""Where data and loss lie: homes of devices that are no CPU are those of torch's meta device, whose tensors have no values."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from executor.boundary import input_message
from executor.home import HOST, Home
from executor.model.data import MicroBatch
from executor.run.placing import ends_of, placed, placed_loss
from schedir.compiler import compile_program
from schedir.errors import RefusedError
from tests.executor.small.models import compiled
from tests.programs import written

META = Home(torch.device("meta"))


@dataclass
class Workers:
    """As far as placing looks at them."""

    homes: dict[int, Home]
    devices: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.devices = list(self.homes)

    def home(self, device: int) -> Home:
        return self.homes[device]


def workers_of(homes: dict[int, Home]) -> Any:
    return Workers(homes)


def test_a_straight_pipeline_begins_on_the_first_device_and_ends_on_the_last() -> None:
    assert ends_of(compiled("1f1b", 3, 2)) == [(0, 2), (0, 2)]


def test_in_two_directions_every_micro_batch_has_its_own_ends() -> None:
    graph = compile_program(written("0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1", m=2, stages=2))

    assert ends_of(graph) == [(0, 1), (1, 0)]


def test_the_forward_of_an_overlapped_pair_is_found_and_its_backward_is_none() -> None:
    """The last stage runs F1 beside B0, on a device that is not the first."""
    graph = compile_program(written("0F0 0F1 0B0 0B1", "1F0 (1F1;1B0)OVERLAP_F_B 1B1", m=2))

    assert ends_of(graph) == [(0, 1), (0, 1)]


def part_of(values: Tensor) -> MicroBatch:
    return MicroBatch(input_message(values), {"label": values}, 0.5)


@pytest.mark.parametrize(
    ("ends", "inputs", "target"),
    [((0, 1), "cpu", "meta"), ((1, 0), "meta", "cpu"), ((1, 1), "meta", "meta"), ((2, 1), "cpu", "meta"), ((1, 2), "meta", "cpu")],
)
def test_inputs_lie_with_the_first_stage_and_targets_with_the_last(ends: tuple[int, int], inputs: str, target: str) -> None:
    """Device 0 is the host's, 1 has memory of its own, 2 is another process's: what it reads stays where it is."""
    (found,) = placed([part_of(torch.ones(2))], [ends], workers_of({0: HOST, 1: META}))

    assert (found.inputs.tensors[0].device.type, found.target["label"].device.type) == (inputs, target)
    assert found.loss_scale == 0.5


def test_every_micro_batch_goes_to_its_own_ends_and_what_stays_is_not_made_anew() -> None:
    parts = [part_of(torch.ones(2)), part_of(torch.ones(2))]
    stays, goes = placed(parts, [(0, 0), (1, 1)], workers_of({0: HOST, 1: META}))

    assert stays is parts[0]
    assert goes.inputs.tensors[0].is_meta


def test_a_loss_with_buffers_goes_with_the_last_stage_and_the_one_that_was_given_stays() -> None:
    loss = nn.CrossEntropyLoss(weight=torch.ones(2))
    found = placed_loss(loss, [(0, 1), (0, 1)], workers_of({0: HOST, 1: META}))

    assert isinstance(found, nn.CrossEntropyLoss)
    assert found.weight is not None
    assert found.weight.is_meta
    assert loss.weight is not None
    assert not loss.weight.is_meta


@pytest.mark.parametrize(
    ("loss", "ends"),
    [
        (nn.CrossEntropyLoss(weight=torch.ones(2)), [(1, 0)]),  # the last stage runs on the host
        (nn.CrossEntropyLoss(weight=torch.ones(2)), [(1, 3)]),  # in another process
        (nn.MSELoss(), [(0, 1), (0, 2)]),  # there is nothing to move
        (nn.functional.mse_loss, [(0, 1), (0, 2)]),
    ],
)
def test_any_other_loss_is_the_one_that_was_given(loss: Any, ends: list[tuple[int, int]]) -> None:
    assert placed_loss(loss, ends, workers_of({0: HOST, 1: META, 2: META})) is loss


def test_a_loss_with_buffers_cannot_be_in_two_places() -> None:
    loss = nn.CrossEntropyLoss(weight=torch.ones(2))
    with pytest.raises(
        RefusedError, match="loss CrossEntropyLoss has buffers, but the last stage runs on 2 devices: give a function"
    ):
        placed_loss(loss, [(0, 1), (0, 2)], workers_of({0: HOST, 1: META, 2: META}))

"""Values of all kinds go between two processes as between two threads, bit for bit. One launch."""

import re
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from executor.workers.distributed.meeting.launch import launch
from tests.distributed.programs.values import (
    REFUSED,
    SHAPES,
    STRUCTURES,
    changing_shapes,
    d10,
    d10_stages,
    everything,
    refused,
    structures,
)
from tests.distributed.programs.work import LAUNCH_S, Found, same
from tests.executor.small.models import batches
from tests.executor.small.structured import reference


@cache
def launched() -> list[dict[str, Any]]:
    return launch(everything, "distributed", num_processes=2, timeout_s=LAUNCH_S)


def assert_same(found: Found, expected: Found) -> None:
    assert found.losses == expected.losses
    assert same(found.weights, expected.weights)
    assert same(found.gradients, expected.gradients)


def d10_gradients() -> dict[str, torch.Tensor]:
    """Gradients of the two stages as one model, on its second mini-batch."""
    first, second = d10_stages()
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1, momentum=0.9)
    for inputs, target in batches(2):
        optimizer.zero_grad()
        nn.functional.mse_loss(second(*first(inputs)), target).backward()
        optimizer.step()
    named = {f"{number}.{name}": p for number, stage in enumerate((first, second)) for name, p in stage.named_parameters()}
    return {name: parameter.grad for name, parameter in named.items() if parameter.grad is not None}


def test_d10_three_tensors_of_which_one_needs_a_gradient() -> None:
    """The step ends, dh is right, the mask arrives as int64; on threads and in two processes."""
    runs = [d10("threads"), *(process["d10"] for process in launched())]

    assert runs[0][1] == runs[2][1] == [(torch.int64, False, torch.float64, False)]
    for found, _ in runs:
        assert found.gradients.keys() == d10_gradients().keys()
        for name, gradient in d10_gradients().items():
            assert torch.allclose(found.gradients[name], gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", STRUCTURES)
def test_dicts_dataclasses_and_plain_values_go_as_between_threads(name: str) -> None:
    expected = structures(*STRUCTURES[name], "threads")
    for process in launched():
        assert_same(process[name], expected)
    if name != "without a flush":
        assert expected.losses == pytest.approx(reference(3)[0], abs=1e-12)


def test_d31_shapes_may_change_from_step_to_step_of_a_trainer() -> None:
    """The gradient of mean((0.5 a relu(b x))^2) by hand: shapes (4, 16), (4, 24), (2, 16)."""
    losses, weights = changing_shapes("interleaved-1f1b", "threads")
    for process in launched():
        assert process["shapes"][0] == losses
        assert same(process["shapes"][1], weights)

    generator = torch.Generator().manual_seed(0)
    one = two = 1.5
    for loss, shape in zip(losses, SHAPES, strict=True):
        square = (torch.randn(shape, generator=generator).double() * 0.5).relu().square().mean().item()
        assert loss == pytest.approx(square * (one * two) ** 2, abs=1e-12)
        one, two = one - 0.1 * 2 * square * one * two**2, two - 0.1 * 2 * square * two * one**2
    assert [weights[key].item() for key in ("0.w", "1.w", "3.w")] == pytest.approx([0.5, one, two], abs=1e-12)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "pipedream", "xpipe"])
def test_d31_shapes_may_change_whatever_the_schedule(schedule: str) -> None:
    losses, weights = changing_shapes(schedule, "threads")

    assert len(losses) == 3
    assert weights["0.w"] == 0.5
    assert weights["1.w"] != 1.5


EXPECTED = {
    "a class of a function": r"the output of stage 0 for micro-batch 0 .* holds a class that other processes do not find",
    "a nested tensor": r"the output of stage 0 for micro-batch 0 .* holds a tensor of class NestedTensor: make it a plain tensor",
    "no value": r"the output of stage 0 for micro-batch 0 of mini-batch 0 is or holds a range at \[1\]: give tensors, None",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_travel_is_named_in_the_process_that_gives_it(name: str) -> None:
    first, second = (process[name] for process in launched())

    assert re.search(EXPECTED[name], first)
    assert "ArgumentError" in first
    assert "process 0" in second


def test_threads_carry_what_needs_no_copy() -> None:
    assert refused("a class of a function", "threads") == ""

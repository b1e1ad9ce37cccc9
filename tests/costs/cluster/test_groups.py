"""Which physical devices each pipeline device is."""

from dataclasses import replace

import pytest

from schedir.costs.cluster.groups import Axis
from schedir.errors import ArgumentError
from tests.costs.cluster.clusters import H100


def test_tensor_groups_lie_inside_a_host_and_stages_across_hosts() -> None:
    placement = H100.parallel(tensor=4, data=2).place(8)

    assert [placement.numbers(device) for device in range(3)] == [(0, 1, 2, 3), (8, 9, 10, 11), (16, 17, 18, 19)]
    assert [placement.host(device) for device in range(8)] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_the_order_says_which_devices_are_neighbours() -> None:
    inner = replace(H100, order=(Axis.PIPELINE, Axis.TENSOR, Axis.DATA)).parallel(tensor=2).place(4)

    assert [inner.numbers(device) for device in range(4)] == [(0, 4), (1, 5), (2, 6), (3, 7)]


def test_explicit_devices_replace_the_order() -> None:
    placement = replace(H100, pipeline_devices=((0, 1), (8, 9))).place(2)

    assert [placement.numbers(device) for device in range(2)] == [(0, 1), (8, 9)]
    with pytest.raises(ArgumentError, match="places 2 pipeline devices, but the schedule has 3: give one list"):
        replace(H100, pipeline_devices=((0, 1), (8, 9))).place(3)


def test_too_few_devices_are_refused() -> None:
    with pytest.raises(ArgumentError, match="64 devices, but 8 pipeline x 4 tensor x 4 data parallel = 128 are needed"):
        H100.parallel(tensor=4, data=4).place(8)

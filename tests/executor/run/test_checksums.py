"""Checksums tell data apart that two processes must not have differently."""

import torch
from torch import Tensor

from executor.boundary import input_message
from executor.model.data import MicroBatch
from executor.run.checksums import checksum, tensor_checksum

A, B = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])


def part(inputs: object, target: object) -> MicroBatch:
    return MicroBatch(input_message(inputs), target, 1.0)


def test_values_shape_and_type_count() -> None:
    different = [A, B, A.flip(0), A.reshape(2, 1), A.reshape(1, 2), A.double(), A.view(torch.int32), torch.zeros(2), torch.zeros(3)]

    assert len({tensor_checksum(tensor) for tensor in different}) == len(different)


def test_where_and_how_the_same_values_lie_does_not_count() -> None:
    wide = torch.stack((A, B), dim=1)
    half = torch.tensor(2.0, dtype=torch.bfloat16, requires_grad=True)

    assert tensor_checksum(wide[:, 0]) == tensor_checksum(A)
    assert tensor_checksum(A.to_sparse()) == tensor_checksum(A)
    assert tensor_checksum(half) == tensor_checksum(half.detach().clone())


def test_every_input_and_every_target_counts_and_where_it_stands() -> None:
    data: list[list[MicroBatch]] = [
        [part(A, B)],
        [part(B, A)],
        [part(A, A)],
        [part(B, B)],
        [part((A, B), B)],
        [part((B, A), B)],
        [part(A, {"a": B, "b": A})],
        [part(A, {"a": A, "b": B})],
        [part(A, B), part(B, A)],
        [part(B, A), part(A, B)],
        [],
    ]

    assert len({checksum(parts) for parts in data}) == len(data)


def test_equal_data_has_an_equal_checksum() -> None:
    def made() -> list[MicroBatch]:
        tensors: list[Tensor] = [A.clone(), B.clone()]
        return [part(tuple(tensors), tensors[0]), part(tensors[1], {"a": tensors[0]})]

    assert checksum(made()) == checksum(made())

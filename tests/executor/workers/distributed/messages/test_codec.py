"""Any value with tensors comes out as it went in: types, shapes, memory formats, None, sparse ones, names."""

from typing import Any

import pytest
import torch
from torch import Tensor

from executor.boundary import Message
from executor.structure import take_apart
from executor.workers.distributed.messages.codec import pack, unpack


def sent(value: object) -> Any:
    """Return a value as it arrives."""
    packed = pack(value)
    unpacked = unpack(packed.header)
    assert [part.numel() for part in unpacked.parts] == [part.numel() for part in packed.parts]
    for there, here in zip(unpacked.parts, packed.parts, strict=True):
        there.copy_(here)
    return unpacked.value


TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.int8, torch.uint8]


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_keeps_its_values(dtype: torch.dtype) -> None:
    tensor = torch.arange(6).reshape(2, 3).to(dtype)
    found = sent(tensor)

    assert found.dtype == dtype
    assert torch.equal(found, tensor)


def test_booleans_scalars_and_empty_tensors_arrive() -> None:
    values = torch.tensor([True, False]), torch.tensor(3.0), torch.empty(0, 4), torch.ones(2, 0)
    for found, value in zip(sent(values), values, strict=True):
        assert found.dtype == value.dtype
        assert torch.equal(found, value)


LAYOUTS = {
    "transposed": torch.arange(6.0).reshape(2, 3).T,
    "channels last": torch.arange(48.0).reshape(2, 3, 2, 4).to(memory_format=torch.channels_last),
    "a part of a row": torch.arange(12.0).reshape(3, 4)[:, 1:],
    "every second": torch.arange(12.0)[::2],
    "expanded": torch.arange(3.0).expand(4, 3),
    "conjugate": torch.tensor([1 + 2j]).conj(),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_values_do_not_depend_on_how_memory_is_laid_out(name: str) -> None:
    assert torch.equal(sent(LAYOUTS[name]), LAYOUTS[name])


@pytest.mark.parametrize("name", ["transposed", "channels last"])
def test_a_dense_memory_format_is_kept_and_not_copied(name: str) -> None:
    tensor = LAYOUTS[name]

    assert sent(tensor).stride() == tensor.stride()
    assert pack(tensor).parts[0].data_ptr() == tensor.data_ptr()


def test_a_message_keeps_what_needs_a_gradient() -> None:
    """D10: a float tensor that needs a gradient, a mask of integers, a table that needs none."""
    form = take_apart({"hidden": torch.ones(1), "rest": [torch.ones(1), (torch.ones(1), None)], "scale": 2.0}, lambda: "")[1]
    message = Message((torch.ones(2, 3), torch.tensor([1, 0]), torch.zeros(4)), (True, False, False), form)
    found = sent(message)

    assert (found.needs_grad, found.form) == ((True, False, False), form)
    assert found.value(found.tensors)["rest"][1] == (found.tensors[2], None)
    assert [tensor.dtype for tensor in found.tensors] == [torch.float32, torch.int64, torch.float32]
    assert not any(tensor.requires_grad for tensor in found.tensors)


def test_none_and_names_arrive_between_tensors() -> None:
    found = sent((None, {"mask": torch.ones(2), "length": 7}, [torch.zeros(1), None]))

    assert found[0] is None
    assert found[1]["length"] == 7
    assert torch.equal(found[1]["mask"], torch.ones(2))
    assert found[2][1] is None


@pytest.mark.parametrize("coalesced", [True, False])
def test_a_sparse_gradient_arrives_sparse(coalesced: bool) -> None:
    indices, values = torch.tensor([[0, 2, 2]]), torch.tensor([[1.0], [2.0], [3.0]])
    tensor: Tensor = torch.sparse_coo_tensor(indices, values, (4, 1), check_invariants=True)
    tensor = tensor.coalesce() if coalesced else tensor
    found = sent(tensor)

    assert found.is_sparse
    assert found.is_coalesced() == coalesced
    assert torch.equal(found.to_dense(), tensor.to_dense())


def test_a_header_is_short() -> None:
    """One tensor's message fits the first block of a lane, so that it takes two sends in all."""
    assert len(pack(((12, 0), Message((torch.ones(8, 16),), (True,)))).header) < 1000

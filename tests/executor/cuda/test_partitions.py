"""Splitting SMs against a driver that is simulated: what it grants follows the rules of the CUDA driver API for compute 9.0."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from executor.workers.cuda import partitions
from schedir.errors import ArgumentError, RefusedError

OK, REFUSED = "CUDA_SUCCESS", "CUDA_ERROR_NOT_SUPPORTED"
GPU = torch.device("cuda", 0)


def resource(count: int) -> SimpleNamespace:
    return SimpleNamespace(sm=SimpleNamespace(smCount=count))


class Api:
    """A GPU of so many SMs; groups are rounded up to a multiple, as many are made as fit."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=OK)
    CUdevResourceType = SimpleNamespace(CU_DEV_RESOURCE_TYPE_SM="sm")
    CUgreenCtxCreate_flags = SimpleNamespace(CU_GREEN_CTX_DEFAULT_STREAM=1)

    def __init__(self, num_sms: int, multiple: int = 8, status: str = OK) -> None:
        self._num_sms, self._multiple, self._status = num_sms, multiple, status

    def cuInit(self, _: int) -> tuple[str]:  # noqa: N802 - the driver's own name
        return (OK,)

    def cuDeviceGet(self, number: int) -> tuple[str, int]:  # noqa: N802
        return OK, number

    def cuDeviceGetDevResource(self, *_: object) -> tuple[str, Any]:  # noqa: N802
        return self._status, resource(self._num_sms)

    def cuDevSmResourceSplitByCount(self, groups: int, whole: Any, *numbers: int) -> tuple[Any, ...]:  # noqa: N802
        _, least = numbers
        size = -(-least // self._multiple) * self._multiple
        count = min(groups, whole.sm.smCount // size)
        return OK, [resource(size) for _ in range(count)], count, resource(whole.sm.smCount - count * size)

    def cuDevResourceGenerateDesc(self, groups: list[Any], _: int) -> tuple[str, Any]:  # noqa: N802
        return OK, groups[0]

    def cuGreenCtxCreate(self, description: Any, *_: int) -> tuple[str, Any]:  # noqa: N802
        return OK, description


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)

    def install(api: Any) -> None:
        monkeypatch.setattr(partitions, "import_module", lambda _: api)

    return install


@pytest.mark.parametrize("numbers", [(132, 2, 64), (132, 4, 32), (128, 4, 32), (144, 3, 48)], ids=str)
def test_sms_are_split_into_equal_groups_that_fit(install: Any, numbers: tuple[int, int, int]) -> None:
    """132 SMs (H100, H200) in two: 66 would be rounded up to 72, and two of those do not fit, so it is 64 each."""
    num_sms, num_groups, granted = numbers
    install(Api(num_sms))
    assert [part.num_sms for part in partitions.split_sms(GPU, num_groups)] == [granted] * num_groups


def test_more_groups_than_fit_are_refused_with_what_was_granted(install: Any) -> None:
    install(Api(16))
    with pytest.raises(RefusedError, match=r"16 SMs do not split into 3 disjoint groups of 5: the driver grants \[8, 8\]"):
        partitions.split_sms(GPU, 3)


def test_a_driver_that_cannot_is_refused(install: Any) -> None:
    install(Api(132, status=REFUSED))
    with pytest.raises(RefusedError, match=r"CUDA_ERROR_NOT_SUPPORTED.*let the devices take turns"):
        partitions.split_sms(GPU, 2)


def test_an_old_package_is_refused(install: Any) -> None:
    install(SimpleNamespace())
    with pytest.raises(RefusedError, match=r"install 12\.4 or newer"):
        partitions.split_sms(GPU, 2)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(partitions, "import_module", missing)
    with pytest.raises(RefusedError, match="needs the package cuda-bindings"):
        partitions.split_sms(GPU, 2)


def test_a_package_that_finds_no_driver_is_refused(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """cuda-bindings looks for libcuda when it is first called, and raises an error of its own, a RuntimeError."""

    def not_found(_: int) -> Any:
        raise RuntimeError('"cuda" is an NVIDIA driver library and can only be found via system search')

    api = Api(132)
    monkeypatch.setattr(api, "cuInit", not_found)
    install(api)
    with pytest.raises(RefusedError, match=r'finds no CUDA driver \("cuda" is an NVIDIA.*let the devices take turns'):
        partitions.split_sms(GPU, 2)


def test_one_group_is_no_split() -> None:
    with pytest.raises(ArgumentError, match="1 groups of SMs are no split"):
        partitions.split_sms(GPU, 1)

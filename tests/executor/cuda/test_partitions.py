"""Splitting SMs against a driver that is simulated: what it grants follows the rules of the CUDA driver API for compute 9.0."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from executor.workers.cuda import partitions, start
from executor.workers.cuda.driver import TorchDriver
from schedir.compiler import compile_program
from schedir.errors import ArgumentError, RefusedError, SchedirWarning
from schedir.schedules.registry import build_program

OK, REFUSED = "CUDA_SUCCESS", "CUDA_ERROR_NOT_SUPPORTED"
GPU = torch.device("cuda", 0)


def resource(count: int) -> SimpleNamespace:
    return SimpleNamespace(sm=SimpleNamespace(smCount=count))


class Api:
    """A GPU of so many SMs; groups are rounded up to a multiple, as many are made as fit."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=OK)
    CUdevResourceType = SimpleNamespace(CU_DEV_RESOURCE_TYPE_SM="sm")
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUgreenCtxCreate_flags = SimpleNamespace(CU_GREEN_CTX_DEFAULT_STREAM=1)

    def __init__(self, num_sms: int, multiple: int = 8, status: str = OK) -> None:
        self._num_sms, self._multiple, self._status = num_sms, multiple, status
        self.contexts_left = num_sms
        """How many it makes yet."""
        self.alive: list[str] = []
        """Contexts and streams that were made and not destroyed."""

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
        if not self.contexts_left:
            return REFUSED, None
        self.contexts_left -= 1
        return OK, self._made(f"context of {description.sm.smCount} SMs, {self.contexts_left} left")

    def cuGreenCtxStreamCreate(self, context: str, *_: int) -> tuple[str, str]:  # noqa: N802
        return OK, self._made(f"{len(self.alive)} in {context}")

    def _made(self, name: str) -> str:
        self.alive.append(name)
        return name

    def cuStreamDestroy(self, stream: str) -> tuple[str]:  # noqa: N802
        self.alive.remove(stream)
        return (OK,)

    def cuGreenCtxDestroy(self, context: str) -> tuple[str]:  # noqa: N802
        assert not any(name.endswith(f"in {context}") for name in self.alive), "its streams would be detached"
        if self._status != OK:
            return (self._status,)
        self.alive.remove(context)
        return (OK,)


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


class External:
    """Stands for torch's name of a stream that others have made."""

    def __init__(self, handle: str, *, device: torch.device) -> None:
        self.handle, self.device = handle, device


@pytest.fixture
def api(install: Any, monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api(132)
    install(made)
    monkeypatch.setattr(torch.cuda, "ExternalStream", External)
    monkeypatch.setattr(partitions, "int", lambda handle: handle, raising=False)
    return made


def test_streams_and_contexts_are_destroyed_when_the_shares_end(api: Api) -> None:
    shares = partitions.split_sms(GPU, 2)
    for share in shares:
        for _ in range(3):
            share.stream(GPU)
    assert len(api.alive) == 2 * (1 + 3)
    for share in (*shares, *shares):  # a second time nothing happens
        share.close()
    assert api.alive == []


def test_a_share_that_was_made_is_ended_if_the_next_is_refused(api: Api) -> None:
    api.contexts_left = 1
    with pytest.raises(RefusedError, match="CUDA_ERROR_NOT_SUPPORTED"):
        partitions.split_sms(GPU, 2)
    assert api.alive == []


def test_shares_are_ended_if_a_stream_of_theirs_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU has three streams from the start: the second share's second one is the fifth."""
    made = api.cuGreenCtxStreamCreate
    monkeypatch.setattr(api, "cuGreenCtxStreamCreate", lambda *given: made(*given) if len(api.alive) < 2 + 4 else (REFUSED, None))
    monkeypatch.setattr(start, "visible_gpus", lambda *_: (GPU,))
    graph = compile_program(build_program("1f1b", num_devices=2, num_micro_batches=2))
    with pytest.raises(RefusedError, match="CUDA_ERROR_NOT_SUPPORTED"):
        start.gpus_for(graph, "cuda-partitions")
    assert api.alive == []


def test_a_driver_that_does_not_end_a_share_is_told_of_and_training_is_not_lost(api: Api) -> None:
    share = partitions.split_sms(GPU, 2)[0]
    api._status = REFUSED
    with pytest.warns(SchedirWarning, match="a share of a GPU stays until this process ends: the CUDA driver refuses"):
        share.close()


def test_memory_that_a_share_uses_is_kept_until_it_ends(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told to torch's allocator, it would be asked of a stream that is gone when the memory is freed."""
    told: list[object] = []
    monkeypatch.setattr(TorchDriver, "used_on", lambda *parts: told.append(parts[2]))
    share = partitions.split_sms(GPU, 2)[0]
    own, default, weights = share.stream(GPU), SimpleNamespace(), torch.ones(4)
    share.used_on(weights, own)
    share.used_on(weights, default)
    assert told == [default]
    [kept] = share._used
    assert kept.data_ptr() == weights.data_ptr()
    share.close()
    assert share._used == []
    assert len(api.alive) == 1  # the other share

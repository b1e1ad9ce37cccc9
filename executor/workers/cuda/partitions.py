"""Several devices on one GPU, each with streaming multiprocessors (SMs) of its own: green contexts of the CUDA driver.

One split of the GPU's SM resource gives disjoint groups; contexts that are made one by one are not promised to be disjoint. Memory
bandwidth and cache stay shared, and kernels of streams outside the groups still use every SM. Groups end with the workers that they
were made for. Like `driver`, this module can only be proved on a GPU; it needs CUDA 12.4 and the package cuda-bindings.

Source: CUDA driver API, "Green Contexts".
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from executor.workers.cuda.driver import GpuStream, TorchDriver
from executor.workers.cuda.sparse import dense_parts
from schedir.errors import ArgumentError, RefusedError, SchedirWarning

WITHOUT = "let the devices take turns instead"
"""The remedy that always works."""


class PartitionDriver(TorchDriver):
    """Streams that run on one group of SMs only."""

    def __init__(self, api: Any, context: Any, num_sms: int) -> None:
        self._api, self._context = api, context
        self.num_sms = num_sms
        """SMs that were granted."""
        self._streams: list[tuple[Any, torch.cuda.Stream]] = []
        """The driver's name of each, and torch's."""
        self._used: list[Tensor] = []
        """Memory of others that the streams use."""

    def stream(self, device: torch.device) -> GpuStream:
        """Return a new stream of the group, which does not wait for the default stream."""
        handle = _checked(
            self._api, self._api.cuGreenCtxStreamCreate(self._context, self._api.CUstream_flags.CU_STREAM_NON_BLOCKING, 0)
        )
        stream = torch.cuda.ExternalStream(int(handle), device=device)  # type: ignore[no-untyped-call]  # so in torch
        self._streams.append((handle, stream))
        return stream

    def used_on(self, tensor: Tensor, stream: GpuStream) -> None:
        """Keep memory that one of these streams uses until they end; torch's allocator would ask the stream, which is gone then."""
        if any(own == stream for _, own in self._streams):
            self._used += [part.detach() for part in dense_parts([tensor])]
        else:
            super().used_on(tensor, stream)

    def close(self) -> None:
        """Destroy the streams and their green context, in this order; a driver that refuses keeps them until the process ends.

        Source: cuGreenCtxDestroy, which leaves streams to whoever made them.
        """
        streams, self._streams, context, self._context = self._streams, [], self._context, None
        self._used.clear()
        if context is None:
            return
        try:
            for handle, _ in streams:
                _checked(self._api, self._api.cuStreamDestroy(handle))
            _checked(self._api, self._api.cuGreenCtxDestroy(context))
        except RefusedError as error:
            warnings.warn(f"a share of a GPU stays until this process ends: {error}", SchedirWarning, stacklevel=2)


def split_sms(device: torch.device, num_groups: int) -> list[PartitionDriver]:
    """Split a GPU's SMs into equal, disjoint groups; raise RefusedError where the driver cannot, or grants something else."""
    if num_groups < 2:
        raise ArgumentError(f"{num_groups} groups of SMs are no split: give at least 2")
    api = _api()
    torch.zeros(1, device=device)  # green contexts share the primary context, which torch makes when it is first used
    number = _checked(api, api.cuDeviceGet(device.index or 0))
    whole = _checked(api, api.cuDeviceGetDevResource(number, api.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
    wanted = whole.sm.smCount // num_groups
    made: list[PartitionDriver] = []
    try:
        # one after the other: what is made is ended if a later one is refused
        made.extend(
            PartitionDriver(api, _context(api, number, group), group.sm.smCount)
            for group in _groups(api, whole, num_groups, wanted=wanted)
        )
    except RefusedError:
        for driver in made:
            driver.close()
        raise
    return made


def _groups(api: Any, whole: Any, num_groups: int, *, wanted: int) -> list[Any]:
    groups, count, _ = _checked(api, api.cuDevSmResourceSplitByCount(num_groups, whole, 0, wanted))
    granted = [group.sm.smCount for group in groups[:count]]
    total = whole.sm.smCount
    if count == num_groups and len(set(granted)) == 1 and sum(granted) <= total:
        return list(groups)
    # Groups are rounded up to a multiple that the GPU asks for, so that the last may not fit: try the multiple below.
    if granted and granted[0] > wanted > 2 * (granted[0] - wanted):
        return _groups(api, whole, num_groups, wanted=2 * wanted - granted[0])
    raise RefusedError(
        f"{total} SMs do not split into {num_groups} disjoint groups of {wanted}: the driver grants {granted or 'none'}; use fewer "
        f"devices, or {WITHOUT}"
    )


def _context(api: Any, number: Any, group: Any) -> Any:
    description = _checked(api, api.cuDevResourceGenerateDesc([group], 1))
    return _checked(api, api.cuGreenCtxCreate(description, number, api.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM))


def _api() -> Any:
    try:
        api = import_module("cuda.bindings.driver")
    except ImportError as error:
        raise RefusedError(
            f"splitting SMs needs the package cuda-bindings, which is not installed: install it, or {WITHOUT}"
        ) from error
    if not hasattr(api, "cuDevSmResourceSplitByCount"):
        raise RefusedError(f"this cuda-bindings cannot split SMs: install 12.4 or newer, or {WITHOUT}")
    try:
        status = api.cuInit(0)
    except RuntimeError as error:  # the bindings look for the driver's library, and its functions, when they are first called
        raise RefusedError(f"cuda-bindings finds no CUDA driver ({' '.join(str(error).split())[:80]}): {WITHOUT}") from error
    _checked(api, status)
    return api


def _checked(api: Any, answer: Any) -> Any:
    """Return what a call of the driver gives, without its status: nothing, one value or several."""
    status, *values = answer if isinstance(answer, tuple) else (answer,)
    if status != api.CUresult.CUDA_SUCCESS:
        raise RefusedError(f"the CUDA driver refuses to split SMs, or to end a share of them ({status!r:.60}): {WITHOUT}")
    return values[0] if len(values) == 1 else tuple(values)

"""What is searched: a shape, where its stages stand, what they cost, what a device may hold, and what is to be short.

An order is that of one synchronous mini-batch; a program of several repeats it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from schedir.costs.cluster.cluster import Cluster
from schedir.costs.model import CostModel
from schedir.errors import ArgumentError
from schedir.expect import expect
from schedir.ir.compile_options import CompileOptions
from schedir.ir.shape import Shape, is_count, too_large
from schedir.lowering.across import check_skips, joined


class Objective(StrEnum):
    """What is to be short."""

    MAKESPAN = "makespan"
    """Last end - first start of all devices."""
    DEVICE_SPAN = "device-span"
    """Largest (last end - first start) of one device, of tasks that take time: what one more mini-batch adds."""


class StagePlacement(StrEnum):
    """Which device hosts which stages; all are the same where a device hosts one."""

    LOOP = "loop"
    """Stage s on device s mod p."""
    V = "v"
    """Down the devices, up again, and so on."""

    def home(self, stage: int, num_devices: int) -> int:
        """Return the device that hosts a stage."""
        turn, place = divmod(stage, num_devices)
        return num_devices - 1 - place if self is StagePlacement.V and turn % 2 else place


class Backward(StrEnum):
    """How backwards run."""

    WHOLE = "whole"
    """B."""
    SPLIT = "split"
    """I, and W some time later."""
    EITHER = "either"
    """Each as it is better."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device may hold; None: as much as it likes."""

    activations: tuple[int, ...] | None = None
    """Most (stage, micro-batch) pairs alive on each device, or one number for all."""
    bytes: float | None = None
    """Of every device, in place of the cluster's."""

    def __post_init__(self) -> None:
        if self.activations is not None and not all(map(is_count, self.activations)):
            raise ArgumentError(f"activation_limit {_listed(self.activations)} must be integers of at least 1")

    def live(self, num_devices: int) -> tuple[int, ...] | None:
        """Return the most pairs alive on every device; raise ArgumentError for a wrong number of limits."""
        given = self.activations
        if given is None or len(given) == num_devices:
            return given
        if len(given) > 1:
            raise ArgumentError(
                f"activation_limit {_listed(given)} has {len(given)} values, but there are {num_devices} devices: "
                "give one for all, or one each"
            )
        return given * num_devices


def _listed(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One search. Raises ArgumentError for what does not go together, RefusedError for what is too large."""

    num_devices: int
    num_micro_batches: int
    stages_per_device: int = 1
    placement: StagePlacement | None = None
    """None: loop and V, whichever is better."""
    costs: CostModel
    cluster: Cluster | None = None
    limits: Limits = field(default_factory=Limits)
    objective: Objective = Objective.MAKESPAN
    backward: Backward | None = None
    """None: split where the costs state the halves, and whole where that is cheaper."""
    name: str = "search"
    """What found programs are called."""
    lowering: CompileOptions = field(default_factory=CompileOptions)
    """How programs are compiled. Orders are sought along the chain of stages, and judged with what reaches over it."""

    def __post_init__(self) -> None:
        for name in ("num_devices", "num_micro_batches", "stages_per_device"):
            if not is_count(getattr(self, name)):
                raise ArgumentError(f"{name} {getattr(self, name)!r} must be an integer of at least 1")
        expect(self.costs, CostModel, "costs", remedy="give UniformCosts, TableCosts or what load_costs returns")
        excess = too_large(self.num_stages, self.num_micro_batches)
        if excess is not None:
            raise ArgumentError(f"search: {excess}")
        self.limits.live(self.num_devices)
        check_skips(self.lowering.skips, self.num_stages)
        joined(self.lowering.ties, self.num_stages)

    @property
    def num_stages(self) -> int:
        """Stages of all devices."""
        return self.num_devices * self.stages_per_device

    @property
    def shape(self) -> Shape:
        """The shape of the one mini-batch that is put in order."""
        return Shape(self.num_devices, self.num_micro_batches, 1, self.stages_per_device)

    def placements(self) -> tuple[StagePlacement, ...]:
        """Return the placements to be tried: where a device hosts one stage, they are one."""
        if self.num_devices == 1 or self.stages_per_device == 1:
            return (StagePlacement.LOOP,)
        return tuple(StagePlacement) if self.placement is None else (self.placement,)

    def homes(self, placement: StagePlacement) -> tuple[int, ...]:
        """Return the device of every stage."""
        return tuple(placement.home(stage, self.num_devices) for stage in range(self.num_stages))

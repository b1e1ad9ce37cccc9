"""What a profile is of: the stages that are measured, in which rehearsals, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from executor.model.admission import check_timeout
from executor.workers.choice import LOCAL
from schedir.costs.table.meaning import Granularity
from schedir.errors import ArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """What to measure, and how long. Raises ArgumentError for values that break a rule."""

    num_stages: int | None = None
    """Stages to cut the model into, one per device; None: as the recipe gives them."""
    micro_batch_size: int | None = None
    """Samples of a micro-batch; None: the data's mini-batches in `num_micro_batches` parts."""
    by: Granularity = Granularity.STAGE
    """What to measure: a stage, or each of its layers."""
    schedule: str = "1f1b"
    """What is rehearsed to measure forward, backward and update, without a flush also a prediction."""
    num_micro_batches: int = 4
    """Micro-batches of a rehearsed mini-batch."""
    repeats: int = 30
    """Mini-batches measured in each rehearsal."""
    warm_up: int = 10
    """Mini-batches before those."""
    recompute_mode: str = "never"
    """How that schedule recomputes, as `compile_program` takes it: a forward that will be recomputed records no graph."""
    recompute: bool = True
    """Rehearse recomputation too, where that schedule does not recompute."""
    predict: bool = True
    """Rehearse weight prediction too, where that schedule does not predict."""
    split_backward: bool = False
    """Rehearse the two halves of backward too, as a split backward runs them, and count what is kept between them."""
    whole_backward: bool = True
    """Rehearse whole backwards; without them only halves run."""
    devices: tuple[int, ...] | None = None
    """The device of every stage, counted from 0 without a gap; None: one each."""
    own_core: bool = False
    """A duration is the CPU time of its thread, what a core of its own would take: for devices that share cores, which a
    prediction then shares between them (`simulate(…, cores=)`). Otherwise it is what passes, neighbours included."""
    workers: str = "threads"
    """What runs the rehearsals: threads, cuda or cuda-partitions."""
    seed: int = 0
    """Of the data."""
    timeout: float = 600.0
    """Seconds that a device is waited for at most."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", _granularity(self.by))
        for name, least in (("num_micro_batches", 1), ("repeats", 1), ("warm_up", 0), ("micro_batch_size", 1)):
            value: object = getattr(self, name)
            optional = name == "micro_batch_size" and value is None
            if not optional and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ArgumentError(f"{name} {value!r} must be an integer of at least {least}")
        check_timeout(self.timeout)
        if self.workers not in LOCAL:
            raise ArgumentError(f"workers {self.workers!r} cannot be profiled with: use {' or '.join(LOCAL)}")
        if not (self.whole_backward or self.split_backward):
            raise ArgumentError("a rehearsal needs backwards: ask for whole_backward or split_backward")


def _granularity(by: str) -> Granularity:
    if by not in set(Granularity):
        raise ArgumentError(f"by {by!r} is unknown: use stage or layer")
    return Granularity(by)

"""The same work for schedules that cut it differently: into fewer micro-batches, or into more stages.

Costs are those of a stage of the schedule with fewest stages and of a micro-batch of the one with most micro-batches. One
with k times as many stages gets stages of 1/k of the work; costs per layer are cut into its stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from schedir.costs.model import CostModel
from schedir.costs.table.cuts import even_split
from schedir.costs.table.meaning import Granularity
from schedir.costs.table.shares import table_share, uniform_share
from schedir.costs.table.table import TableCosts
from schedir.costs.uniform import UniformCosts
from schedir.errors import ArgumentError
from schedir.ir.program import Program

_PROPORTIONAL = ("forward", "backward", "input_grad", "weight_grad", "recompute", "overlapped", "transfer_bytes", "skip_bytes")
_SHARES = {Fraction(1, 2): "half", Fraction(1, 3): "a third", Fraction(1, 4): "a quarter"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualWork:
    """How the work of one mini-batch is shared out."""

    costs: CostModel
    """Of a micro-batch of the costs' own cut, on a stage of `reference`."""
    reference: Program
    """The first with fewest stages."""
    most_micro_batches: int
    """Micro-batches of the costs' own cut."""

    def of(self, program: Program) -> CostModel:
        """Return what the program's tasks cost; raises SchedirError where the costs cannot be shared out like that."""
        costs = in_proportion(self.costs, self.most_micro_batches / program.num_micro_batches)
        if isinstance(costs, TableCosts) and costs.granularity is Granularity.LAYER:
            return _cut_for(costs, program.num_stages)
        share = self._share(program)
        if share == 1:
            return costs
        if isinstance(costs, TableCosts):
            return table_share(costs, share)
        assert isinstance(costs, UniformCosts), "there are two kinds of costs"
        return uniform_share(costs, share)

    def lines(self, programs: Sequence[Program]) -> tuple[str, ...]:
        """Return one line for all schedules with so many stages, where that is not what the costs were given for."""
        by_stages: dict[int, list[Program]] = {}
        for program in programs:
            by_stages.setdefault(program.num_stages, []).append(program)
        lines = []
        for num_stages, alike in by_stages.items():
            how = self.how(alike[0])
            if how:
                names = ", ".join(dict.fromkeys(program.name for program in alike))
                lines.append(f"{names}: {num_stages} stages, {how}")
        return tuple(lines)

    def how(self, program: Program) -> str:
        """Say what the program's stages are where the costs were given for others: `each with half of the work of 1f1b's`."""
        if isinstance(self.costs, TableCosts) and self.costs.granularity is Granularity.LAYER:
            if _fits(self.costs, program.num_stages):
                return ""
            cut = even_split(len(self.costs.rows), program.num_stages)
            return f"of {cut[0] if cut[0] == cut[-1] else f'{cut[-1]} or {cut[0]}'} layers, the {len(self.costs.rows)} cut evenly"
        share = self._share(program)
        return "" if share == 1 else f"each with {_SHARES.get(share, str(share))} of the work of {self.reference.name}'s"

    def _share(self, program: Program) -> Fraction:
        return Fraction(self.reference.num_stages, program.num_stages)


def equal_work(costs: CostModel, programs: Sequence[Program]) -> EqualWork:
    """Return how the work is shared out among these programs."""
    reference = min(programs, key=lambda program: program.num_stages)
    most = max(program.num_micro_batches for program in programs)
    return EqualWork(costs=costs, reference=reference, most_micro_batches=most)


def in_proportion(costs: CostModel, factor: float) -> CostModel:
    """Return the costs of micro-batches that are `factor` times as large."""
    if factor == 1.0:
        return costs
    if getattr(costs, "micro_batch_sizes", None) is not None:
        raise ArgumentError("micro_batch_sizes fix how the mini-batch is cut: give every schedule as many micro-batches")
    if isinstance(costs, TableCosts):
        return costs.resized(_whole(factor * costs.micro_batch_size))
    assert isinstance(costs, UniformCosts), "there are two kinds of costs"
    given = {name: getattr(costs, name) for name in _PROPORTIONAL}
    if costs.backward is None and costs.input_grad is None:
        given |= {"input_grad": 1.0, "weight_grad": 1.0}
    scaled: dict[str, Any] = {name: _scaled(value, factor) for name, value in given.items() if value is not None}
    return replace(costs, **scaled)


def _fits(costs: TableCosts, num_stages: int) -> bool:
    """Say whether the cut that was given is one into so many stages."""
    return costs.layers_per_stage is not None and len(costs.layers_per_stage) == num_stages


def _cut_for(costs: TableCosts, num_stages: int) -> TableCosts:
    return costs if _fits(costs, num_stages) else costs.cut(even_split(len(costs.rows), num_stages))


def _whole(samples: float) -> int:
    if samples != round(samples):
        raise ArgumentError(
            f"a micro-batch would have {samples:g} samples: choose numbers of micro-batches that divide the largest of them"
        )
    return round(samples)


def _scaled(value: float | Sequence[float], factor: float) -> float | tuple[float, ...]:
    return tuple(factor * entry for entry in value) if isinstance(value, Sequence) else factor * value

"""The updates of one copy of a stage: gradients come together, and become the next version of its weights.

    backwards of its micro-batches ──▶ sums ──▶ [all replicas] ──▶ [all stages that hold the same weights] ──▶ optimizer
                                       share ─┘    totals ◀──┘      tied_share ─┘              totals ◀──┘

Totals come in this order where there are any. Statistics of BatchNorm that wait for the update travel behind a replica's gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from executor.plan.actions import PlannedAction
from executor.stage.batch_norm import DeferredStatistics
from executor.stage.feed import Supply
from executor.stage.gradients import GradientSums, Sums
from executor.stage.tied import TiedPart, without
from executor.stage.weights import StageWeights
from schedir.errors import RefusedError


class StageUpdates:
    """Collects a stage's gradients and applies them."""

    def __init__(self, number: int, weights: StageWeights, feed: Supply, *, statistics: DeferredStatistics | None) -> None:
        self._number, self._weights, self._feed, self._statistics = number, weights, feed, statistics
        self.sums = GradientSums()
        """Gradients of updates that are not complete yet."""
        self.tied: TiedPart | None = None
        """The stage's part in weights that other stages hold, too."""
        self.last_gradients: Sequence[Tensor | None] = ()
        """What the last update of the pass was made with."""

    def begin(self) -> None:
        """Get ready for the next pass over the graph."""
        self.sums.clear()
        self.last_gradients = ()

    def replica_share(self, update: int) -> list[Tensor | None]:
        """Return what a replica gives to the sums of its stage's gradients, statistics that wait for the update behind them."""
        gradients = self.sums.take(update)
        # under a flush, the only place where replicas share statistics, update v is of mini-batch v - 1
        return gradients if self._statistics is None else [*gradients, *self._statistics.share(update - 1)]

    def tied_share(self, update: int) -> list[Tensor | None]:
        """Return what the stage gives to the sums of tied weights; every gradient of it is there."""
        assert self.tied is not None
        return self.tied.share(self.sums.peek(update))

    def collect(self, update: int, *totals: Sums) -> Sums:
        """Return the gradients of an update, and forget the stage's own."""
        totals = self._without_statistics(update, totals)
        # totals are copied: every taker of a sum has the same tensors, and its optimizer may change them
        if self.tied is None:
            return _copies(totals[0]) if totals else self.sums.take(update)
        *replicas, tied = totals
        return _copies(self.tied.merged(replicas[0] if replicas else self.sums.take(update), tied))

    def _without_statistics(self, update: int, totals: tuple[Sums, ...]) -> tuple[Sums, ...]:
        """Return sums of gradients without the statistics that `replica_share` has put behind them, which are kept."""
        count = len(self._weights.newest.leaves)
        # a tie's total stands last, so one before it is the replicas'; without a flush they share no statistics
        has_replicas = len(totals) > (self.tied is not None)
        if self._statistics is None or not has_replicas or len(totals[0]) == count:
            return totals
        self._statistics.take_total(update - 1, totals[0][count:])
        return totals[0][:count], *totals[1:]

    def counted(self, gradients: Sums) -> Sums:
        """Return the gradients without those that another stage counts in a norm over the model."""
        return gradients if self.tied is None else without(gradients, self.tied.owned_below)

    def apply(self, action: PlannedAction, gradients: Sums) -> None:
        """Update with gradients, which the optimizer may change: Nesterov's does."""
        if action.last_update:
            self.last_gradients = _copies(gradients)
        # weights that lie in the memory of a lower stage of this device are moved once, by that stage's optimizer
        if self.tied is not None:
            gradients = without(gradients, self.tied.updated_below)
        self._make(action, gradients)

    def leave_out(self, action: PlannedAction) -> None:
        """Make no update, whose gradients somebody has taken: the version that it would have made is the one before."""
        self._make(action, None)

    def _make(self, action: PlannedAction, gradients: Sums | None) -> None:
        """Make the next version, equal to the one before without gradients, and let its mini-batch move deferred statistics."""
        self._weights.check_untouched(self._number)
        with self._naming_sparse(gradients or ()):
            made = self._weights.update(gradients, keep_previous=action.keeps_previous)
        if self._statistics is not None:
            self._statistics.commit(action.micro_batch // self._feed.num_micro_batches)
        self._feed.log.note(action.task, action.half, (made.version, made.horizon))

    @contextmanager
    def _naming_sparse(self, gradients: Sequence[Tensor | None]) -> Iterator[None]:
        """Explain an optimizer's error where it may come from sparse gradients, which few optimizers take."""
        try:
            yield
        except RuntimeError as error:
            if all(gradient is None or not gradient.is_sparse for gradient in gradients):
                raise
            reason = " ".join(str(error).split())[:100]
            raise RefusedError(
                f"the optimizer of stage {self._number} does not take its sparse gradients ({reason}): use SGD without weight "
                "decay or SparseAdam, or leave sparse=True out"
            ) from error


def _copies(gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
    return [None if gradient is None else gradient.clone() for gradient in gradients]

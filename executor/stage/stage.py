"""One copy of a stage on one device, one method per kind of action.

    forward       input ──▶ record (leaves, roots of the graph, or the input alone if it will be recomputed) ──▶ output
    recompute     record's input ──▶ record with a graph, on the backward's weights
    backward      gradient of the output + record ──▶ gradient of the input, weight gradients into the update's sum
    input_grad, weight_grad     the two halves of backward (executor.stage.splitting.splitting)
    update        sum of a mini-batch's gradients ──▶ next version (executor.stage.updates)
    predict       newest version ──▶ predicted set

A stage is used by its device's worker only.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from torch import Tensor

from executor.boundary import Message, output_message
from executor.model.skips import StageSkips, joined_message, parted, parts_like
from executor.model.split_ways import Split
from executor.model.stage_copy import StageCopy
from executor.plan.actions import PlannedAction
from executor.stage.batch_norm import DeferredStatistics
from executor.stage.feed import Supply
from executor.stage.forward_writes import ForwardWrites
from executor.stage.gradients import Gradients, Sums
from executor.stage.lent import in_own_memory
from executor.stage.loss import StageLoss
from executor.stage.module import StageModule
from executor.stage.reach import Reach
from executor.stage.recompute import Buffers
from executor.stage.record import Record, differentiate
from executor.stage.splitting.splitting import Splitter
from executor.stage.swap import Tape
from executor.stage.updates import StageUpdates
from executor.stage.weights import StageWeights, WeightSet
from executor.structure import Name, take_apart

_NOTHING = nullcontext()


Sent = Message | tuple[Message, ...] | None
"""Of a forward: the message to the next stage; where skip connections begin, theirs behind it; None on the last stage."""
Received = Gradients | tuple[Gradients, ...]
"""Of a backward: the gradients of the stage's input; where skip connections end, one tuple for every message of it."""


class StageRuntime:
    """Carries out the actions of one stage on one device."""

    def __init__(
        self,
        number: int,
        copy: StageCopy,
        *,
        weights: StageWeights,
        feed: Supply,
        is_last: bool,
        split: Split = Split.DEFERRED,
    ) -> None:
        self.number, self.weights, self.home = number, weights, copy.home
        self.copy = copy
        """Module and optimizer."""
        self.buffers = Buffers(copy.module)
        self.splitter = Splitter(split)
        self.writes = ForwardWrites(number, copy.module)
        """What its forwards may write to."""
        self.skips: StageSkips | None = None
        """Its part in skip connections."""
        self.reach: Reach | None = None
        """Looks at which parameters its first graph reaches; None if nobody asks."""
        self._statistics = DeferredStatistics(copy.module) if copy.defers_batch_norm else None
        self.updates = StageUpdates(number, weights, feed, statistics=self._statistics)
        self._feed = feed
        self._module = StageModule(number, copy.module, feed, is_last=is_last, device=copy.home.device)
        self._loss = StageLoss(number, feed) if is_last else None
        self._records: dict[int, Record] = {}
        """By micro-batch, from its forward to the end of its backward."""

    def begin(self) -> None:
        """Get ready for the next pass over the graph."""
        self.weights.begin()
        self._records.clear()
        self.updates.begin()
        if self._statistics is not None:
            self._statistics.begin()

    def close(self) -> None:
        """Give the module its own parameters back, and forget everything else."""
        self.begin()
        self.weights.restore()

    def forward(self, action: PlannedAction, message: Message | None = None, *skipped: Message) -> Sent:
        """Compute and record a micro-batch; return the message to the next stage, nothing on the last.

        `skipped` came over skip connections, by source. A stage at whose outputs some begin returns their messages behind its own.
        """
        message = self._feed.inputs(action.micro_batch) if message is None else message
        # noted before anything is computed: a loss that is not finite looks at what its own stage took, too
        record = self._records[action.micro_batch] = self.record_of(message, *skipped)
        weights = self._read(action)
        self.weights.bind(weights)
        outputs = self.writes.forward(weights.leaves, partial(self._forward, action, record, weights))
        self.weights.release(action)
        return outputs

    def _forward(self, action: PlannedAction, record: Record, weights: WeightSet) -> Sent:
        if action.recomputed:
            return self._forward_without_graph(action, record)
        with self._collecting(action):
            return self.compute_with_graph(action, record, weights)

    def took_finite(self, micro_batch: int) -> bool:
        """Tell whether the input of a micro-batch under way is finite; another device may ask. One that is not here counts so."""
        # one look-up, since this stage's own worker may be adding records meanwhile
        record = self._records.get(micro_batch)
        floating = [] if record is None else [tensor for tensor in record.message.tensors if tensor.is_floating_point()]
        return all(bool(tensor.isfinite().all()) for tensor in floating)

    @staticmethod
    def record_of(message: Message, *skipped: Message) -> Record:
        """Return the record of a micro-batch whose input has arrived."""
        return Record(joined_message((message, *skipped)), (message, *skipped)) if skipped else Record(message)

    def _collecting(self, action: PlannedAction) -> AbstractContextManager[None]:
        """Return the context of a forward, which defers what it does to the statistics of BatchNorm if that is wanted."""
        if self._statistics is None:
            return _NOTHING
        return self._statistics.collecting(action.micro_batch // self._feed.num_micro_batches)

    def _forward_without_graph(self, action: PlannedAction, record: Record) -> Sent:
        """Compute a micro-batch that will be recomputed.

        The graph is dropped at once; it shows what needs a gradient, which may differ from one micro-batch to the next.
        """
        record.buffers = self.buffers.snapshot()
        with self._collecting(action):
            return self._compute(action, record, record.message.with_gradients())

    def recompute(self, action: PlannedAction) -> None:
        """Compute a micro-batch again, now with a graph."""
        record = self._records[action.micro_batch]
        weights = self._read(action)
        self.weights.bind(weights)
        with self.buffers.replayed(record.buffers):
            self.writes.again(weights.leaves, partial(self.compute_with_graph, action, record, weights))
        record.buffers = {}
        self.weights.release(action)

    def backward(self, action: PlannedAction, gradients: Gradients | None = None, *skipped: Gradients) -> Received:
        """Differentiate; return the gradients of the stage's input.

        `skipped` came back over skip connections, by target. A stage at which some end returns one tuple per message of its input.
        """
        record = self._records.pop(action.micro_batch)
        self._enter_backward(action, record, gradients, *skipped)
        found = differentiate(record, inputs=True, parameters=True)
        self.updates.sums.add(action.update, self._own(found[len(record.inputs) :], record))
        self.weights.release(action)
        return self._by_message(record, found[: len(record.inputs)])

    @staticmethod
    def _by_message(record: Record, gradients: Gradients) -> Received:
        return tuple(parts_like(record.arrived, gradients)) if record.arrived else gradients

    def input_grad(self, action: PlannedAction, gradients: Gradients | None = None, *skipped: Gradients) -> Received:
        """Differentiate by the stage's input; what is left for the weights stays in the record."""
        record = self._records[action.micro_batch]
        self._enter_backward(action, record, gradients, *skipped)
        found = self.splitter.input_grad(record)
        self.weights.release(action)
        return self._by_message(record, found)

    def weight_grad(self, action: PlannedAction) -> None:
        """Finish a backward: the gradients of the weights."""
        record = self._records.pop(action.micro_batch)
        # W takes the gradient that its I was given, and the weights that it read, whatever updates lie between
        self._enter_backward(action, record, record.seeds)
        self.updates.sums.add(action.update, self._own(self.splitter.weight_grad(record), record))
        self.weights.release(action)

    def predict(self, action: PlannedAction) -> None:
        """Predict weights from the newest."""
        made = self.weights.predict(action)
        self._feed.log.note(action.task, action.half, (made.version, made.horizon))

    def update(self, action: PlannedAction, *totals: Sums) -> None:
        """Apply a mini-batch's gradients; `totals` are those of all replicas and those of tied weights, as far as there are."""
        self.updates.apply(action, self.updates.collect(action.update, *totals))

    def compute_with_graph(self, action: PlannedAction, record: Record, weights: WeightSet) -> Sent:
        """Compute a micro-batch with the weights that are bound, on a tape if backward reads others; fill in the record."""
        record.tape = Tape(weights, stage=self.number) if action.swapped else None
        record.weights = weights
        record.inputs = record.message.with_gradients()
        with record.tape.recording() if record.tape is not None else _NOTHING:
            outputs = self._compute(action, record, record.inputs)
        if record.tape is not None:
            record.tape.forget_leaves()
        # a graph without its loss does not show what the loss reaches
        if self.reach is not None and (self._loss is None or self._feed.loss_scale(action.micro_batch)):
            self.reach.check(record)
        return outputs

    def _read(self, action: PlannedAction) -> WeightSet:
        # what was really read, not what the action says: reports and tests hold the two against each other
        weights = self.weights.read(action)
        self._feed.log.note(action.task, action.half, (weights.version, weights.horizon))
        return weights

    def _enter_backward(self, action: PlannedAction, record: Record, gradients: Gradients | None, *skipped: Gradients) -> None:
        weights = self._read(action)
        if record.tape is not None:
            record.tape.use(weights)
        # on the last stage what enters is the loss's own gradient, which the record has
        if self._loss is None:
            # behind the neighbour's come those over skip connections: the order in which `_send_parts` has taken the roots
            record.seeds = (
                gradients if not skipped or gradients is None else (*gradients, *(one for each in skipped for one in each))
            )

    def _own(self, gradients: Sequence[Tensor | None], record: Record) -> Sequence[Tensor | None]:
        return in_own_memory(gradients, record) if self.home.lends else gradients

    def _compute(self, action: PlannedAction, record: Record, tensors: tuple[Tensor, ...]) -> Sent:
        """Run the module, on the last stage the loss too; set the record's roots if there is a graph."""
        with self._module.surroundings(action.micro_batch):
            output = self._module(tensors, record.message)
            if self._loss is not None:
                # in the same surroundings as the module: the loss may draw, and is autocast as part of the model would be
                self._loss.take(action, record, output)
                return None
        return self._send(action, record, output)

    def _send(self, action: PlannedAction, record: Record, output: object) -> Sent:
        name = partial(self._output_name, action.micro_batch)
        if self.skips is not None and self.skips.sends:
            return self._send_parts(record, parted(output, self.skips.sends, name), name)
        tensors, form = take_apart(output, name)
        record.take_roots(tensors)
        return output_message(tensors, form)

    @staticmethod
    def _send_parts(record: Record, parts: tuple[object, list[tuple[object, ...]]], name: Name) -> tuple[Message, ...]:
        """Return the message to the next stage, then those over skip connections; their gradients enter in this order."""
        taken = [take_apart(value, name) for value in (parts[0], *parts[1])]
        record.take_roots([tensor for tensors, _ in taken for tensor in tensors])
        return tuple(output_message(tensors, form) for tensors, form in taken)

    def _output_name(self, micro_batch: int) -> str:
        mini_batch, place = divmod(micro_batch, self._feed.num_micro_batches)
        number = self._feed.first_mini_batch + mini_batch
        return f"the output of stage {self.number} for micro-batch {place} of mini-batch {number}"

"""Place communication as torch.distributed.pipelining runs it, so that neither gloo nor NCCL can hang on it.

    0F0,0F1,0B0,0B1          0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD
    1F0,1B0,1F1,1B1     ->   1UNSHARD,1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD

Time goes in rounds: in every round each device, in their order, takes its next step if it can. A send stands right behind what it
sends, and its receive enters the receiver's list in the same moment. So all lists follow from one common order: between two
devices receives stand in the order of the sends, and even blocking sends come to their end. torch's own lowering follows the
same rule (`_add_unshard_reshard`, `_add_reduce_grad`, `_add_send_recv` of torch 2.13), and a test holds both to be equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np

from schedir.interop.rounds import rounds_of
from schedir.interop.torch_cells import Communication
from schedir.interop.torch_csv import without_placed
from schedir.interop.torch_limits import check_torch_runs
from schedir.ir.action import Kind
from schedir.ir.arrays import Ints
from schedir.ir.checks.action_table import ActionTable, actions_of
from schedir.ir.notation.printing import print_orders
from schedir.ir.program import Program

AHEAD = 3
"""Stages of a device whose weights are gathered at once, where they are sharded: those that come next."""


def print_torch_communication(program: Program) -> str:
    """Return a program as CSV with communication, each row with a newline at its end.

    Raises RefusedError for what torch cannot run, ProgramError for an invalid program, DeadlockError.
    """
    table = check_torch_runs(without_placed(program))
    events = _Events(table, _gaps(table))
    return "".join(f"{','.join(cells)}\n" for cells in events.rows())


def check_torch_ends(program: Program) -> None:
    """Raise what `print_torch_communication` raises."""
    table = check_torch_runs(without_placed(program))
    rounds_of(table)


@dataclass(frozen=True, slots=True)
class _Gaps:
    """Steps between the entries of a device that wait for nobody: UNSHARD, RESHARD, REDUCE_GRAD."""

    before: dict[int, list[str]]
    """Cells before an entry, by its row; those behind the REDUCE_GRAD of the entry before it stand here too."""
    after: dict[int, list[str]]
    """Cells behind a device's last entry, by device."""


def _gaps(table: ActionTable) -> _Gaps:
    program = table.program
    last = {int(row): stage for stage, row in enumerate(table.by_stage(table.last_row).max(axis=1).tolist())}
    stages = _stages_of_entries(program)
    gaps = _Gaps({}, {})
    for device in range(program.num_devices):
        rows = range(int(program.device_start[device]), int(program.device_start[device + 1]))
        gathered: list[int] = []
        reduced: list[str] = []
        for row, wanted in zip(rows, _next_stages(stages[rows.start : rows.stop]), strict=True):
            cells = reduced
            if wanted != gathered:
                cells += [f"{stage}{Communication.RESHARD}" for stage in sorted(gathered) if stage not in wanted]
                cells += [f"{stage}{Communication.UNSHARD}" for stage in wanted if stage not in gathered]
            if cells:
                gaps.before[row] = cells
            gathered = wanted
            reduced = [f"{last[row]}{Communication.REDUCE_GRAD}"] if row in last else []
        gaps.after[device] = reduced + [f"{stage}{Communication.RESHARD}" for stage in sorted(gathered)]
    return gaps


def _stages_of_entries(program: Program) -> list[tuple[int, ...]]:
    stages: list[tuple[int, ...]] = [(stage,) for stage in program.stage.tolist()]
    for row, stage in zip(program.pairs.row.tolist(), program.pairs.stage.tolist(), strict=True):
        stages[row] += (stage,)
    return stages


def _next_stages(stages: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Return for every entry the stages that compute next from there on: AHEAD of them, one more if a pair brings it along."""
    found: list[list[int]] = []
    upcoming: dict[int, int] = {}  # stage -> its next entry; the last key comes first
    for number in range(len(stages) - 1, -1, -1):
        for stage in reversed(stages[number]):
            upcoming.pop(stage, None)
            upcoming[stage] = number
        nearest = list(islice(reversed(upcoming), AHEAD + 1))
        if len(nearest) > AHEAD and upcoming[nearest[-1]] != upcoming[nearest[-2]]:
            nearest.pop()
        found.append(nearest)
    return found[::-1]


class _Events:
    """All cells with the device in whose list they stand and the moment in which they enter it."""

    def __init__(self, table: ActionTable, gaps: _Gaps) -> None:
        self.table, self.gaps, program = table, gaps, table.program
        extra = np.zeros(program.num_entries, np.int64)
        for row, cells in gaps.before.items():
            extra[row] = len(cells)
        self.when = rounds_of(table, extra)
        self.texts: list[str] = []
        self.columns: list[Ints] = []
        """Of each part int64 (4, cells): device of the list, round, device that acts, order within its step."""

    def rows(self) -> Iterator[list[str]]:
        """Yield the cells of every device."""
        self._add_entries()
        self._add_gaps()
        self._add_transfers()
        device, when, actor, order = np.concatenate(self.columns, axis=1)
        # list by list; within one by round, then by the device that acts, then computation before its send before the receive
        by_list = np.lexsort((order, actor, when, device))
        bounds = np.searchsorted(device[by_list], np.arange(self.table.program.num_devices + 1))
        numbers = by_list.tolist()
        for first, last in pairwise(bounds.tolist()):
            yield [self.texts[number] for number in numbers[first:last]]

    def _add(self, texts: Sequence[str], *columns: Ints | int) -> None:
        self.texts += texts
        self.columns.append(np.stack([np.broadcast_to(column, len(texts)) for column in columns]).astype(np.int64))

    def _add_entries(self) -> None:
        texts = [cell for cells in print_orders(self.table.program) for cell in cells.split(" ")]
        self._add(texts, self.table.device, self.when, self.table.device, 0)

    def _add_gaps(self) -> None:
        """Let steps before an entry run right behind the entry before it, one a round."""
        start = self.table.program.device_start.tolist()
        for row, cells in self.gaps.before.items():
            device = int(self.table.device[row])
            first = 0 if row == start[device] else int(self.when[row - 1]) + 1
            self._add(cells, device, first + np.arange(len(cells)), device, 0)
        for device, cells in self.gaps.after.items():
            self._add(cells, device, int(self.when[start[device + 1] - 1]) + 1 + np.arange(len(cells)), device, 0)

    def _add_transfers(self) -> None:
        program, total = self.table.program, self.table.program.total_micro_batches
        kind, key, row = actions_of(program)
        home = self.table.device[self.table.forward_row[::total]]
        half = np.repeat((0, 2), (program.num_entries, len(program.pairs)))
        gradients = (kind == Kind.BACKWARD) | (kind == Kind.INPUT_GRAD)
        for sends, step, (send, receive) in (
            (kind == Kind.FORWARD, 1, (Communication.SEND_F, Communication.RECV_F)),
            (gradients, -1, (Communication.SEND_B, Communication.RECV_B)),
        ):
            stage, j = np.divmod(key, total)
            peer = stage + step
            crosses = sends & (peer >= 0) & (peer < program.num_stages)
            crosses[crosses] = home[peer[crosses]] != home[stage[crosses]]
            stage, j, peer, at, order = (column[crosses] for column in (stage, j, peer, row, half))
            actor = home[stage]
            for what, of, device, place in ((send, stage, actor, order + 1), (receive, peer, home[peer], order + 2)):
                texts = [f"{s}{what}{number}" for s, number in zip(of.tolist(), j.tolist(), strict=True)]
                self._add(texts, device, self.when[at], actor, place)

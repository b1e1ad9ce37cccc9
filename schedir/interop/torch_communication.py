"""Prove the communication of a torch CSV: what torch's runtime takes without a word and then hangs on or computes wrongly.

Checked are, in this order: every cell once, on the device that runs its stage; sends behind what they send, receives before what
waits for them; every send with its receive; between two devices the receives in the order of the sends; one REDUCE_GRAD behind
a stage's last gradient; computation between UNSHARD and RESHARD; no circle of actions that wait for each other.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from schedir.errors import FormatError
from schedir.interop.rounds import rounds_of
from schedir.interop.torch_cells import Communication
from schedir.interop.torch_communications import NUMBER_OF, WORDS, Communications
from schedir.ir.arrays import Ints
from schedir.ir.checks.action_table import ActionTable, actions_of
from schedir.ir.checks.verify import check_program, name_action
from schedir.ir.program import Program

_SEND_F, _RECV_F, _SEND_B, _RECV_B, _UNSHARD, _RESHARD, _REDUCE_GRAD = map(NUMBER_OF.__getitem__, Communication)


def check_communication(program: Program, cells: Communications) -> None:
    """Raise FormatError with the place of the first communication that is wrong.

    Raises ProgramError for a program that is not whole, DeadlockError for one that torch would hang on.
    """
    place = "" if program.origin is None else program.origin.place()
    if program.num_mini_batches > 1:
        raise FormatError(
            f"{place}communication of torch belongs to one mini-batch, but {program.num_mini_batches} are asked for: give "
            "num_mini_batches 1, or the compute-only form"
        )
    table = check_program(program)
    homes = table.by_stage(table.device[table.forward_row])
    spread = np.flatnonzero((homes != homes[:, :1]).any(axis=1))
    if len(spread):
        raise FormatError(
            f"{place}stage {spread[0]} runs on several devices, but with torch's communication a stage is on one: give the "
            "compute-only form"
        )
    check = _Check(table, homes[:, 0], cells)
    check.once()
    check.places()
    if (cells.micro_batch >= 0).any():
        check.transfers()
        check.matches()
        check.order()
    check.reductions()
    check.gathered()
    rounds_of(table)


class _Check:
    """The checks; each finds the first fault in the order of the file."""

    def __init__(self, table: ActionTable, home: Ints, cells: Communications) -> None:
        self.table, self.program, self.home, self.cells = table, table.program, home, cells
        self.total = table.program.total_micro_batches
        self.key = cells.stage * self.total + np.maximum(cells.micro_batch, 0)
        """Of each cell, as in the table of actions."""
        self.peer = cells.stage + np.where(np.isin(cells.what, (_SEND_F, _RECV_B)), 1, -1)
        """Of each transfer: the stage at its other end."""

    def once(self) -> None:
        """Refuse a transfer or a reduction that stands twice; gathering may."""
        cells = self.cells
        single = np.flatnonzero((cells.what != _UNSHARD) & (cells.what != _RESHARD))
        columns = (cells.micro_batch[single], cells.stage[single], cells.what[single])
        order = np.lexsort((single, *columns))
        same = np.logical_and.reduce([column[order[1:]] == column[order[:-1]] for column in columns])
        if same.any():
            again, first = single[order[1:][same]], single[order[:-1][same]]
            at = int(again.min())
            before = int(first[again.argmin()])
            where = cells.locate(int(cells.device[before]), int(cells.column[before])).removesuffix(": ")
            raise cells.fault(at, f"stands twice, first at {where}: every communication once")

    def places(self) -> None:
        """Refuse numbers beyond the shape, and cells on a device that does not run their stage."""
        cells, stages = self.cells, self.program.num_stages
        at = _first((cells.stage >= stages) | (cells.micro_batch >= self.total))
        if at is not None:
            raise cells.fault(at, f"is beyond stages 0..{stages - 1} and micro-batches 0..{self.total - 1}: number them from 0")
        at = _first(cells.device != self.home[cells.stage])
        if at is not None:
            raise cells.fault(
                at, f"stands on device {cells.device[at]}, but its stage on device {self.home[cells.stage[at]]}: move it there"
            )

    def transfers(self) -> None:
        """Refuse transfers that lead nowhere, and those on the wrong side of their action."""
        cells, of_transfer = self.cells, self.cells.micro_batch >= 0
        at = _first(of_transfer & ((self.peer < 0) | (self.peer >= self.program.num_stages)))
        if at is not None:
            raise cells.fault(at, f"leads nowhere: stages are 0..{self.program.num_stages - 1}, so delete it")
        peer = np.where(of_transfer, self.peer, 0)
        at = _first(of_transfer & (self.home[peer] == cells.device))
        if at is not None:
            raise cells.fault(
                at,
                f"leads to stage {peer[at]}, which is on the same device: torch hands over without transfers there, so delete it",
            )
        row = np.where(cells.what <= _RECV_F, self.table.forward_row[self.key], self.table.gradient_row[self.key])
        behind = row - self.program.device_start[cells.device] < cells.computed
        sends = (cells.what == _SEND_F) | (cells.what == _SEND_B)
        at = _first(of_transfer & (behind != sends))
        if at is not None:
            name = name_action(self.program, int(row[at]), int(self.key[at]))
            raise cells.fault(
                at,
                f"stands before {name}, whose result it sends: move it behind"
                if sends[at]
                else f"stands behind {name}, which waits for it: move it before",
            )

    def matches(self) -> None:
        """Refuse an action without the receive that it needs, and a receive without its send."""
        number, stages = np.arange(self.table.num_keys), self.program.num_stages
        stage = number // self.total
        for send, receive, step in ((_SEND_F, _RECV_F, -1), (_SEND_B, _RECV_B, 1)):
            source = stage + step
            crosses = (source >= 0) & (source < stages)
            crosses[crosses] = self.home[source[crosses]] != self.home[stage[crosses]]
            key = _first(crosses & ~self._present(receive))
            if key is not None:
                rows = self.table.forward_row if receive == _RECV_F else self.table.gradient_row
                device = int(self.home[stage[key]])
                place = "" if self.program.origin is None else self.program.origin.place(device)
                raise FormatError(
                    f"{place}device {device}: {name_action(self.program, int(rows[key]), key)} has no "
                    f"{stage[key]}{WORDS[receive]}{key % self.total} before it: write one"
                )
            # by the receiver's key: whether the stage at the other end sends; rolled over the ends are keys that cross nothing
            sent = np.roll(self._present(send), -step * self.total)
            key = _first(crosses & ~sent)
            if key is not None:
                at = int(np.flatnonzero((self.cells.what == receive) & (self.key == key))[0])
                missing = f"{source[key]}{WORDS[send]}{key % self.total}"
                raise self.cells.fault(at, f"waits for ever: {missing} is missing on device {self.home[source[key]]}: write it")

    def _present(self, what: int) -> Ints:
        present = np.zeros(self.table.num_keys, bool)
        present[self.key[self.cells.what == what]] = True
        return present

    def order(self) -> None:
        """Refuse receives that stand in another order than their sends: torch pairs them by their order alone."""
        cells = self.cells
        sends = np.flatnonzero((cells.what == _SEND_F) | (cells.what == _SEND_B))
        receives = np.flatnonzero((cells.what == _RECV_F) | (cells.what == _RECV_B))
        # both by (sender, receiver); within a pair they stay in the order of their lists, so partners have to stand in one place
        sends = sends[np.lexsort((self.home[self.peer[sends]], cells.device[sends]))]
        receives = receives[np.lexsort((cells.device[receives], self.home[self.peer[receives]]))]
        wrong = (
            (cells.what[receives] != cells.what[sends] + 1)
            | (cells.stage[receives] != self.peer[sends])
            | (cells.micro_batch[receives] != cells.micro_batch[sends])
        )
        if wrong.any():
            at = int(receives[wrong].min())
            sent = int(sends[receives == at][0])
            raise cells.fault(
                at,
                f"stands where device {cells.device[sent]} sends {cells.text(sent)}: torch would take one for the other, so put "
                "receives in the order of the sends",
            )

    def reductions(self) -> None:
        """Refuse a stage whose gradients are not divided, or before they are complete."""
        cells, last = self.cells, self.table.by_stage(self.table.last_row)
        reductions = np.flatnonzero(cells.what == _REDUCE_GRAD)
        of_stage = dict(zip(cells.stage[reductions].tolist(), reductions.tolist(), strict=True))
        for stage, home in enumerate(self.home.tolist()):
            j = int(last[stage].argmax())
            row = int(last[stage, j])
            name = name_action(self.program, row, stage * self.total + j)
            if stage not in of_stage:
                place = "" if self.program.origin is None else self.program.origin.place(home)
                raise FormatError(
                    f"{place}device {home}: {stage}REDUCE_GRAD is missing behind {name}: torch would leave the gradients of stage "
                    f"{stage} {self.total} times too large, so write it"
                )
            if cells.computed[of_stage[stage]] <= row - self.program.device_start[home]:
                raise cells.fault(of_stage[stage], f"stands before {name}, whose gradient it would miss: move it behind")

    def gathered(self) -> None:
        """Follow UNSHARD and RESHARD of every stage, where a file has them: a sharded stage (FSDP) computes in between only."""
        cells = self.cells
        gathers = np.flatnonzero((cells.what == _UNSHARD) | (cells.what == _RESHARD))
        if not len(gathers):
            return
        _, key, row = actions_of(self.program)
        order = np.argsort(key, kind="stable")  # by stage, and within one by micro-batch
        bounds_of_stages = np.searchsorted(key[order], self.total * np.arange(1, self.program.num_stages))
        of_stage = np.split(row[order], bounds_of_stages)
        by_stage = gathers[np.argsort(cells.stage[gathers], kind="stable")]
        bounds = {stage: list(found) for stage, found in groupby(by_stage.tolist(), lambda at: int(cells.stage[at]))}
        for stage, rows in enumerate(of_stage):
            found = bounds.get(stage, [])
            for number, at in enumerate(found):
                self._check_turn(at, gather=number % 2 == 0)
            places = np.sort(rows) - self.program.device_start[self.home[stage]]
            # UNSHARD and RESHARD take turns: behind an odd number of them the weights are there
            outside = _first(np.searchsorted(cells.computed[found], places, side="right") % 2 == 0)
            if outside is not None:
                self._raise_sharded(stage, int(places[outside]))

    def _check_turn(self, at: int, *, gather: bool) -> None:
        """Refuse to gather what is gathered, and to drop what is not."""
        if gather == (self.cells.what[at] == _UNSHARD):
            return
        stage = int(self.cells.stage[at])
        state, other = ("not gathered", "UNSHARD") if gather else ("gathered already", "RESHARD")
        raise self.cells.fault(at, f"stands where stage {stage} is {state}: delete it, or put {stage}{other} before it")

    def _raise_sharded(self, stage: int, number: int) -> None:
        device = int(self.home[stage])
        place = "" if self.program.origin is None else self.program.origin.place(device)
        entry = self.program.entry(int(self.program.device_start[device]) + number)
        raise FormatError(
            f"{place}device {device}: {entry} stands where the weights of stage {stage} are not gathered: put {stage}UNSHARD "
            f"before it, and {stage}RESHARD behind the stage's last action"
        )


def _first(wrong: Ints) -> int | None:
    found = np.flatnonzero(wrong)
    return int(found[0]) if len(found) else None

"""Cells of written orders: `2F0`, `(0F3;3B1)OVERLAP_F_B`, and whole orders of them as the columns of a program.

Text, TOML and CSV differ in what stands around the cells; the cells are the same everywhere, as
torch.distributed.pipelining writes them. They are read strictly: what is no action is an error with its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from schedir.errors import FormatError
from schedir.expect import shown
from schedir.ir.action import KIND_OF_LETTER, Action, Entry, Kind, Overlapped
from schedir.ir.arrays import Ints
from schedir.ir.entries import Entries
from schedir.ir.notation.header import Header
from schedir.ir.origin import Origin
from schedir.ir.pairs import Pairs
from schedir.ir.program import Program
from schedir.ir.shape import too_large

LETTERS = "FBIWRU"
"""Kinds that a written order may hold beside overlapped pairs."""

_DIGITS = "([0-9]{1,9})"  # nine digits fit the int32 columns
_ACTION = re.compile(f"{_DIGITS}([{LETTERS}]){_DIGITS}")
_PAIR = re.compile(rf"\({_ACTION.pattern};{_ACTION.pattern}\)OVERLAP_F_B")
_PLAIN_ORDER = re.compile(rf"(?:{_ACTION.pattern}\ )*", re.VERBOSE)
_SPACE_FOR_LETTER = bytes.maketrans(LETTERS.encode(), b" " * len(LETTERS))
_KIND_OF_CODE = np.zeros(128, np.int32)
_KIND_OF_CODE[[ord(letter) for letter in LETTERS]] = [KIND_OF_LETTER[letter] for letter in LETTERS]
_MANY = 10**6
"""Missing actions beyond which the first of them is not looked for."""
_BACKWARDS = (Kind.BACKWARD, Kind.INPUT_GRAD)

Locate = Callable[[int, int], str]
"""(device, number of the cell in its order) -> where it stands, `file.txt:9: device 1: column 14: `."""


def parse_action(text: str) -> Entry:
    """Return the action or overlapped pair that a cell stands for; raise FormatError if it is none."""
    found = _ACTION.fullmatch(text)
    if found:
        return _action(*found.groups())
    found = _PAIR.fullmatch(text)
    if not found:
        raise FormatError(_why_no_action(text))
    halves = _action(*found.groups()[:3]), _action(*found.groups()[3:])
    forward, backward = halves if halves[0].kind is Kind.FORWARD else halves[::-1]
    if forward.kind is not Kind.FORWARD or backward.kind not in _BACKWARDS:
        raise FormatError(f"{text!r} overlaps {halves[0]} and {halves[1]}: a pair is one F and one B or I")
    return Overlapped(forward, backward)


def _action(stage: str, letter: str, micro_batch: str) -> Action:
    return Action(int(stage), KIND_OF_LETTER[letter], int(micro_batch))


def _why_no_action(text: str) -> str:
    rule = "write <stage><F, B, I, W, R or U><micro-batch>, like 2F0, or (0F3;3B1)OVERLAP_F_B"
    if re.fullmatch(r"[0-9]+P[0-9]+", text):
        return f"{shown(text)}: predictions (P) are placed by the weight rule: leave them out"
    if re.fullmatch(r"[0-9]+[FBIW]", text):
        return f"{shown(text)} has no micro-batch: {rule}"
    if re.search(r"[0-9]{10}", text):
        return f"{shown(text)} has a number of more than nine digits: {rule}"
    return f"{shown(text)} is no action: {rule}"


class Orders:
    """Collects the written orders of devices, one device after the other, then makes a program of them."""

    def __init__(self, locate: Locate) -> None:
        self._locate = locate
        self._columns: list[Ints] = []
        """Of each device int32 (3, cells): kind, stage and micro-batch."""
        self._pairs: list[tuple[int, Action]] = []
        """(number of the entry over all devices, backward half)."""
        self._num_entries = 0

    def add(self, cells: Sequence[str]) -> None:
        """Take the next device's order; raise FormatError with the place of the first cell that is no action."""
        text = " ".join(cells)
        # nearly every order is plain actions, read in array operations; cell by cell only pairs, and mistakes, which need a place
        is_plain = bool(cells) and _PLAIN_ORDER.fullmatch(f"{text} ") is not None
        self._columns.append(_plain_columns(text) if is_plain else self._columns_one_by_one(cells))
        self._num_entries += len(cells)

    def _columns_one_by_one(self, cells: Sequence[str]) -> Ints:
        columns = np.empty((3, len(cells)), np.int32)
        for number, cell in enumerate(cells):
            try:
                entry = parse_action(cell)
            except FormatError as error:
                raise FormatError(f"{self._locate(len(self._columns), number)}{error}") from None
            first = entry.forward if isinstance(entry, Overlapped) else entry
            if isinstance(entry, Overlapped):
                self._pairs.append((self._num_entries + number, entry.backward))
            kind = Kind.OVERLAPPED if isinstance(entry, Overlapped) else entry.kind
            columns[:, number] = kind, first.stage, first.micro_batch
        return columns

    def program(self, header: Header, origin: Origin | None = None) -> Program:
        """Return the program; raise FormatError for a shape too large, actions beyond it and duplicates."""
        kind, stage, micro_batch = np.concatenate(self._columns, axis=1)
        pairs = Pairs.of_actions(self._pairs)
        num_micro_batches, num_mini_batches = _batches(header, _count(micro_batch, pairs.micro_batch))
        program = Program.from_entries(
            header.name,
            Entries((kind, stage, micro_batch), [column.shape[1] for column in self._columns], pairs),
            num_stages=header.num_stages or _count(stage, pairs.stage),
            num_micro_batches=num_micro_batches,
            num_mini_batches=num_mini_batches,
            weights=header.weights,
        )
        program = replace(program, origin=origin)
        excess = too_large(program.num_stages, program.total_micro_batches)
        if excess is not None:
            raise FormatError(f"{'' if origin is None else origin.place()}{excess}")
        self._check_entries(program)
        self._check_ranges(program)
        self._check_once(program)
        return program

    def _check_entries(self, program: Program) -> None:
        """Refuse numbers far beyond what is written, before anything makes a table by number."""
        written, needed = program.num_entries + len(program.pairs), program.num_stages * program.total_micro_batches
        if needed > written + _MANY:
            origin = "" if program.origin is None else program.origin.place()
            raise FormatError(
                f"{origin}{program.num_stages} stages x {program.total_micro_batches} micro-batches need {needed} forwards, but "
                f"{written} actions are written: number stages and micro-batches from 0 without gaps, and write every action"
            )

    def _place(self, program: Program, row: int) -> str:
        device = int(np.searchsorted(program.device_start, row, side="right")) - 1
        return self._locate(device, row - int(program.device_start[device]))

    def _check_ranges(self, program: Program) -> None:
        columns = (
            ("stage", program.num_stages, program.stage, None),
            ("micro-batch", program.total_micro_batches, program.micro_batch, None),
            ("stage", program.num_stages, program.pairs.stage, program.pairs.row),
            ("micro-batch", program.total_micro_batches, program.pairs.micro_batch, program.pairs.row),
        )
        for what, limit, column, rows in columns:
            if len(column) and column.max() >= limit:
                at = int(np.flatnonzero(column >= limit)[0])
                row = at if rows is None else int(rows[at])
                raise FormatError(
                    f"{self._place(program, row)}{program.entry(row)} has {what} {column[at]}, but the shape says 0..{limit - 1}"
                )

    def _check_once(self, program: Program) -> None:
        """Refuse an action that stands twice; an update stands on every device that hosts its stage."""
        kind = np.where(program.kind == Kind.OVERLAPPED, np.int8(Kind.FORWARD), program.kind)
        device = np.where(program.kind == Kind.UPDATE, program.device_of_entry(), 0)
        rows = np.concatenate((np.arange(program.num_entries), program.pairs.row))
        columns = (
            np.concatenate((program.micro_batch, program.pairs.micro_batch)),
            np.concatenate((program.stage, program.pairs.stage)),
            np.concatenate((kind, program.pairs.kind)),
            np.concatenate((device, np.zeros(len(program.pairs), np.int32))),
        )
        # the same actions come to stand side by side, the earlier row first
        order = np.lexsort((rows, *columns))
        same = np.logical_and.reduce([column[order[1:]] == column[order[:-1]] for column in columns])
        if same.any():
            firsts, seconds = rows[order[:-1]][same], rows[order[1:]][same]
            row, first = int(seconds.min()), self._place(program, int(firsts[seconds.argmin()])).removesuffix(": ")
            raise FormatError(f"{self._place(program, row)}{program.entry(row)} stands twice, first at {first}: every action once")


def _plain_columns(text: str) -> Ints:
    """Return kind, stage and micro-batch, int32 (3, cells), of cells that are known to be plain actions."""
    #   "2F0 2B1"  ->  "2 0 2 1" and "FB"
    raw = text.encode()
    numbers = np.fromstring(raw.translate(_SPACE_FOR_LETTER), np.int32, sep=" ").reshape(-1, 2)
    letters = np.frombuffer(raw.translate(None, b"0123456789 "), np.uint8)
    return np.stack((_KIND_OF_CODE[letters], numbers[:, 0], numbers[:, 1]))


def _count(*columns: Ints) -> int:
    """Return one more than the highest number."""
    return max(int(column.max(initial=0)) for column in columns) + 1


def _batches(header: Header, total: int) -> tuple[int, int]:
    """Return micro-batches per mini-batch and mini-batches; what is not said follows from the total."""
    m, n = header.num_micro_batches, header.num_mini_batches
    if m is not None:
        return m, n if n is not None else -(-total // m)
    # rounded up, so that no action lies beyond the shape; the verifier names what is missing
    return (total, 1) if n is None else (-(-total // n), n)
